"""Casts cells of text to numbers, booleans and times.

A cast returns an Arrow array and the invalid rows: invalid values are nulls in the array;
a missing value is a null without a reason.
"""

from __future__ import annotations

import reprlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import I64, array_parts
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    beyond_float,
    beyond_integer,
    flag_invalid,
    mask_of,
    merge,
    narrow_floats,
)

ARROW_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 60


class CastResult(NamedTuple):
    """A column of feature values.

    Attributes:
      array: the values, null where one is missing or invalid.
      errors: the reason for each invalid one.
    """

    array: pa.Array
    errors: RowErrors


def without(array: pa.Array, wrong: Mask) -> pa.Array:
    """Returns the array with nulls where `wrong` is set."""
    if not wrong.any():
        return array
    return pc.if_else(pa.array(wrong), pa.scalar(None, array.type), array)


def present(array: pa.Array) -> Mask:
    """Returns which values are not null."""
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def shown(value: Any) -> str:
    """Returns a value as an error shows it, cut short if it is long."""
    return _shown.repr(value)


#     integer   [+-] digits [. zeros]           leading zeros count for nothing: 007 is 7
#     float     [+-] digits . digits [e+-digits]    also inf, infinity, nan
#     boolean   true, false, 1, 0               letters in upper or lower case
#
# White space (ASCII) around a value is not part of it, and a cell of nothing else is a
# missing value, as is one of MISSING_WORDS. 1.5, 1e3, 0x10 and 1_000 are not integers. Arrow casts whole columns; only
# where it cannot, or takes what is not in this list, are single cells looked at.

MAX_INT64 = (1 << 63) - 1

# What pandas takes for a missing value, but NaN in letters of any case: that is a float.
MISSING_WORDS = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "1.#IND", "1.#QNAN", "<NA>",
    "N/A", "NA", "NULL", "None", "n/a", "null",
)  # fmt: skip
_MISSING_WORDS = pa.array(MISSING_WORDS)

_BOOLEAN = r"^(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[01])$"  # (?i:s) is also ſ
_INTEGER = r"^[+-]?[0-9]+$"
_WHOLE_DECIMAL = r"^([+-]?[0-9]+)\.0*$"
_FLOAT = (
    r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
    r"|^[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|[nN][aA][nN])$"
)
_INFINITY = r"^[+-]?[iI]"
_SURE_DIGITS = 18  # with so many characters or fewer an integer is within int64
_SHOWN_DIGITS = 40


def parse_booleans(cells: pa.StringArray) -> CastResult:
    """Parses text as booleans."""
    quick = _cast(cells, pa.bool_())
    if quick is not None:
        return CastResult(quick, {})
    cells = without_missing(cells)
    wrong = present(cells) & ~matches(cells, _BOOLEAN)
    errors = flag_invalid(
        wrong,
        lambda i: (
            f"{shown(cells[i].as_py())} is not a valid bool (true, false, 1 or 0)"
        ),
    )
    return CastResult(without(cells, wrong).cast(pa.bool_()), errors)


def parse_integers(cells: pa.StringArray, dtype: str) -> CastResult:
    """Parses text as integers of a NumPy dtype."""
    quick = _quick_integers(cells, dtype)
    if quick is None:
        cells = without_missing(cells)
        quick = _quick_integers(cells, dtype)
    texts = cells
    if quick is None and _has_byte(cells, b"."):
        cells = without_places(cells)
        quick = _quick_integers(cells, dtype)
    if quick is not None:
        return CastResult(quick, {})
    written = matches(cells, _INTEGER)
    errors = flag_invalid(
        present(cells) & ~written,
        lambda i: f"{shown(texts[i].as_py())} is not a valid {dtype}",
    )
    limits = np.iinfo(dtype)
    values = np.zeros(len(cells), dtype)
    fits = np.zeros(len(cells), np.bool_)
    long = written & (_lengths(cells) > _SURE_DIGITS)
    where = np.flatnonzero(written & ~long)
    texts = pc.utf8_ltrim(cells.take(pa.array(where)), characters="+")
    short = texts.cast(pa.int64()).to_numpy()
    inside = (short >= limits.min) & (short <= min(limits.max, MAX_INT64))
    values[where[inside]] = short[inside]
    fits[where[inside]] = True
    # Row by row only here: integers of 19 digits or more in a column that Arrow
    # cannot cast, because some other cell is wrong.
    for row in np.flatnonzero(long).tolist():
        text = cells[row].as_py()
        sign = -1 if text.startswith("-") else 1
        digits = text.lstrip("+-").lstrip("0") or "0"
        # Python does not convert thousands of digits.
        value = sign * int(digits) if len(digits) <= 20 else None
        if value is not None and limits.min <= value <= limits.max:
            values[row] = value
            fits[row] = True
    beyond = flag_invalid(
        written & ~fits,
        lambda i: beyond_integer(_short(cells[i].as_py()), dtype),
    )
    return CastResult(pa.array(values, mask=~fits), merge(errors, beyond))


def parse_floats(cells: pa.StringArray, dtype: str) -> CastResult:
    """Parses text as floats of a NumPy dtype, rounded to the nearest."""
    wide = _quick_floats(cells)
    if wide is None:
        cells = without_missing(cells)
        wide = _quick_floats(cells)
    if wide is not None:
        return cast_floats(wide, dtype)
    written = matches(cells, _FLOAT)
    errors = flag_invalid(
        present(cells) & ~written,
        lambda i: f"{shown(cells[i].as_py())} is not a valid {dtype}",
    )
    wide = without(cells, ~written).cast(pa.float64())
    infinite = np.isinf(wide.to_numpy(zero_copy_only=False))
    beyond = infinite & ~matches(cells, _INFINITY)
    errors = merge(
        errors,
        flag_invalid(
            beyond,
            lambda i: beyond_float(_short(cells[i].as_py()), "float64"),
        ),
    )
    narrow = cast_floats(without(wide, beyond), dtype)
    return CastResult(narrow.array, merge(errors, narrow.errors))


def cast_floats(array: pa.Array, dtype: str) -> CastResult:
    """Casts floats to another float dtype; rounding is no loss, infinity is."""
    if array.type == ARROW_TYPES[dtype]:
        return CastResult(array, {})
    values, errors = narrow_floats(array.to_numpy(zero_copy_only=False), dtype)
    missing = ~present(array) | mask_of(errors, len(array))
    return CastResult(pa.array(values, mask=missing), errors)


def trim(cells: pa.StringArray) -> pa.StringArray:
    """Trims white space around the cells; what is then empty is missing."""
    cells = pc.ascii_trim_whitespace(cells)
    return without(cells, _lengths(cells) == 0)


def without_missing(cells: pa.StringArray) -> pa.StringArray:
    """Trims white space around the cells; nothing and MISSING_WORDS are missing."""
    cells = trim(cells)
    words = np.asarray(pc.is_in(cells, _MISSING_WORDS).to_numpy(zero_copy_only=False))
    return without(cells, words) if words.any() else cells


def without_places(cells: pa.StringArray) -> pa.StringArray:
    """Cuts the point and the zeros off whole numbers that are written as decimals.

    ["2", "3.0", "-4.", "2.5"] gives ["2", "3", "-4", "2.5"].
    """
    return pc.replace_substring_regex(cells, _WHOLE_DECIMAL, r"\1")


def matches(cells: pa.StringArray, pattern: str) -> Mask:
    """Returns which cells match a regular expression (RE2); nulls do not."""
    found = pc.match_substring_regex(cells, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def _quick_integers(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Casts the cells by Arrow; returns None if it cannot or might read 0x10."""
    return None if _has_byte(cells, b"xX") else _cast(cells, ARROW_TYPES[dtype])


def _quick_floats(cells: pa.StringArray) -> pa.Array | None:
    """Casts the cells by Arrow, unless it might read nan(1) or make 1e400 infinite."""
    if _has_byte(cells, b"("):
        return None
    wide = _cast(cells, pa.float64())
    if wide is None or np.isinf(wide.to_numpy(zero_copy_only=False)).any():
        return None
    return wide


def _cast(cells: pa.StringArray, wanted: pa.DataType) -> pa.Array | None:
    try:
        return cells.cast(wanted)
    except pa.ArrowInvalid:
        return None


def _has_byte(cells: pa.StringArray, characters: bytes) -> bool:
    offsets, data = array_parts(cells)
    text = data[offsets[0] : offsets[-1]]
    return any(bool((text == char).any()) for char in characters)


def _lengths(cells: pa.StringArray) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Returns the bytes of each cell, -1 for a null."""
    lengths = pc.binary_length(cells).fill_null(-1)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int32)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_DIGITS else f"{text[:_SHOWN_DIGITS]}..."


#     2024-01-31                     midnight, counted from 1970-01-01
#     2024-01-31T10:20:30.123Z       without a zone it is UTC; up to nine decimals
#     2024-01-31 10:20+02:00         a space for the T; seconds, minutes may be left out
#     10:20:30.5                     a time of day, counted from midnight
#
# Nothing is rounded: what the unit cannot hold is rejected, like a time in days.

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
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def parse_times(cells: pa.StringArray, unit: str) -> CastResult:
    """Parses ISO 8601 text as int64 counts of the unit (d, s, ms, us, ns)."""
    quick = _quick_times(cells, unit)
    if quick is not None:
        return CastResult(quick, {})
    return read_times(trim(cells), unit)


def _quick_times(cells: pa.StringArray, unit: str) -> pa.Array | None:
    """Casts cells of one form and of the unit's precision; else returns None."""
    if unit == "d":
        targets = [pa.date32()]
    else:
        targets = [pa.timestamp(unit), pa.timestamp(unit, "UTC")]
    for target in targets:
        try:
            times = cells.cast(target)
        except pa.ArrowInvalid:
            continue
        return (times.cast(pa.int32()) if unit == "d" else times).cast(pa.int64())
    return None


def read_times(cells: pa.StringArray, unit: str) -> CastResult:
    """Parses cells of any of the forms; 1 million a second."""
    dated = matches(cells, _DATE_TIME)
    clock = matches(cells, _TIME_OF_DAY) & (pc.utf8_length(cells).to_numpy(False) > 2)
    seconds = np.zeros(len(cells), np.int64)
    fraction = np.zeros(len(cells), np.int64)
    real = np.zeros(len(cells), np.bool_)
    for written, pattern in ((dated, _DATE_TIME), (clock, _TIME_OF_DAY)):
        where = np.flatnonzero(written)
        if len(where):
            parts = pc.extract_regex(cells.take(pa.array(where)), pattern)
            seconds[where], fraction[where], real[where] = _count(parts)
    errors = flag_invalid(
        present(cells) & ~real,
        lambda i: (
            f"{shown(cells[i].as_py())} is not a date or time in ISO 8601 "
            "(like 2024-01-31 or 2024-01-31T10:20:30Z)"
        ),
    )
    counts, exact, inside = _in_unit(seconds, fraction, unit)
    rough = flag_invalid(
        real & ~exact,
        lambda i: f"{shown(cells[i].as_py())} is not a whole number of {unit}",
    )
    beyond = flag_invalid(
        real & exact & ~inside,
        lambda i: f"{shown(cells[i].as_py())} is beyond int64 in {unit}",
    )
    array = without(pa.array(counts), ~(real & exact & inside))
    return CastResult(array, merge(errors, merge(rough, beyond)))


def _count(parts: pa.StructArray) -> tuple[I64, I64, Mask]:
    """Returns seconds, nanoseconds on top, and whether there is such a time."""
    names = [field.name for field in parts.type]

    def number(name: str) -> I64:
        if name not in names:
            return np.zeros(len(parts), np.int64)
        digits = pc.struct_field(parts, name)
        if name == "fraction":
            digits = pc.utf8_rpad(digits, 9, "0")
        # An optional part that is not there is an empty text.
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


def _in_unit(seconds: I64, fraction: I64, unit: str) -> tuple[I64, Mask, Mask]:
    """Returns (counts of the unit, whether exact, whether int64 holds them)."""
    inside = np.ones(len(seconds), np.bool_)
    if unit == "d":
        return seconds // 86_400, (seconds % 86_400 == 0) & (fraction == 0), inside
    size = NANOSECONDS[unit]
    per_second = NANOSECONDS["s"] // size
    for limit, sign in ((_LEAST, -1), (_MOST, 1)):
        whole, rest = divmod(limit, per_second)
        edge = (seconds == whole) & (sign * (fraction // size) > sign * rest)
        inside &= ~((sign * seconds > sign * whole) | edge)
    # Outside, this wraps round; such counts are not used.
    return seconds * per_second + fraction // size, fraction % size == 0, inside


def rescale(counts: I64, unit: str, wanted: str) -> tuple[I64, Mask, Mask]:
    """Converts counts of one unit to another; returns what `_in_unit` does."""
    size, wanted_size = NANOSECONDS[unit], NANOSECONDS[wanted]
    if size < wanted_size:
        ratio = wanted_size // size
        return counts // ratio, counts % ratio == 0, np.ones(len(counts), np.bool_)
    ratio = size // wanted_size
    inside = (counts >= -(-_LEAST // ratio)) & (counts <= _MOST // ratio)
    return counts * ratio, np.ones(len(counts), np.bool_), inside


_SWAPPED = np.arange(256, dtype=np.uint8)
_SWAPPED[list(b",.")] = list(b".,")
_NUMBER = r"^([ \t]*[+-]?[0-9]*)%s([0-9]*(?:[eE][+-]?[0-9]+)?[ \t]*)$"
_OTHER = "\N{NULL}"


def swap_points(cells: pa.StringArray) -> pa.StringArray:
    """Returns the cells with a point for each comma, and a comma for each point.

    So "1,5" becomes a number, and "1.5", which is none then, no longer is one.
    """
    offsets, data = array_parts(cells)
    start, stop = int(offsets[0]), int(offsets[-1])
    text = _SWAPPED[data[start:stop]]
    ends = pa.py_buffer(np.asarray(offsets - start, np.int32))
    mask = None
    if cells.null_count:
        mask = pc.is_valid(cells).buffers()[1]
    return pa.StringArray.from_buffers(len(cells), ends, pa.py_buffer(text), mask)


def swap_in_numbers(cells: pa.StringArray) -> pa.StringArray:
    """Returns the cells with them swapped in those that are numbers with either."""
    cells = pc.replace_substring_regex(cells, _NUMBER % ",", rf"\1{_OTHER}\2")
    cells = pc.replace_substring_regex(cells, _NUMBER % r"\.", r"\1,\2")
    return pc.replace_substring(cells, _OTHER, ".")
