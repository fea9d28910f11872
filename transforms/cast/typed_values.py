"""Values that Arrow already holds as numbers, times or bytes, as a declared dtype.

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
    Mask,
    mask_of,
    present,
    refuse,
    shown,
    without,
)
from recordmill.transforms.cast.text_times import rescale
from recordmill.transforms.cast.text_values import beyond_integer, narrow_floats
from recordmill.transforms.encode.arrow_types import (
    BOOL,
    BYTES,
    FLOAT,
    INTEGER,
    TIME,
    family_of,
)


def convert_typed(array: pa.Array, dtype: str, unit: str | None) -> CastResult:
    """Values of any type but text that is to be parsed.

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
        return narrow_floats(array, dtype)
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
        return ": 1.0 is no integer; declare a float dtype"
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
    # Row by row: only a batch that holds something to refuse.
    reasons = {
        row: reason
        for row, value in enumerate(binary)
        if value.is_valid and (reason := _not_utf8(value.as_py()))
    }
    valid = without(binary, mask_of(reasons, len(binary)))
    return CastResult(valid.cast(pa.string()), reasons)


def _not_utf8(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        found = raw[error.start : error.start + 4]
        return f"not UTF-8: {found!r} at byte {error.start} of the value"
    return ""


def _integers(array: pa.Array, dtype: str) -> CastResult:
    if dtype == "bool":
        if pt.is_boolean(array.type):
            return CastResult(array, {})
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        wrong = (values != 0) & (values != 1)
        refused = refuse(wrong, lambda i: f"{values[i]} is no bool (1 or 0)")
        return CastResult(without(array, wrong).cast(pa.bool_()), refused)
    try:
        return CastResult(array.cast(ARROW_TYPES[dtype]), {})
    except pa.ArrowInvalid:
        pass
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    here, there = np.iinfo(values.dtype), np.iinfo(dtype)
    # Bounds that the values' own type holds, so that none of them is rounded.
    wrong = (values < max(here.min, there.min)) | (values > min(here.max, there.max))
    refused = refuse(wrong, lambda i: beyond_integer(values[i], dtype))
    return CastResult(without(array, wrong).cast(ARROW_TYPES[dtype]), refused)


_SIGNIFICANT_BITS = {"float16": 11, "float32": 24, "float64": 53}


def _floats_of_integers(array: pa.Array, dtype: str) -> CastResult:
    valid = present(array)
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    magnitude = values.astype(np.uint64)
    if values.dtype.kind == "i":
        # The least int64 has no positive twin, but the same bits.
        magnitude = np.abs(values.astype(np.int64)).view(np.uint64)
    # Exact if what is left without the trailing zero bits fits the significand.
    lowest = magnitude & (~magnitude + np.uint64(1))
    odd = magnitude // np.maximum(lowest, np.uint64(1))
    wrong = odd >= np.uint64(1 << _SIGNIFICANT_BITS[dtype])
    with np.errstate(over="ignore"):
        floats = values.astype(np.float64).astype(dtype)
    wrong |= np.isinf(floats)
    refused = refuse(
        wrong,
        lambda i: f"{values[i]} is not exact in {dtype}: declare a wider dtype",
    )
    return CastResult(pa.array(floats, mask=~valid | wrong), refused)


def _decimals(array: pa.Array, dtype: str) -> CastResult:
    text = array.cast(pa.string())
    if dtype == "string":
        return CastResult(text, {})
    if dtype.startswith("float"):
        # By way of the text, which is rounded to the nearest; Arrow's cast is not.
        return narrow_floats(text.cast(pa.float64()), dtype)
    try:
        return CastResult(array.cast(ARROW_TYPES[dtype]), {})
    except pa.ArrowInvalid:
        pass
    limits = np.iinfo(dtype)

    def reason(value: Decimal | None) -> str:
        if value is None:
            return ""
        if value != value.to_integral_value():
            return f"{value} is no {dtype}"
        inside = limits.min <= value <= limits.max
        return "" if inside else beyond_integer(f"{value:f}", dtype)

    # Row by row: only a batch that holds something to refuse.
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
        raise SchemaError(f"{kind} is a time of day, no count of days: give unit s")
    bits = pa.int32() if kind.bit_width == 32 else pa.int64()
    valid = present(array)
    raw = array.view(bits).cast(pa.int64()).fill_null(0).to_numpy()
    counts, exact, inside = rescale(raw, unit, wanted)
    text = _time_text(array, raw, unit)
    refused = refuse(
        valid & ~(exact & inside),
        lambda i: (
            f"{text(i)} is beyond int64 in {wanted}"
            if exact[i]
            else f"{text(i)} is no whole number of {wanted}"
        ),
    )
    bad: Mask = ~valid | ~exact | ~inside
    return CastResult(pa.array(counts, mask=bad), refused)


def _time_text(array: pa.Array, raw: I64, unit: str) -> Callable[[int], str]:
    """How a value is shown: as a date or time where Arrow can write it."""

    def text(row: int) -> str:
        if pt.is_duration(array.type):
            return f"{raw[row]} {unit}"
        naive = array.slice(row, 1)
        if pt.is_timestamp(array.type):
            naive = naive.cast(pa.timestamp(unit))
        return shown(naive.cast(pa.string())[0].as_py())

    return text
