"""Infers the type of a column of text cells, and converts the cells to it.

    integer, boolean -> int64_list    decimal -> float_list    the rest -> bytes_list

The type flags of a column are those of all its cells, merged by OR, so the order in
which ranges are read cannot matter: ["1", "2.0"] has INTEGER, ["2.5"] has DECIMAL, both
together have INTEGER | DECIMAL, which is float32. A whole number is an integer also
where it is written as a decimal (2.0, as pandas writes integers with gaps), but not with
an exponent (2e3), which is how floats are written. What would lose something stays text:
leading zeros, a leading plus, integers beyond int64, decimals beyond float32 (they would
become infinity), booleans among numbers.

Blanks around a value, and words that stand for a missing one (NA, null), count for
nothing where all other cells are numbers or booleans; in a column of text all cells stay
as they are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import U8, array_parts
from recordmill.transforms.cast.text_values import without_missing, without_places
from recordmill.transforms.sources.plain_numbers import read_plain
from recordmill.transforms.sources.type_flags import (
    ARROW_TYPES,
    LEAST_FLAG,
    TypeFlag,
    column_dtype,
    is_text,
)

# The same language as the fast checks below; these decide where they cannot.
_BOOLEAN_TEXT = r"^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"  # (?i:s) is also ſ
_INTEGER_TEXT = r"^(0|-?[1-9][0-9]*)(\.0*)?$"
_DECIMAL_TEXT = (
    r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
    r"|^-?(?i:inf|infinity)$|^(?i:nan)$"
)
_INFINITY_TEXT = r"^-?(?i:inf|infinity)$"
_SURE_INT64_DIGITS = 18
_SURE_INT64 = 1e17  # below, a number has at most that many digits before its point
_SURE_WHOLE = 16  # characters: float64 tells so few digits from the next whole number
_EXACT_WHOLE = 1 << 53  # below, float64 holds each whole number
BEYOND_FLOAT32 = 3.4028235677973366e38  # what lies at or above rounds to infinity


def cells_of(table: pa.Table, name: str) -> pa.StringArray:
    """Returns a column of a table as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def classify(cells: pa.StringArray) -> TypeFlag:
    """Returns the type flags of all cells. Slow: it uses regular expressions."""
    given = len(cells) - cells.null_count
    cells = without_missing(cells).drop_null()
    flags = TypeFlag.MISSING if len(cells) < given else TypeFlag.NOTHING
    if len(cells) == 0:
        return flags
    text = np.ones(len(cells), np.bool_)
    for flag, found in kinds_of(cells).items():
        if found.any():
            flags |= flag
            text &= ~found
    return flags | TypeFlag.TEXT if text.any() else flags


_Mask = npt.NDArray[np.bool_]


def kinds_of(cells: pa.StringArray) -> dict[TypeFlag, _Mask]:
    """Returns which cells each flag stands for; those of none are text.

    Args:
      cells: at least one, no null, and no blanks around them.
    """
    boolean = _matches(cells, _BOOLEAN_TEXT)
    integer = _matches(cells, _INTEGER_TEXT)
    decimal = _matches(cells, _DECIMAL_TEXT)
    long = np.flatnonzero(integer & (_lengths(cells) > _SURE_INT64_DIGITS))
    if len(long):
        whole = without_places(cells.take(pa.array(long)))
        for row in np.flatnonzero(_lengths(whole) > _SURE_INT64_DIGITS).tolist():
            # Only integers of 19 digits or more.
            if not _is_int64(whole[row].as_py()):
                integer[long[row]] = False
                # With a point it may still be a float; without one it stays text.
                decimal[long[row]] = whole[row] != cells[int(long[row])]
    decimal &= ~integer
    at = np.flatnonzero(decimal)
    huge = np.zeros(len(cells), np.bool_)
    size = np.abs(cells.take(pa.array(at)).cast(pa.float64()).to_numpy())
    beyond = at[size >= BEYOND_FLOAT32]
    if len(beyond):
        decimal[beyond] = _matches(cells.take(pa.array(beyond)), _INFINITY_TEXT)
        huge[at[np.isfinite(size) & (size >= BEYOND_FLOAT32)]] = True
    return {
        TypeFlag.BOOLEAN: boolean,
        TypeFlag.INTEGER: integer,
        TypeFlag.DECIMAL: decimal,
        TypeFlag.HUGE: huge,
    }


def convert(cells: pa.StringArray, expected: int) -> tuple[pa.Array, TypeFlag]:
    """Converts a column to the type that `expected` stands for, if it fits.

    Returns:
      The converted cells and what was seen; where that asks for another type than
      the one expected, the cells are converted to the type that holds both.
    """
    dtype = column_dtype(expected)
    if cells.null_count == len(cells):
        return cells.cast(ARROW_TYPES[dtype]), TypeFlag.NOTHING
    if is_text(expected):
        return cells, TypeFlag.TEXT  # whatever they hold
    if dtype != "string":
        converted = cast_cells(cells, dtype)
        known = TypeFlag(expected) & ~TypeFlag.MISSING
        if converted is not None:
            return converted, known
        kept = without_missing(cells)
        found = kept.null_count > cells.null_count
        if kept.null_count == len(kept):
            return kept.cast(ARROW_TYPES[dtype]), TypeFlag.MISSING
        converted = _cast_present(kept, dtype)
        if converted is not None:
            return converted, known | TypeFlag.MISSING if found else known
    seen = TypeFlag(expected) | classify(cells)
    wider = column_dtype(seen)
    return as_dtype(cells, wider), seen


def convert_to_dtype(cells: pa.StringArray, dtype: str) -> tuple[pa.Array, _Mask]:
    """Converts a column to a given dtype, whatever its cells hold.

    Returns:
      The cells, null where they are not valid for the dtype, and which those are.
    """
    none = np.zeros(len(cells), np.bool_)
    if dtype == "string":
        return cells, none
    converted = _cast_present(cells, dtype)
    if converted is not None:
        return converted, none
    cells = without_missing(cells)
    converted = _cast_present(cells, dtype)
    if converted is not None:
        return converted, none
    present = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
    kinds = kinds_of(cells.drop_null())
    fits = kinds[LEAST_FLAG[dtype]]
    if dtype == "float32":
        fits = fits | kinds[TypeFlag.INTEGER]
    wrong = none.copy()
    wrong[present[~fits]] = True
    return as_dtype(pc.if_else(pa.array(wrong), None, cells), dtype), wrong


def _cast_present(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns the cells as that dtype as `cast_cells` does, also if all are null."""
    if cells.null_count == len(cells):
        return cells.cast(ARROW_TYPES[dtype])
    return cast_cells(cells, dtype)


def as_dtype(cells: pa.StringArray, dtype: str) -> pa.Array:
    """Returns the cells as a dtype that all of them are valid for."""
    if dtype != "string":
        cells = without_missing(cells)
    if dtype == "int64":
        cells = without_places(cells)
    return cells.cast(ARROW_TYPES[dtype])


def cast_cells(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns the cells as that dtype, or None if some cell is not valid for it.

    Arrow's casts accept a little more than these types (007, 0x10, +5, 1e400, 1 as a
    boolean), so suspicious cells are checked once more, and only they.
    """
    if (plain := read_plain(cells, dtype)) is not None:
        return plain
    suspects = None
    if dtype == "int64" and (bytes_of(cells) == _POINT).any():
        converted, suspects = _cast_whole(cells)  # Arrow's would take ten times as long
    else:
        converted = _arrow_cast(cells, dtype)
    if converted is None:
        return None
    if suspects is None:
        suspects = _suspects(cells, dtype, converted)
    if not suspects.any():
        return converted
    seen = classify(cells.filter(pa.array(suspects)))
    return converted if column_dtype(seen | LEAST_FLAG[dtype]) == dtype else None


def _cast_whole(cells: pa.StringArray) -> tuple[pa.Array | None, _Mask | None]:
    """Casts integers of which some are written as decimals: ["2", "3.0"].

    Returns:
      The integers, or None if not all cells are, and which of them are suspicious.
    """
    floats = None
    longest = pc.max(pc.binary_length(cells)).as_py()
    if longest <= _SURE_WHOLE and not _has_letters(cells):
        floats = _arrow_cast(cells, "float32")
    if floats is not None:
        values = floats.fill_null(0).to_numpy()
        if (np.rint(values) != values).any():
            return None, None
        if (np.abs(values) < _EXACT_WHOLE).all():
            suspects = _suspects(cells, "float32", floats)
            return floats.cast(pa.int64()), suspects | (
                np.signbit(values) & (values == 0)
            )
    whole = without_places(cells)
    converted = _arrow_cast(whole, "int64")
    return converted, converted and _suspects(whole, "int64", converted)


def _arrow_cast(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    try:
        return cells.cast(ARROW_TYPES[dtype])
    except pa.ArrowInvalid:
        return None


def _has_letters(cells: pa.StringArray) -> bool:
    """Tells whether a byte behind "9" is in the cells, as in 1e5, nan and 0x10."""
    text = bytes_of(cells)
    return len(text) > 0 and int(text.max()) > _NINE


def bytes_of(cells: pa.StringArray) -> U8:
    """Returns the bytes of all cells, end to end."""
    offsets, data = array_parts(cells)
    return data[offsets[0] : offsets[-1]]


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
