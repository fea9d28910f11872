"""Parses ISO 8601 cells as counts of a unit: of days, seconds, milliseconds...

    2024-01-31                     midnight, counted from 1970-01-01
    2024-01-31T10:20:30.123Z       without a zone it is UTC; up to nine decimals
    2024-01-31 10:20+02:00         a space for the T; seconds, minutes may be left out
    10:20:30.5                     a time of day, counted from midnight

Nothing is rounded: what the unit cannot hold is rejected, like a time in days.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.cast_result import CastResult, present, shown, without
from recordmill.transforms.cast.text_values import matches, trim
from recordmill.transforms.encode.row_errors import Mask, flag_invalid, merge

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
