"""Infers the types of columns of text cells, and converts the cells to them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntFlag
from functools import lru_cache
from itertools import accumulate

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import FeatureSpec, Schema, usual_kind
from recordmill.schemas.ranges import TypeFlags
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.text_values import ARROW_TYPES as _ARROW_TYPES
from recordmill.transforms.cast.text_values import (
    are_huge,
    present,
    read_column,
    read_each,
    swap_points,
    without_missing,
)
from recordmill.transforms.encode.row_errors import Mask


class TypeFlag(IntFlag):
    """What the cells of a column were observed to hold; NOTHING if all were empty.

    Checkpoints keep them, so none ever gets another meaning that is narrower.
    """

    NOTHING = 0
    BOOLEAN = 1
    INTEGER = 2  # whole and within int64: 7, 7.0
    DECIMAL = 4  # within float32
    TEXT = 8
    HUGE = 16  # decimals beyond float32, but within float64: they stay text
    MISSING = 32  # words like NA, and nothing but blanks
    # Not of cells: the type is decided, and cells that do not fit it are rejected.
    DECIDED = 64


# How the cells are read, by the feature's dtype. Decimals stay float64 until they are
# encoded.
_READ_AS = {"bool": "bool", "int64": "int64", "float32": "float64", "string": "string"}
ARROW_TYPES = {dtype: _ARROW_TYPES[read_as] for dtype, read_as in _READ_AS.items()}

_DTYPE_OF: dict[int, str] = {
    TypeFlag.BOOLEAN: "bool",
    TypeFlag.INTEGER: "int64",
    TypeFlag.DECIMAL: "float32",
    TypeFlag.INTEGER | TypeFlag.DECIMAL: "float32",
}
_MISSING = int(TypeFlag.MISSING)  # as a number: flags take some microseconds
_NO_TYPES = int(TypeFlag.MISSING | TypeFlag.DECIDED)
NUMBERS = int(TypeFlag.INTEGER | TypeFlag.DECIMAL)


def column_dtype(flags: int) -> str:
    """Returns the narrowest dtype that holds all cells with these flags.

    >>> column_dtype(TypeFlag.INTEGER | TypeFlag.DECIMAL)
    'float32'
    """
    return _DTYPE_OF.get(int(flags) & ~_NO_TYPES, "string")


def is_text(flags: int) -> bool:
    """Tells whether a column is text, whatever its other cells hold."""
    known = int(flags) & ~_NO_TYPES
    return bool(known) and column_dtype(known) == "string" and not is_huge(known)


def has_missing_words(flags: int) -> bool:
    """Tells whether cells of a column with these flags stand for missing values."""
    return bool(int(flags) & _MISSING) and column_dtype(flags) != "string"


def is_huge(flags: int) -> bool:
    """Tells whether a column is text only because of decimals beyond float32."""
    flags = int(flags) & ~_NO_TYPES
    others = flags & ~int(TypeFlag.HUGE)
    return others != flags and (not others or column_dtype(others) != "string")


# Asked for each batch: a schema of 20,000 columns takes longer than a batch of them.
@lru_cache(maxsize=8)
def infer_schema(
    names: tuple[str, ...], observed: TypeFlags, nulls: tuple[int, ...]
) -> Schema:
    """Returns the features of columns whose types follow from their cells."""
    features = []
    for name, flags, missing in zip(names, observed, nulls, strict=True):
        dtype = column_dtype(flags)
        optional = missing > 0 or has_missing_words(flags)
        features.append(
            FeatureSpec(name, usual_kind(dtype), dtype=dtype, optional=optional)
        )
    return Schema(tuple(features))


#     integer, boolean -> int64_list    decimal -> float_list    the rest -> bytes_list
#
# The type flags of a column are those of all its cells, merged by OR, so the order in
# which ranges are read cannot matter: ["1", "2.0"] has INTEGER, ["2.5"] has DECIMAL, both
# together have INTEGER | DECIMAL, which is float32. A whole number is an integer also
# where it is written as a decimal (2.0, as pandas writes integers with gaps), but not with
# an exponent (2e3), which is how floats are written. What would lose something stays text:
# leading zeros, a leading plus, integers beyond int64, decimals beyond float32 (they would
# become infinity), booleans among numbers.
#
# Blanks around a value, and words that stand for a missing one (NA, null), count for
# nothing where all other cells are numbers or booleans; in a column of text all cells stay
# as they are.


def _flags_of(cells: pa.StringArray) -> I64:
    """Returns the flag of each cell; none is null or has blanks around it."""
    found = np.full(len(cells), int(TypeFlag.TEXT), np.int64)
    rest = np.arange(len(cells))
    flags = (TypeFlag.INTEGER, TypeFlag.DECIMAL, TypeFlag.BOOLEAN)
    for flag, dtype in zip(flags, ("int64", "float64", "bool"), strict=True):
        if not len(rest):
            break
        own = cells.take(pa.array(rest))
        values, written = read_each(own, dtype, strict=True)
        valid = present(values)
        found[rest[valid]] = int(flag)
        beyond = np.flatnonzero(written & ~valid)
        if dtype == "float64" and len(beyond):
            huge = are_huge(own.take(pa.array(beyond)))
            found[rest[beyond[huge]]] = int(TypeFlag.HUGE)
        rest = rest[~valid]
    return found


def flags_of_each(cells: pa.StringArray) -> I64:
    """Returns the flag of each cell; NOTHING where it is missing."""
    cells = without_missing(cells)
    found = np.zeros(len(cells), np.int64)
    found[present(cells)] = _flags_of(cells.drop_null())
    return found


def are_invalid(cells: pa.StringArray, dtype: str) -> Mask:
    """Returns which cells are not valid for a dtype; missing ones are."""
    cells = without_missing(cells)
    values, _ = read_each(cells, _READ_AS[dtype], strict=True)
    invalid: Mask = present(cells) & ~present(values)
    return invalid


def read_as(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns the cells as a dtype, or None if some cell is not valid for it."""
    if dtype == "string":
        return cells
    return read_column(cells, _READ_AS[dtype], strict=True)


# A call of Arrow costs some microseconds however few cells it gets, and a column takes
# dozens of calls: in a table of 20,000 columns and 60 rows they would be nearly all of the
# time. So where columns are short, those of one type are put end to end, and taken for
# one column. What comes out for each is the same.

_SHORT = 1024  # cells of a column that is put together with others


def classify_columns(columns: Sequence[pa.StringArray]) -> list[TypeFlag]:
    """Returns the type flags of each column of text."""
    flags = [TypeFlag.NOTHING] * len(columns)
    filled = [at for at, cells in enumerate(columns) if cells.null_count < len(cells)]
    for group in _groups(columns, filled):
        cells = pa.concat_arrays([columns[at] for at in group]).drop_null()
        counts = [len(columns[at]) - columns[at].null_count for at in group]
        starts = [0, *accumulate(counts[:-1])]
        cells = without_missing(cells)
        found = np.full(len(cells), int(TypeFlag.MISSING))
        found[present(cells)] = _flags_of(cells.drop_null())
        sums = np.bitwise_or.reduceat(found, starts)
        for at, total in zip(group, sums.tolist(), strict=True):
            flags[at] = TypeFlag(total)
    return flags


def convert_columns(
    columns: Sequence[pa.StringArray], expected: Sequence[int]
) -> tuple[list[pa.Array], list[int]]:
    """Converts columns of text to the types that are expected, if they fit.

    Returns the columns, and the type flags that were seen in each; where these ask for
    another type than the one expected, the cells have the type that holds both.
    """
    arrays: list[pa.Array] = [None] * len(columns)
    observed = [int(TypeFlag.NOTHING)] * len(columns)
    members: dict[str, list[int]] = {}  # by the dtype that is expected
    unknown = []
    for at, (cells, flags) in enumerate(zip(columns, expected, strict=True)):
        dtype = column_dtype(flags)
        if cells.null_count == len(cells):
            arrays[at] = cells.cast(ARROW_TYPES[dtype])
        elif is_text(flags):  # whatever they hold
            arrays[at], observed[at] = cells, int(flags) & ~_MISSING
        elif dtype == "string":
            unknown.append(at)
        else:
            members.setdefault(dtype, []).append(at)
            observed[at] = int(flags) & ~_MISSING

    def read(group: list[int], dtype: str) -> bool:
        """Converts columns together; returns False if a cell of theirs is not valid."""
        cells = [columns[at] for at in group]
        joined = read_as(
            cells[0] if len(cells) == 1 else pa.concat_arrays(cells), dtype
        )
        if joined is None:
            return False
        found = joined.null_count > sum(column.null_count for column in cells)
        start = 0
        for at, column in zip(group, cells, strict=True):
            done = arrays[at] = joined.slice(start, len(column))
            start += len(done)
            if found and done.null_count > column.null_count:
                observed[at] |= _MISSING
                if done.null_count == len(done):
                    observed[at] = _MISSING
        return True

    for dtype, own in members.items():
        for group in _groups(columns, own):
            if not read(group, dtype):  # some column needs a wider type
                one_by_one = len(group) > 1
                unknown += [
                    at for at in group if not (one_by_one and read([at], dtype))
                ]
    members.clear()
    seen = classify_columns([columns[at] for at in unknown])
    for at, flags in zip(unknown, seen, strict=True):
        observed[at] = int(expected[at]) | int(flags)
        members.setdefault(column_dtype(observed[at]), []).append(at)
    for dtype, own in members.items():
        for group in _groups(columns, own):
            read(group, dtype)
    return arrays, observed


def _groups(
    columns: Sequence[pa.StringArray], members: Sequence[int]
) -> list[list[int]]:
    """Groups columns to be joined; a long one is alone."""
    short = [at for at in members if len(columns[at]) <= _SHORT]
    alone = [[at] for at in members if len(columns[at]) > _SHORT]
    return [short, *alone] if short else alone


def with_points(columns: list[pa.StringArray], decimal: str) -> list[pa.StringArray]:
    """Returns columns of text with a point in numbers."""
    if decimal == ",":
        return [swap_points(column) for column in columns]
    return columns
