"""Finds the inferred columns of floats that lose digits of their cells."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.rounded import Rounded
from recordmill.transforms.cast.lost_digits import lost_digits, shown_float32
from recordmill.transforms.sources.text_types import cells_of

_FLOAT64 = pa.float64()
_SHOWN = 40  # characters of a cell


def rounded_in(table: pa.Table, batch: pa.RecordBatch) -> tuple[Rounded, ...]:
    """Returns the columns of decimals that lose digits as float32.

    Args:
      table: the cells as text.
      batch: the same, converted.
    """
    found: list[Rounded] = []
    if _FLOAT64 not in batch.schema.types:
        return ()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pt.is_float64(column.type):
            continue
        cells = cells_of(table, name)
        lost = lost_digits(cells, column)
        if len(lost):
            first = int(lost[0])
            stored = shown_float32(column[first].as_py())
            found.append(
                Rounded(name, len(lost), cells[first].as_py()[:_SHOWN], stored)
            )
    return tuple(found)
