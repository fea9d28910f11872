"""Casts values that Arrow holds as numbers, times or bytes to a declared dtype.

from                      to
bool                      bool, integers
integers                  integers and bool in range, floats if exact
floats                    floats, rounded to the nearest
decimals                  integers if whole, floats rounded, string
date, time, timestamp,    int64 in the declared unit, if exact; timestamps with a
duration                  zone count from 1970-01-01 UTC
string, binary            string (valid UTF-8), bytes
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import SchemaError
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.cast_result import (
    ARROW_TYPES,
    CastResult,
    present,
    shown,
    without,
)
from recordmill.transforms.cast.text_times import rescale
from recordmill.transforms.cast.text_values import cast_floats
from recordmill.transforms.encode.arrow_types import (
    BOOL,
    BYTES,
    FLOAT,
    INTEGER,
    TIME,
    family_of,
)
from recordmill.transforms.encode.row_errors import Mask, flag_invalid, mask_of
from recordmill.transforms.encode.value_limits import (
    beyond_integer,
    integer_errors,
    integers_as_floats,
    utf8_errors,
)


def cast_typed(array: pa.Array, dtype: str, unit: str | None) -> CastResult:
    """Casts values of any type but text that is to be parsed.

    Args:
      array: values, not lists.
      dtype: the declared dtype.
      unit: the declared unit of dates and times.

    Raises:
      SchemaError: no value of the array's type can become one of the dtype.
    """
    family = family_of(array.type)
    to_integer = dtype.startswith(("int", "uint"))
    if family == BYTES and dtype in ("string", "bytes"):
        return _bytes_or_text(array, dtype)
    if family in (INTEGER, BOOL) and (to_integer or dtype == "bool"):
        return _integers(array, dtype)
    if family == INTEGER and dtype.startswith("float"):
        return _floats_of_integers(array, dtype)
    if family == FLOAT and dtype.startswith("float"):
        return cast_floats(array, dtype)
    if family == TIME and dtype == "int64":
        return _times(array, unit)
    if pt.is_decimal(array.type) and dtype not in ("bool", "bytes"):
        return _decimals(array, dtype)
    raise SchemaError(f"{array.type} cannot become {dtype}{_way_out(array, dtype)}")


def _way_out(array: pa.Array, dtype: str) -> str:
    family = family_of(array.type)
    if family == TIME:
        return ": declare dtype int64 and a unit"
    if family == FLOAT and dtype.startswith(("int", "uint")):
        return ": 1.0 is not an integer; declare a float dtype"
    if family == BYTES:
        return ": binary values hold a list; declare a shape"
    if family is None and not pt.is_decimal(array.type):
        return ": leave the column out, or give its parts as columns of their own"
    return ""


def _bytes_or_text(array: pa.Array, dtype: str) -> CastResult:
    binary = array.cast(pa.binary())
    if dtype == "bytes":
        return CastResult(binary, {})
    try:
        return CastResult(binary.cast(pa.string()), {})
    except pa.ArrowInvalid:
        pass
    errors = utf8_errors(binary)
    valid = without(binary, mask_of(errors, len(binary)))
    return CastResult(valid.cast(pa.string()), errors)


def _integers(array: pa.Array, dtype: str) -> CastResult:
    if dtype == "bool":
        if pt.is_boolean(array.type):
            return CastResult(array, {})
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = (values != 0) & (values != 1)
        errors = flag_invalid(
            wrong, lambda i: f"{values[i]} is not a valid bool (1 or 0)"
        )
        return CastResult(without(array, wrong).cast(pa.bool_()), errors)
    try:
        return CastResult(array.cast(ARROW_TYPES[dtype]), {})
    except pa.ArrowInvalid:
        pass
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    errors = integer_errors(values, dtype)
    valid = without(array, mask_of(errors, len(array)))
    return CastResult(valid.cast(ARROW_TYPES[dtype]), errors)


def _floats_of_integers(array: pa.Array, dtype: str) -> CastResult:
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    floats, errors = integers_as_floats(values, dtype)
    missing = ~present(array) | mask_of(errors, len(array))
    return CastResult(pa.array(floats, mask=missing), errors)


def _decimals(array: pa.Array, dtype: str) -> CastResult:
    text = array.cast(pa.string())
    if dtype == "string":
        return CastResult(text, {})
    if dtype.startswith("float"):
        # By way of the text, which is rounded to the nearest; Arrow's cast is not.
        return cast_floats(text.cast(pa.float64()), dtype)
    try:
        return CastResult(array.cast(ARROW_TYPES[dtype]), {})
    except pa.ArrowInvalid:
        pass
    limits = np.iinfo(dtype)

    def reason(value: Decimal | None) -> str:
        if value is None:
            return ""
        if value != value.to_integral_value():
            return f"{value} is not a valid {dtype}"
        inside = limits.min <= value <= limits.max
        return "" if inside else beyond_integer(f"{value:f}", dtype)

    # Row by row: only a batch with an invalid value.
    reasons = {row: why for row, v in enumerate(array) if (why := reason(v.as_py()))}
    valid = without(array, mask_of(reasons, len(array)))
    return CastResult(valid.cast(ARROW_TYPES[dtype]), reasons)


def _times(array: pa.Array, wanted: str | None) -> CastResult:
    kind = array.type
    if wanted is None:
        raise SchemaError(
            f"{kind} becomes int64 only in a unit that is declared: give unit d, s, "
            "ms, us or ns"
        )
    unit = "d" if pt.is_date32(kind) else "ms" if pt.is_date64(kind) else kind.unit
    if pt.is_time(kind) and wanted == "d":
        raise SchemaError(
            f"{kind} is a time of day, which cannot be stored in days; use unit: s"
        )
    bits = pa.int32() if kind.bit_width == 32 else pa.int64()
    valid = present(array)
    raw = array.view(bits).cast(pa.int64()).fill_null(0).to_numpy()
    counts, exact, inside = rescale(raw, unit, wanted)
    text = _time_text(array, raw, unit)
    errors = flag_invalid(
        valid & ~(exact & inside),
        lambda i: (
            f"{text(i)} is beyond int64 in {wanted}"
            if exact[i]
            else f"{text(i)} is not a whole number of {wanted}"
        ),
    )
    bad: Mask = ~valid | ~exact | ~inside
    return CastResult(pa.array(counts, mask=bad), errors)


def _time_text(array: pa.Array, raw: I64, unit: str) -> Callable[[int], str]:
    """Returns what shows a value: as a date or time where Arrow can write it."""

    def text(row: int) -> str:
        if pt.is_duration(array.type):
            return f"{raw[row]} {unit}"
        naive = array.slice(row, 1)
        if pt.is_timestamp(array.type):
            naive = naive.cast(pa.timestamp(unit))
        return shown(naive.cast(pa.string())[0].as_py())

    return text
