"""Chooses the columns that statistics can show: those of single values, not bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.types as pt

from recordmill.transforms.encode.column_types import is_list
from recordmill.transforms.sources.source_rows import Rows


def single_values(found: Iterator[Rows]) -> Iterator[Rows]:
    """Yields the same rows with the columns that can be told as text."""
    for rows in found:
        names = [
            field.name
            for field in rows.batch.schema
            if not is_list(field.type) and not pt.is_binary(field.type)
        ]
        rows.batch = rows.batch.select(names)
        yield rows
