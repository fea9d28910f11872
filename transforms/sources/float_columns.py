"""Finds the inferred columns of floats that lose digits of their cells."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.rounded import Rounded
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.cast.lost_digits import lost_digits, shown_float32
from recordmill.transforms.cast.text_values import without_missing
from recordmill.transforms.sources.text_types import bytes_of, cells_of

_FLOAT64 = pa.float64()
_BLANK = ord(" ")
_SHOWN = 40  # characters of a cell


def rounded_in(
    table: pa.Table, batch: pa.RecordBatch, decimal: str = "."
) -> tuple[Rounded, ...]:
    """Returns the columns of decimals that lose digits as float32.

    Args:
      table: the cells as text.
      batch: the same, converted.
      decimal: what stands before the places of numbers, "." or ",".
    """
    found: list[Rounded] = []
    if _FLOAT64 not in batch.schema.types:
        return ()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pt.is_float64(column.type):
            continue
        cells = cells_of(table, name)
        if decimal == ",":
            cells = swap_points(cells)
        cells = _as_converted(cells, column)
        lost = lost_digits(cells, column)
        if len(lost):
            first = int(lost[0])
            stored = shown_float32(column[first].as_py())
            found.append(
                Rounded(name, len(lost), cells[first].as_py()[:_SHOWN], stored)
            )
    return tuple(found)


def _as_converted(cells: pa.StringArray, column: pa.Array) -> pa.StringArray:
    """Returns the cells without what their conversion left out: blanks, words like NA."""
    text = bytes_of(cells)
    if cells.null_count == column.null_count and not (text <= _BLANK).any():
        return cells
    return without_missing(cells)
