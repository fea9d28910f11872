"""Infers the types of columns of text cells, and converts the cells to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntFlag
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms import native
from recordmill.transforms.arrow import U8, array_parts
from recordmill.transforms.cast.text_values import without_missing, without_places


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


# What the cells become, by the feature's dtype. Decimals stay float64 until they are
# encoded.
ARROW_TYPES = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "float32": pa.float64(),
    "string": pa.string(),
}

_DTYPE_OF: dict[int, str] = {
    TypeFlag.BOOLEAN: "bool",
    TypeFlag.INTEGER: "int64",
    TypeFlag.DECIMAL: "float32",
    TypeFlag.INTEGER | TypeFlag.DECIMAL: "float32",
}

LEAST_FLAG = {
    "bool": TypeFlag.BOOLEAN,
    "int64": TypeFlag.INTEGER,
    "float32": TypeFlag.DECIMAL,
}


def column_dtype(flags: int) -> str:
    """Returns the narrowest dtype that holds all cells with these flags.

    >>> column_dtype(TypeFlag.INTEGER | TypeFlag.DECIMAL)
    'float32'
    """
    return _DTYPE_OF.get(flags & ~TypeFlag.MISSING, "string")


def is_text(flags: int) -> bool:
    """Tells whether a column is text, whatever its other cells hold."""
    known = flags & ~TypeFlag.MISSING
    return bool(known) and column_dtype(known) == "string" and not is_huge(known)


def has_missing_words(flags: int) -> bool:
    """Tells whether cells of a column with these flags stand for missing values."""
    return bool(flags & TypeFlag.MISSING) and column_dtype(flags) != "string"


def is_huge(flags: int) -> bool:
    """Tells whether a column is text only because of decimals beyond float32."""
    flags &= ~TypeFlag.MISSING
    others = flags & ~TypeFlag.HUGE
    return others != flags and (not others or column_dtype(others) != "string")


_BYTES = 8  # of a value
_TYPES = {"int64": pa.int64(), "float32": pa.float64()}  # as in `ARROW_TYPES`


def read_plain(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns cells as `cast_cells` does, or None if one of them is not plainly written.

    Args:
      cells: text.
      dtype: of the values.
    """
    kind = _TYPES.get(dtype)
    if kind is None or not len(cells) or cells.offset:
        return None
    valid, offsets, data = cells.buffers()
    if not cells.null_count:
        valid = None
    target = pa.allocate_buffer(len(cells) * _BYTES)
    if not native.loops.numbers(
        offsets, data or b"", valid, dtype == "float32", target
    ):
        return None
    return pa.Array.from_buffers(kind, len(cells), [valid, target], cells.null_count)


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
    if dtype == "int64" and (_bytes_of(cells) == _POINT).any():
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
    text = _bytes_of(cells)
    return len(text) > 0 and int(text.max()) > _NINE


def _bytes_of(cells: pa.StringArray) -> U8:
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


# A call of Arrow costs some microseconds however few cells it gets, and a column takes
# dozens of calls: in a table of 20,000 columns and 60 rows they would be nearly all of the
# time. So where columns are short, those of one type are put end to end, and taken for
# one column. What comes out for each is the same.

_SHORT = 1024  # cells of a column that is put together with others
_JOINED_BYTES = 64 << 20  # of the text that is joined at once


def classify_columns(columns: Sequence[pa.StringArray]) -> list[TypeFlag]:
    """Returns the type flags of each column of text, as `classify` does."""
    flags = [TypeFlag.NOTHING] * len(columns)
    for group in _groups(columns, range(len(columns))):
        if len(group) == 1:
            flags[group[0]] = classify(columns[group[0]])
            continue
        counts = np.array([len(columns[at]) - columns[at].null_count for at in group])
        filled = np.flatnonzero(counts)
        if not len(filled):
            continue
        cells = pa.concat_arrays([columns[at] for at in group]).drop_null()
        # Columns of 3, 0 and 2 cells: those with cells start at 0 and 3.
        starts = (np.cumsum(counts) - counts)[filled]
        sums = np.zeros(len(filled), np.int64)
        cells = without_missing(cells)
        missing = cells.is_null().to_numpy(zero_copy_only=False)
        kinds = {TypeFlag.MISSING: missing, **kinds_of(cells.fill_null(""))}
        text = np.ones(len(cells), np.bool_)
        for flag, found in kinds.items():
            sums |= np.where(np.logical_or.reduceat(found, starts), int(flag), 0)
            text &= ~found
        sums |= np.where(np.logical_or.reduceat(text, starts), int(TypeFlag.TEXT), 0)
        for at, total in zip(filled.tolist(), sums.tolist(), strict=True):
            flags[group[at]] = TypeFlag(total)
    return flags


def convert_columns(
    columns: Sequence[pa.StringArray],
    expected: Sequence[int],
) -> tuple[list[pa.Array], list[int]]:
    """Converts columns to the types that are expected, as `convert` does each.

    Args:
      columns: of text.
      expected: the type flags to assume for each.

    Returns:
      The converted columns, and the type flags that were seen in each.
    """
    converted: list[pa.Array | None] = [None] * len(columns)
    observed = [int(flags & ~TypeFlag.MISSING) for flags in expected]
    known: dict[str, list[int]] = {}  # by the dtype that is expected
    unknown = []
    for at, (cells, flags) in enumerate(zip(columns, expected, strict=True)):
        if len(cells) > _SHORT or cells.null_count == len(cells):
            continue
        dtype = column_dtype(flags)
        if dtype != "string":
            known.setdefault(dtype, []).append(at)
        elif not is_text(flags):
            unknown.append(at)
    for dtype, members in known.items():
        # None: some column needs a wider type, so each is converted for itself.
        groups = _groups(columns, members)
        _convert_joined(columns, groups, partial(cast_cells, dtype=dtype), converted)
    if len(unknown) > 1:
        seen = classify_columns([columns[at] for at in unknown])
        found: dict[str, list[int]] = {}
        for at, flags in zip(unknown, seen, strict=True):
            observed[at] = int(expected[at]) | int(flags)
            found.setdefault(column_dtype(observed[at]), []).append(at)
        for dtype, members in found.items():
            groups = _groups(columns, members)
            _convert_joined(columns, groups, partial(as_dtype, dtype=dtype), converted)
    arrays = []
    for at, (cells, done) in enumerate(zip(columns, converted, strict=True)):
        if done is None:
            done, flag = convert(cells, expected[at])
            observed[at] = int(flag)
        arrays.append(done)
    return arrays, observed


def _convert_joined(
    columns: Sequence[pa.StringArray],
    groups: Sequence[Sequence[int]],
    convert_cells: Callable[[pa.StringArray], pa.Array | None],
    converted: list[pa.Array | None],
) -> None:
    """Converts columns put end to end; leaves out single ones and what does not fit."""
    for group in groups:
        if len(group) == 1:
            continue
        joined = convert_cells(pa.concat_arrays([columns[at] for at in group]))
        if joined is None:
            continue
        start = 0
        for at in group:
            size = len(columns[at])
            converted[at] = joined.slice(start, size)
            start += size


def _groups(
    columns: Sequence[pa.StringArray],
    members: Sequence[int],
) -> list[list[int]]:
    """Groups columns to be joined; a long one is alone."""
    groups: list[list[int]] = []
    short = [at for at in members if len(columns[at]) <= _SHORT]
    # As one array: it takes long to ask each column.
    if (
        short
        and pa.chunked_array([columns[at] for at in short]).nbytes <= _JOINED_BYTES
    ):
        return [short, *([at] for at in members if len(columns[at]) > _SHORT)]
    is_full = True
    group_bytes = 0
    for at in members:
        is_long = len(columns[at]) > _SHORT
        size = columns[at].nbytes
        if is_full or is_long or group_bytes + size > _JOINED_BYTES:
            groups.append([])
            group_bytes = 0
        groups[-1].append(at)
        group_bytes += size
        is_full = is_long
    return groups
