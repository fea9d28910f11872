"""Offers Arrow IPC files as an input format."""

from __future__ import annotations

from recordmill.transforms.sources.columnar.table_format import table_format

FORMAT = table_format(
    "arrow",
    "Arrow IPC files and streams (.arrow, .feather, .arrows).",
    folder="frames",
)
