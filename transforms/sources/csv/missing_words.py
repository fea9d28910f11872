"""Counts the cells of columns of numbers that are missing values, or have many digits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.ranges import OddRows, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.text_values import matches, without_missing
from recordmill.transforms.encode.row_errors import Mask
from recordmill.transforms.sources.text_types import cells_of
from recordmill.transforms.sources.type_flags import TypeFlag, is_text

_KIND = "missing:"  # and the name of the column
_COUNTED_COLUMNS = 100  # of which each is told by itself; the first ones of a table
_SHOWN_COLUMNS = 10
_WARNED_COLUMNS = 5
_LONG = "digits:"  # and the name of the column
_FLOAT32_DIGITS = 7
_LONG_NUMBER = r"[1-9](?:[.,]?[0-9]){6,}[.,]?[1-9]"
_SHOWN = 40  # characters of a cell


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


def count_long(table: pa.Table, batch: pa.RecordBatch) -> tuple[OddRows, ...]:
    """Returns how many numbers of each float32 column have more than seven digits.

    Args:
      table: the cells as text.
      batch: the same, converted.
    """
    found = []
    for index, (name, column) in enumerate(
        zip(batch.schema.names, batch.columns, strict=True)
    ):
        if pa.types.is_float64(column.type):
            cells = cells_of(table, name)
            rows = np.flatnonzero(_is_long(cells, column))
            if len(rows):
                told = name if index < _COUNTED_COLUMNS else ""
                example = cells[int(rows[0])].as_py().strip()[:_SHOWN]
                found.append((OddRows(f"{_LONG}{told}", len(rows), example),))
    return OddRows.merged(found)


def _is_long(cells: pa.StringArray, floats: pa.DoubleArray) -> Mask:
    """Returns which numbers have more than seven digits, but for zeros at either end."""
    offsets, text = array_parts(cells)
    lengths = np.diff(offsets)
    long: Mask = np.zeros(len(cells), np.bool_)
    doubtful: Mask = lengths > _FLOAT32_DIGITS
    own = text[offsets[0] : offsets[-1]]
    if doubtful.any() and own.min() >= ord(",") and own.max() <= ord("9"):
        # Digits with a minus and a point at most: -0.1234567 has 10 - 3 of them.
        size = np.abs(floats.to_numpy(zero_copy_only=False))
        minus = text.take(offsets[:-1], mode="clip") == ord("-")
        digits = lengths - 1 - minus - (size < 1)
        last = text.take(offsets[1:] - 1, mode="clip")
        long = (digits > _FLOAT32_DIGITS) & (size >= 0.1) & (last > ord("0"))
        doubtful = (digits >= _FLOAT32_DIGITS) & ~long
    rows = np.flatnonzero(doubtful)
    if len(rows):
        long[rows] = matches(cells.take(pa.array(rows)), _LONG_NUMBER)
    return long


def long_warnings(odd: Sequence[OddRows], names: Sequence[str]) -> list[str]:
    """Returns a warning for each of the first columns, and one for all others.

    Args:
      odd: as `count_long` gives them, those of all rows together.
      names: of the columns.
    """
    found = _long_columns(odd, names)
    warnings = [
        f"{told}: float32 may lose some of them. To keep them, declare the column "
        "{dtype: float64, stored: tensor} or string in a schema file (`schema`)"
        for told in found[:_WARNED_COLUMNS]
    ]
    if more := len(found) - len(warnings):
        warnings.append(
            f"{count(more, 'more column')} of float32 with numbers of more than "
            f"{_FLOAT32_DIGITS} digits"
        )
    return warnings


def exact_problem(odd: Sequence[OddRows], names: Sequence[str]) -> str:
    """Returns the message of a run that may lose no digit, but could; or "".

    Args:
      odd, names: as of `long_warnings`.
    """
    found = _long_columns(odd, names)
    if not found:
        return ""
    lines = [f"  {told}" for told in found[:_WARNED_COLUMNS]]
    if more := len(found) - len(lines):
        lines.append(f"  and {count(more, 'more column')}")
    return (
        f"float32 would lose digits of {count(len(found), 'column')}, and `exact` allows "
        "none:\n" + "\n".join(lines) + "\nDeclare these columns {dtype: float64, "
        "stored: tensor} or string in a schema file (`schema`), or leave out `exact`"
    )


def _long_columns(odd: Sequence[OddRows], names: Sequence[str]) -> list[str]:
    """Returns what is found in each column, in their order."""
    found = {
        each.kind.removeprefix(_LONG): each
        for each in odd
        if each.kind.startswith(_LONG)
    }
    return [
        (f"column {name!r}: " if name else "other columns: ")
        + f"{count(found[name].rows, 'value')} with more than {_FLOAT32_DIGITS} digits, "
        f"such as {found[name].example}"
        for name in (*names[:_COUNTED_COLUMNS], "")
        if name in found
    ]
