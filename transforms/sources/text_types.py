"""Infers the type of a column of text cells, and converts the cells to it.

    integer, boolean -> int64_list    decimal -> float_list    the rest -> bytes_list

The type flags of a column are those of all its cells, merged by OR, so the order in
which ranges are read cannot matter: ["1", "2"] has INTEGER, ["2.5"] has DECIMAL, both
together have INTEGER | DECIMAL, which is float32. What would lose something stays text:
leading zeros, a leading plus, integers beyond int64, decimals beyond float64 (they would
become infinity), booleans among numbers.
"""

from __future__ import annotations

from enum import IntFlag

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


class TypeFlag(IntFlag):
    """What the cells of a column were observed to hold; NOTHING if all were empty."""

    NOTHING = 0
    BOOLEAN = 1
    INTEGER = 2
    DECIMAL = 4
    TEXT = 8


# What the cells become, by the feature's dtype. Decimals stay float64 until they are
# encoded, so that what is beyond float32 is rejected with its row.
ARROW_TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float32": pa.float64(),
    "string": pa.string(),
}

_DTYPE_OF = {
    TypeFlag.BOOLEAN: "bool",
    TypeFlag.INTEGER: "int64",
    TypeFlag.DECIMAL: "float32",
    TypeFlag.INTEGER | TypeFlag.DECIMAL: "float32",
}
_LEAST_FLAG = {
    "bool": TypeFlag.BOOLEAN,
    "int64": TypeFlag.INTEGER,
    "float32": TypeFlag.DECIMAL,
}


def column_dtype(flags: int) -> str:
    """Returns the narrowest dtype that holds all cells with these flags.

    >>> column_dtype(TypeFlag.INTEGER | TypeFlag.DECIMAL)
    'float32'
    """
    return _DTYPE_OF.get(TypeFlag(flags), "string")


# The same language as the fast checks below; these decide where they cannot.
_BOOLEAN_TEXT = r"^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"  # (?i:s) is also ſ
_INTEGER_TEXT = r"^(0|-?[1-9][0-9]*)$"
_DECIMAL_TEXT = (
    r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
    r"|^-?(?i:inf|infinity)$|^(?i:nan)$"
)
_INFINITY_TEXT = r"^-?(?i:inf|infinity)$"
_SURE_INT64_DIGITS = 18
_SURE_INT64 = 1e17  # below, a number has at most that many digits before its point


def cells_of(table: pa.Table, name: str) -> pa.StringArray:
    """Returns a column of a table as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def classify(cells: pa.StringArray) -> TypeFlag:
    """Returns the type flags of all cells. Slow: it uses regular expressions."""
    cells = cells.drop_null()
    if len(cells) == 0:
        return TypeFlag.NOTHING
    boolean, integer, decimal = _kinds(cells)
    flags = TypeFlag.NOTHING
    if boolean.any():
        flags |= TypeFlag.BOOLEAN
    if integer.any():
        flags |= TypeFlag.INTEGER
    if decimal.any():
        flags |= TypeFlag.DECIMAL
    if not (boolean | integer | decimal).all():
        flags |= TypeFlag.TEXT
    return flags


_Mask = npt.NDArray[np.bool_]


def _kinds(cells: pa.StringArray) -> tuple[_Mask, _Mask, _Mask]:
    """Returns which cells are booleans, integers and other decimals; the rest is text.

    Args:
      cells: at least one, and no null.
    """
    boolean = _matches(cells, _BOOLEAN_TEXT)
    integer = _matches(cells, _INTEGER_TEXT)
    decimal = _matches(cells, _DECIMAL_TEXT) & ~integer
    long = integer & (_lengths(cells) > _SURE_INT64_DIGITS)
    beyond = np.zeros(len(cells), np.bool_)
    for row in np.flatnonzero(long).tolist():  # only integers of 19 digits or more
        beyond[row] = not _is_int64(cells[row].as_py())
    at = np.flatnonzero(decimal)
    endless = at[np.isinf(cells.take(pa.array(at)).cast(pa.float64()).to_numpy())]
    if len(endless):
        beyond[endless] = ~_matches(cells.take(pa.array(endless)), _INFINITY_TEXT)
    return boolean, integer & ~beyond, decimal & ~beyond


def convert(cells: pa.StringArray, expected: int) -> tuple[pa.Array, TypeFlag]:
    """Converts a column to the type that `expected` stands for, if it fits.

    Returns:
      The converted cells and what was seen; where that asks for another type than
      the one expected, the cells are converted to the type that holds both.
    """
    dtype = column_dtype(expected)
    if cells.null_count == len(cells):
        return cells.cast(ARROW_TYPES[dtype]), TypeFlag.NOTHING
    if dtype == "string" and expected:
        return cells, TypeFlag.TEXT
    if expected:
        converted = _cast(cells, dtype)
        if converted is not None:
            return converted, TypeFlag(expected)
    seen = TypeFlag(expected) | classify(cells)
    wider = column_dtype(seen)
    return (cells if wider == "string" else cells.cast(ARROW_TYPES[wider])), seen


def convert_to_dtype(cells: pa.StringArray, dtype: str) -> tuple[pa.Array, _Mask]:
    """Converts a column to a given dtype, whatever its cells hold.

    Returns:
      The cells, null where they are not valid for the dtype, and which those are.
    """
    none = np.zeros(len(cells), np.bool_)
    if dtype == "string":
        return cells, none
    if cells.null_count == len(cells):
        return cells.cast(ARROW_TYPES[dtype]), none
    converted = _cast(cells, dtype)
    if converted is not None:
        return converted, none
    present = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
    boolean, integer, decimal = _kinds(cells.drop_null())
    fits = boolean if dtype == "bool" else integer
    if dtype == "float32":
        fits = integer | decimal
    wrong = none.copy()
    wrong[present[~fits]] = True
    return pc.if_else(pa.array(wrong), None, cells).cast(ARROW_TYPES[dtype]), wrong


def _cast(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns the cells as that dtype, or None if some cell is not valid for it.

    Arrow's casts accept a little more than these types (007, 0x10, +5, 1e400, 1 as a
    boolean), so suspicious cells are checked once more, and only they.
    """
    try:
        converted = cells.cast(ARROW_TYPES[dtype])
    except pa.ArrowInvalid:
        return None
    suspects = _suspects(cells, dtype, converted)
    if not suspects.any():
        return converted
    seen = classify(cells.filter(pa.array(suspects)))
    return converted if column_dtype(seen | _LEAST_FLAG[dtype]) == dtype else None


_ZERO, _NINE, _MINUS, _POINT = (ord(char) for char in "09-.")


def _suspects(
    cells: pa.StringArray, dtype: str, converted: pa.Array
) -> npt.NDArray[np.bool_]:
    """Returns which cells may not be valid for the dtype although Arrow converts them.

    For int64 and the cells ["12", "0", "007", "-5", "-07"]: the first bytes are
    "1", "0", "0", "-", "-". A first "0" before more digits, or a "0" behind "-", is
    suspicious: [False, False, True, False, True].
    """
    offsets = np.frombuffer(cells.buffers()[1], np.int32)
    offsets = offsets[cells.offset : cells.offset + len(cells) + 1]
    lengths = np.diff(offsets)
    if dtype == "bool":
        return np.equal(lengths, 1)  # Arrow also takes 0 and 1
    data = np.frombuffer(cells.buffers()[2], np.uint8)
    starts = offsets[:-1]
    first = data.take(starts, mode="clip")
    if dtype == "int64":
        # Sure: 1-9 in front, or a lone 0. Negative ones: the next digit decides.
        odd: npt.NDArray[np.bool_] = (first == _ZERO) & (lengths > 1)
        odd |= first == _MINUS
        at = np.flatnonzero(odd)
        negative = first[at] == _MINUS
        odd[at[negative]] = data.take(starts[at[negative]] + 1, mode="clip") == _ZERO
        return odd
    doubtful: npt.NDArray[np.bool_] = first - np.uint8(_ZERO) > 9
    signed = first == _MINUS
    at = np.flatnonzero((first == _ZERO) | signed)
    offset = starts[at] + signed[at]
    digit = data.take(offset, mode="clip")
    after = data.take(offset + 1, mode="clip")
    # Sure: what starts with 0. or with 1-9, and a lone 0.
    zero_then_more = (digit == _ZERO) & (after != _POINT) & (lengths[at] > 1)
    doubtful[at] = zero_then_more | (digit - np.uint8(_ZERO) > 9)
    # Integers beyond int64, decimals beyond float64.
    doubtful |= np.abs(converted.to_numpy(zero_copy_only=False)) >= _SURE_INT64
    return doubtful


def _is_int64(text: str) -> bool:
    # Python refuses to convert thousands of digits.
    return len(text) <= 20 and -(1 << 63) <= int(text) < 1 << 63


def _matches(cells: pa.StringArray, pattern: str) -> npt.NDArray[np.bool_]:
    matches = pc.match_substring_regex(cells, pattern)
    return np.asarray(matches.to_numpy(zero_copy_only=False), np.bool_)


def _lengths(cells: pa.StringArray) -> npt.NDArray[np.int32]:
    return np.asarray(pc.binary_length(cells).to_numpy(zero_copy_only=False), np.int32)
