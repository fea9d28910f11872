"""Casts text cells to numbers, booleans and times.

A cast returns an Arrow array and the reasons of invalid rows. Invalid values are null in
the array; a missing value is a null without a reason.
"""

from __future__ import annotations

import reprlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms import native
from recordmill.transforms.arrow import I64, U8, array_parts, value_lengths
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    error_mask,
    flag_invalid,
    float_range_reason,
    integer_range_reason,
    merge_errors,
    narrow_floats,
)

_INTEGERS = (f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
ARROW_TYPES: dict[str, pa.DataType] = {
    name: pa.from_numpy_dtype(name)
    for name in ("bool", *_INTEGERS, "float16", "float32", "float64")
} | {"string": pa.string(), "bytes": pa.binary()}

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 60


class CastColumn(NamedTuple):
    """A column of feature values."""

    array: pa.Array  # null if a value is missing or invalid
    errors: RowErrors  # the reason for each invalid one

    def with_earlier_errors(self, errors: RowErrors) -> CastColumn:
        """Returns the column with the errors of an earlier step, which have priority."""
        return CastColumn(self.array, merge_errors(errors, self.errors))


def with_nulls(array: pa.Array, wrong: Mask) -> pa.Array:
    """Returns the array with null for each value that `wrong` marks."""
    if not wrong.any():
        return array
    return pc.if_else(pa.array(wrong), pa.scalar(None, array.type), array)


def valid_mask(array: pa.Array) -> Mask:
    """Returns a mask of the values that are not null."""
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def shorten(value: Any) -> str:
    """Returns the text of a value for an error message, shortened if it is long."""
    return _shown.repr(value)


_LONG_CELL = 1 << 16
_SHOWN_BYTES = 1 << 10  # bytes of each end of a long cell: more than a message shows


def shorten_cell(cells: pa.StringArray, row: int) -> str:
    """Returns the text of a cell for an error message; copies only a long cell's ends."""
    offsets, data = array_parts(cells)
    cell = data[offsets[row] : offsets[row + 1]]
    if len(cell) > _LONG_CELL:
        cell = np.concatenate([cell[:_SHOWN_BYTES], cell[-_SHOWN_BYTES:]])
    return shorten(cell.tobytes().decode(errors="ignore"))


#                declared                                strict
#     integer    [+-] digits [. zeros]: 007 is 7         no plus, no leading zeros, no -0
#     float      [+-] digits . digits [e+-digits],       the same within float32; integers
#                inf, infinity, nan                      without a point are int64
#     boolean    true, false, 1, 0                       true, false
#
# The strict rule applies to inferred types: a column is text if a number would be written
# differently than in its cell. White space (ASCII) around a value is ignored. A cell of
# only white space is a missing value, as is one of MISSING_WORDS. 1.5, 1e3, 0x10 and
# 1_000 are not integers. Arrow casts whole columns. Only cells that Arrow might read by
# other rules (0x10, nan(1), 1e400) are matched with the patterns. All cells are matched
# only if Arrow cannot cast the column.

MAX_INT64 = (1 << 63) - 1

# The missing values of pandas, except NaN in upper or lower case, which is a float.
MISSING_WORDS = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "None", "n/a", "null",
)  # fmt: skip
_MISSING_WORDS = pa.array(MISSING_WORDS)

# Patterns by whether the rule is strict. Not (?i:s), which also matches ſ.
_BOOLEAN = (
    r"^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[01])$",
    r"^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$",
)
_INTEGER = (r"^[+-]?[0-9]+(?:\.0*)?$", r"^(?:0|-?[1-9][0-9]*)(?:\.0*)?$")
_FLOAT = (
    r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    r"|^[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])$",
    r"^-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    r"|^-?(?i:inf|infinity)$|^(?i:nan)$",
)
_WHOLE_DECIMAL = r"^([+-]?[0-9]+)\.0*$"
_LONG_INTEGER = r"^-?[0-9]{19,}$"
_INFINITY = r"^[+-]?[iI]"
_SURE_DIGITS = 18  # an integer of at most this many characters is within int64
_SURE_INT64 = 1e17  # a smaller number has at most that many digits before its point
_SURE_WHOLE = 16  # float64 distinguishes decimals of so few characters from integers
_EXACT_WHOLE = 1 << 53  # float64 can represent each smaller whole number
BEYOND_FLOAT32 = 3.4028235677973366e38  # numbers from here on round to infinity
_SHOWN_DIGITS = 40
_ONE, _NINE, _ZERO, _MINUS, _POINT, _EXPONENT = (ord(char) for char in "190-.e")


def parse_values(cells: pa.StringArray, dtype: str) -> CastColumn:
    """Parses text as values of a NumPy dtype: floats are rounded to the nearest."""
    is_float = dtype.startswith("float")
    wide = read_column(cells, "float64" if is_float else dtype)
    if wide is not None:
        return cast_floats(wide, dtype) if is_float else CastColumn(wide, {})
    cells = without_missing(cells)
    values, written = match_values(cells, "float64" if is_float else dtype)
    hint = " (true, false, 1 or 0)" if dtype == "bool" else ""
    errors = flag_invalid(
        valid_mask(cells) & ~written,
        lambda i: f"{shorten(cells[i].as_py())} is not a valid {dtype}{hint}",
    )

    def beyond(row: int) -> str:
        text = cells[row].as_py()
        text = text if is_float else text.partition(".")[0]
        if len(text) > _SHOWN_DIGITS:
            text = f"{text[:_SHOWN_DIGITS]}..."
        return (
            float_range_reason(text, "float64")
            if is_float
            else integer_range_reason(text, dtype)
        )

    errors = merge_errors(errors, flag_invalid(written & ~valid_mask(values), beyond))
    if not is_float:
        return CastColumn(values, errors)
    return cast_floats(values, dtype).with_earlier_errors(errors)


def read_column(
    cells: pa.StringArray, dtype: str, *, strict: bool = False
) -> pa.Array | None:
    """Returns all cells as a dtype, or None if one of them is not valid for it.

    The dtype is bool, an integer or float64; `strict` selects the strict rule above.
    """
    if (values := read_plain(cells, dtype)) is not None:
        return values
    if long_text_mask(cells).any():  # Arrow's error would repeat one
        return None
    if (values := _cast_all(cells, dtype, strict)) is not None:
        return values
    return _cast_all(without_missing(cells), dtype, strict)


_PIECE_BYTES = 1 << 20
_IS_OF_TEXT = np.ones(256, np.bool_)  # bytes that occur only in text
_IS_OF_TEXT[list(b" \t\n\v\f\r0123456789+-.truefalsinityTRUEFALSINITY")] = False
_IS_OF_TEXT[list("".join(MISSING_WORDS).encode())] = False


def long_text_mask(cells: pa.StringArray) -> Mask:
    """Returns a mask of the long cells that are text by their bytes; copies none.

    The mask excludes a long cell of digits, or of a word between blanks.
    """
    is_long: Mask = value_lengths(cells) > _LONG_CELL
    if not is_long.any():
        return is_long
    offsets, data = array_parts(cells)
    for cell in np.flatnonzero(is_long).tolist():
        start, end = int(offsets[cell]), int(offsets[cell + 1])
        is_long[cell] = any(
            _IS_OF_TEXT[data[at : min(at + _PIECE_BYTES, end)]].any()
            for at in range(start, end, _PIECE_BYTES)
        )
    return is_long


def match_values(
    cells: pa.StringArray, dtype: str, *, strict: bool = False
) -> tuple[pa.Array, Mask]:
    """Matches all (trimmed) cells with patterns, which is slow; see `read_column`.

    Returns the values, null if a cell is not valid; and a mask of the cells that match
    the pattern, including numbers that are too large for the dtype.
    """
    pattern = {"bool": _BOOLEAN, "float64": _FLOAT}.get(dtype, _INTEGER)[strict]
    written = match_cells(cells, pattern)
    if not written.any():
        return pa.nulls(len(cells), ARROW_TYPES[dtype]), written
    if dtype not in ("bool", "float64"):
        return _read_integers(cells, dtype, written), written
    values = with_nulls(cells, ~written).cast(ARROW_TYPES[dtype])
    if dtype == "bool":
        return values, written
    sizes = np.abs(values.to_numpy(zero_copy_only=False))
    wrong: Mask = np.isinf(sizes)
    if wrong.any():
        wrong &= ~match_cells(cells, _INFINITY)
    if strict:
        wrong |= np.isfinite(sizes) & (sizes >= BEYOND_FLOAT32)
        long = np.flatnonzero(written & (_lengths(cells) > _SURE_DIGITS))
        long = long[match_cells(cells.take(pa.array(long)), _LONG_INTEGER)]
        integers, _ = match_values(cells.take(pa.array(long)), "int64", strict=True)
        wrong[long] |= ~valid_mask(integers)
    return with_nulls(values, wrong), written


def _read_integers(cells: pa.StringArray, dtype: str, written: Mask) -> pa.Array:
    limits = np.iinfo(dtype)
    values = np.zeros(len(cells), dtype)
    fits = np.zeros(len(cells), np.bool_)
    rows = np.flatnonzero(written)
    whole = pc.utf8_ltrim(without_places(cells.take(pa.array(rows))), characters="+")
    if (quick := _cast(whole, ARROW_TYPES[dtype])) is not None:
        values[rows], fits[rows] = quick.to_numpy(), True
        return pa.array(values, mask=~fits)
    long = _lengths(whole) > _SURE_DIGITS
    short = whole.filter(pa.array(~long)).cast(pa.int64()).to_numpy()
    inside = (short >= limits.min) & (short <= min(limits.max, MAX_INT64))
    row_indices = rows[~long][inside]
    values[row_indices], fits[row_indices] = short[inside], True
    # Row by row only here: integers of 19 digits or more.
    for row in np.flatnonzero(long).tolist():
        text = whole[row].as_py()
        digits = text.lstrip("-").lstrip("0") or "0"
        # Python does not convert thousands of digits.
        number = int(digits) if len(digits) <= 20 else 1 << 70
        number = -number if text.startswith("-") else number
        if limits.min <= number <= limits.max:
            values[rows[row]], fits[rows[row]] = number, True
    return pa.array(values, mask=~fits)


def _cast_all(cells: pa.StringArray, dtype: str, strict: bool) -> pa.Array | None:
    """Casts the cells by Arrow; returns None if one of them is not valid."""
    if (values := read_plain(cells, dtype)) is not None:
        return values
    if cells.null_count == len(cells):
        return cells.cast(ARROW_TYPES[dtype])
    if dtype == "bool":
        if strict and (_lengths(cells) == 1).any():
            return None  # 0 and 1
        return _cast(cells, pa.bool_())
    text = _bytes_of(cells)
    if dtype != "float64" and (text == _POINT).any():
        return _cast_decimals(cells, dtype, strict, has_letters=text.max() > _NINE)
    values = _cast(cells, ARROW_TYPES[dtype])
    if values is None:
        return None
    is_float = dtype == "float64"
    doubtful = np.zeros(len(cells), np.bool_)
    # Only letters after these can occur in nan(1) and 0x10.
    if strict or text.max() > (_EXPONENT if is_float else _NINE):
        doubtful = _doubtful_cells(cells)
    if is_float:  # integers beyond int64, decimals beyond float64
        doubtful |= np.abs(values.to_numpy(zero_copy_only=False)) >= _SURE_INT64
    return _check_doubtful(values, cells, dtype, doubtful, strict)


def _cast_decimals(
    cells: pa.StringArray, dtype: str, strict: bool, *, has_letters: bool
) -> pa.Array | None:
    """Casts integers, some of which are written as decimals: ["2", "3.0"]."""
    if not has_letters and pc.max(pc.binary_length(cells)).as_py() <= _SURE_WHOLE:
        floats = _cast(cells, pa.float64())
        values = None if floats is None else floats.fill_null(0).to_numpy()
        if values is None or (np.rint(values) != values).any():
            return None
        if (np.abs(values) < _EXACT_WHOLE).all():
            integers = _cast(floats, ARROW_TYPES[dtype])
            if integers is None:
                return None
            doubtful = _doubtful_cells(cells) | (np.signbit(values) & (values == 0))
            return _check_doubtful(integers, cells, dtype, doubtful, strict)
    whole = without_places(cells)  # takes ten times as long
    has_places = (_bytes_of(whole) == _POINT).any()
    return None if has_places else _cast_all(whole, dtype, strict)


def _check_doubtful(
    values: pa.Array, cells: pa.StringArray, dtype: str, doubtful: Mask, strict: bool
) -> pa.Array | None:
    """Returns the values if the doubtful ones among their cells are valid."""
    if doubtful.any():
        few, _ = match_values(cells.filter(pa.array(doubtful)), dtype, strict=strict)
        if few.null_count:
            return None
    return values


def _doubtful_cells(cells: pa.StringArray) -> Mask:
    """Returns a mask of the cells that Arrow may have read by other rules.

    Certain are cells that begin with 1 to 9, or with 0 and a point, possibly after a
    minus, and "0". In "12", "0", "0.5", "-5", "007", "-07" and "nan(1)", these are the
    first four. "-0" is not certain.
    """
    offsets, data = array_parts(cells)
    first = data.take(offsets[:-1], mode="clip")
    doubtful: Mask = first - np.uint8(_ONE) > _NINE - _ONE
    at = np.flatnonzero(doubtful)
    begin = offsets[at] + (first[at] == _MINUS)
    digit = data.take(begin, mode="clip")
    next_character = data.take(begin + 1, mode="clip")
    lone = offsets[at + 1] - offsets[at] == 1
    is_zero = (digit == _ZERO) & ((next_character == _POINT) | lone)
    doubtful[at] = (digit - np.uint8(_ONE) > _NINE - _ONE) & ~is_zero
    return doubtful & valid_mask(cells) if cells.null_count else doubtful


def read_plain(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns int64 or float64 cells if all are plainly written, such as -12 and 3.50."""
    if dtype not in ("int64", "float64") or not len(cells) or cells.offset:
        return None
    valid, offsets, data = cells.buffers()
    if not cells.null_count:
        valid = None
    target = pa.allocate_buffer(len(cells) * 8)
    if not native.loops.parse_numbers(
        offsets, data or b"", valid, dtype == "float64", target
    ):
        return None
    return pa.Array.from_buffers(
        ARROW_TYPES[dtype], len(cells), [valid, target], cells.null_count
    )


def cast_floats(array: pa.Array, dtype: str) -> CastColumn:
    """Casts floats to another float dtype; rounding is valid, overflow is an error."""
    if array.type == ARROW_TYPES[dtype]:
        return CastColumn(array, {})
    values, errors = narrow_floats(array.to_numpy(zero_copy_only=False), dtype)
    missing = ~valid_mask(array) | error_mask(errors, len(array))
    return CastColumn(pa.array(values, mask=missing), errors)


def trim(cells: pa.StringArray) -> pa.StringArray:
    """Trims white space around the cells; empty cells become missing."""
    cells = pc.ascii_trim_whitespace(cells)
    return with_nulls(cells, _lengths(cells) == 0)


def without_missing(cells: pa.StringArray) -> pa.StringArray:
    """Trims white space around the cells; empty cells and MISSING_WORDS are missing."""
    cells = trim(cells)
    words = np.asarray(pc.is_in(cells, _MISSING_WORDS).to_numpy(zero_copy_only=False))
    return with_nulls(cells, words) if words.any() else cells


def without_places(cells: pa.StringArray) -> pa.StringArray:
    """Removes the point and the zeros from whole numbers written as decimals.

    ["2", "3.0", "-4.", "2.5"] becomes ["2", "3", "-4", "2.5"].
    """
    return pc.replace_substring_regex(cells, _WHOLE_DECIMAL, r"\1")


def match_cells(cells: pa.StringArray, pattern: str) -> Mask:
    """Returns a mask of the cells that match a regular expression (RE2); not of nulls."""
    mask = pc.match_substring_regex(cells, pattern).fill_null(False)
    return np.asarray(mask.to_numpy(zero_copy_only=False), np.bool_)


def _cast(cells: pa.Array, target_type: pa.DataType) -> pa.Array | None:
    try:
        return cells.cast(target_type)
    except pa.ArrowInvalid:
        return None


def _bytes_of(cells: pa.StringArray) -> U8:
    offsets, data = array_parts(cells)
    return data[offsets[0] : offsets[-1]]


def _lengths(cells: pa.StringArray) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Returns the size of each cell in bytes, -1 for a null."""
    lengths = pc.binary_length(cells).fill_null(-1)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int32)


#     2024-01-31                     midnight, counted from 1970-01-01
#     2024-01-31T10:20:30.123Z       UTC without a zone; up to nine decimals
#     2024-01-31 10:20+02:00         a space for the T; seconds, minutes may be left out
#     10:20:30.5                     a time of day, counted from midnight
#
# No time is rounded: a time that the unit cannot represent is rejected, such as 10:20 in
# days.

NANOSECONDS = {
    "d": 86_400_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}

_CLOCK = (
    r"(?P<hour>[0-9]{2})(?::(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?)?"
)
_DAY = r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
_ZONE = r"(?:Z|(?P<sign>[+-])(?P<zone_hour>[0-9]{2})(?::?(?P<zone_minute>[0-9]{2}))?)"
_DATE_TIME = rf"^{_DAY}(?:[T ]{_CLOCK}{_ZONE}?)?$"
_TIME_OF_DAY = rf"^{_CLOCK}$"
_MIN_INT64_COUNT, _MAX_INT64_COUNT = -(1 << 63), (1 << 63) - 1


def parse_times(cells: pa.StringArray, unit: str) -> CastColumn:
    """Parses ISO 8601 text as int64 counts of the unit (d, s, ms, us, ns)."""
    targets = [pa.timestamp(unit), pa.timestamp(unit, "UTC")] if unit != "d" else []
    # Arrow can parse cells of one form with the unit's precision.
    for target in targets or [pa.date32()]:
        if (times := _cast(cells, target)) is not None:
            whole = times if targets else times.cast(pa.int32())
            return CastColumn(whole.cast(pa.int64()), {})
    return read_times(trim(cells), unit)


def read_times(cells: pa.StringArray, unit: str) -> CastColumn:
    """Parses cells of all forms; 1 million per second."""
    dated = match_cells(cells, _DATE_TIME)
    clock = match_cells(cells, _TIME_OF_DAY) & (
        pc.utf8_length(cells).to_numpy(False) > 2
    )
    seconds = np.zeros(len(cells), np.int64)
    fraction = np.zeros(len(cells), np.int64)
    real = np.zeros(len(cells), np.bool_)
    for written, pattern in ((dated, _DATE_TIME), (clock, _TIME_OF_DAY)):
        row_indices = np.flatnonzero(written)
        if len(row_indices):
            parts = pc.extract_regex(cells.take(pa.array(row_indices)), pattern)
            seconds[row_indices], fraction[row_indices], real[row_indices] = (
                _count_seconds(parts)
            )
    counts, exact, inside = _count_units(seconds, fraction, unit)
    valid = real & exact & inside

    def reason(row: int) -> str:
        text = shorten(cells[row].as_py())
        if not real[row]:
            return (
                f"{text} is not a date or time in ISO 8601 (like 2024-01-31 or "
                "2024-01-31T10:20:30Z)"
            )
        return inexact_reason(text, unit, is_exact=bool(exact[row]))

    errors = flag_invalid(valid_mask(cells) & ~valid, reason)
    return CastColumn(with_nulls(pa.array(counts), ~valid), errors)


def inexact_reason(text: str, unit: str, *, is_exact: bool) -> str:
    """Returns the reason why a time cannot be stored in a unit: precision or size."""
    problem = "beyond int64 in" if is_exact else "not a whole number of"
    return f"{text} is {problem} {unit}"


def _count_seconds(parts: pa.StructArray) -> tuple[I64, I64, Mask]:
    """Returns seconds, additional nanoseconds, and a mask of the times that exist."""
    names = [field.name for field in parts.type]

    def number(name: str) -> I64:
        if name not in names:
            return np.zeros(len(parts), np.int64)
        digits = pc.struct_field(parts, name)
        if name == "fraction":
            digits = pc.utf8_rpad(digits, 9, "0")
        # A missing optional part is an empty text.
        digits = pc.if_else(pc.equal(digits, ""), "0", digits)
        return np.asarray(digits.cast(pa.int64()).to_numpy(), np.int64)

    real = (number("hour") < 24) & (number("minute") < 60) & (number("second") < 60)
    seconds = number("hour") * 3600 + number("minute") * 60 + number("second")
    if "year" in names:
        month, day = number("month"), number("day")
        real &= (month >= 1) & (month <= 12)
        months = (number("year") - 1970) * 12 + np.clip(month, 1, 12) - 1
        first = _first_day(months)
        real &= (day >= 1) & (day <= _first_day(months + 1) - first)
        seconds += (first + day - 1) * 86_400
        zone = number("zone_hour") * 3600 + number("zone_minute") * 60
        real &= (number("zone_hour") < 24) & (number("zone_minute") < 60)
        ahead = pc.equal(pc.struct_field(parts, "sign"), "+").to_numpy(False)
        seconds -= np.where(ahead, zone, -zone)
    return seconds, number("fraction"), real


def _first_day(months: I64) -> I64:
    """Returns the days from 1970-01-01 to the first of a month (months from then)."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


def _count_units(seconds: I64, fraction: I64, unit: str) -> tuple[I64, Mask, Mask]:
    """Returns (counts of the unit, mask of exact ones, mask of those within int64)."""
    if unit == "d":
        counts, exact, inside = rescale(seconds, "s", unit)
        return counts, exact & (fraction == 0), inside
    # Before 1970, count from the next second, with a fraction of -1 to 0 seconds.
    size, is_negative = NANOSECONDS[unit], seconds < 0
    counts, _, inside = rescale(seconds + is_negative, "s", unit)
    fraction_count = fraction // size - is_negative * (NANOSECONDS["s"] // size)
    total = counts + fraction_count  # outside, this wraps round
    inside &= (total >= counts) == (fraction_count >= 0)
    return total, fraction % size == 0, inside


def rescale(counts: I64, unit: str, target_unit: str) -> tuple[I64, Mask, Mask]:
    """Converts counts of one unit to another; returns the same as `_count_units`."""
    size, target_size = NANOSECONDS[unit], NANOSECONDS[target_unit]
    if size < target_size:
        ratio = target_size // size
        return counts // ratio, counts % ratio == 0, np.ones(len(counts), np.bool_)
    ratio = size // target_size
    inside = (counts >= -(-_MIN_INT64_COUNT // ratio)) & (
        counts <= _MAX_INT64_COUNT // ratio
    )
    return counts * ratio, np.ones(len(counts), np.bool_), inside


_SWAPPED = np.arange(256, dtype=np.uint8)
_SWAPPED[list(b",.")] = list(b".,")
_WITH_PLACES = r"^[ \t]*[+-]?[0-9]*[,.][0-9]*(?:[eE][+-]?[0-9]+)?[ \t]*$"


def swap_points(cells: pa.StringArray) -> pa.StringArray:
    """Returns the cells with a point for each comma, and a comma for each point.

    So "1,5" becomes a number, and "1.5", which is not a number with a decimal comma,
    becomes text.
    """
    offsets, data = array_parts(cells)
    start, stop = int(offsets[0]), int(offsets[-1])
    text = _SWAPPED[data[start:stop]]
    ends = pa.py_buffer(np.asarray(offsets - start, np.int32))
    mask = pc.is_valid(cells).buffers()[1] if cells.null_count else None
    return pa.StringArray.from_buffers(len(cells), ends, pa.py_buffer(text), mask)


def swap_in_numbers(cells: pa.StringArray) -> pa.StringArray:
    """Returns the cells with points and commas swapped in decimal numbers."""
    are_numbers = pa.array(match_cells(cells, _WITH_PLACES))
    return pc.if_else(are_numbers, swap_points(cells), cells)
