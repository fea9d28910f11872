"""Offers Parquet files as an input format."""

from __future__ import annotations

from recordmill.transforms.sources.columnar.table_format import table_format

FORMAT = table_format("parquet", "Parquet files (.parquet).", folder="tables")
