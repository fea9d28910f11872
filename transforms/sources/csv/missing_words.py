"""Counts the cells of columns of numbers that are words for a missing value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.features.feature import Schema
from recordmill.schemas.ranges import OddRows, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.text_values import without_missing
from recordmill.transforms.sources.type_flags import TypeFlag, is_text

_KIND = "missing:"  # and the name of the column
_COUNTED_COLUMNS = 100  # of which each is told by itself; the first ones of a table
_SHOWN_COLUMNS = 10


def count_missing(
    names: Sequence[str],
    cells: Sequence[pa.StringArray],
    columns: Sequence[pa.Array],
    observed: TypeFlags,
) -> tuple[OddRows, ...]:
    """Returns how many cells of each column were taken for missing, with an example.

    Args:
      names: of the columns.
      cells: as text.
      columns: the same, converted.
      observed: their type flags.
    """
    found = []
    for index, flags in enumerate(observed):
        if not flags & TypeFlag.MISSING or is_text(flags):
            continue
        kept = columns[index]
        if pa.types.is_string(kept.type):  # whether it is text is not yet known
            kept = without_missing(cells[index])
        words = pc.and_(kept.is_null(), cells[index].is_valid())
        rows = np.flatnonzero(words.to_numpy(zero_copy_only=False))
        if len(rows):
            name = names[index] if index < _COUNTED_COLUMNS else ""
            example = cells[index][int(rows[0])].as_py()
            found.append(OddRows(f"{_KIND}{name}", len(rows), example))
    return OddRows.merged([(each,) for each in found])


def missing_fact(odd: Sequence[OddRows], schema: Schema) -> tuple[tuple[str, str], ...]:
    """Returns what is told of cells that were taken for missing, as a fact or none.

    Args:
      odd: as `count_missing` gives them, those of all rows together.
      schema: of the records; columns that came out as text have kept their cells.
    """
    text = {feature.name for feature in schema.features if feature.dtype == "string"}
    told = [
        (each.kind.removeprefix(_KIND), each)
        for each in odd
        if each.kind.startswith(_KIND) and each.kind.removeprefix(_KIND) not in text
    ]
    if not told:
        return ()
    parts = [
        f"{count(each.rows, 'cell')} like {shown(each.example)} in "
        + (f"column {name}" if name else "other columns")
        for name, each in told[:_SHOWN_COLUMNS]
    ]
    if more := len(told) - len(parts):
        parts.append(f"{more:,} more columns")
    return (("taken as missing", "; ".join(parts)),)
