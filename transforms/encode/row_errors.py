"""Collects errors of the rows of a batch, and checks values against limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.transforms.arrow import I64, value_offsets

Mask = npt.NDArray[np.bool_]
RowErrors = dict[int, str]  # index of a row or value -> reason, ascending


def flag_invalid(wrong: Mask, reason: Callable[[int], str]) -> RowErrors:
    """Returns the reason for every index that `wrong` marks."""
    return {index: reason(index) for index in np.flatnonzero(wrong).tolist()}


def error_mask(errors: RowErrors, size: int) -> Mask:
    """Returns a mask of `size` values, which marks those with an error."""
    mask = np.zeros(size, np.bool_)
    mask[list(errors)] = True
    return mask


def merge_errors(first: RowErrors, second: RowErrors) -> RowErrors:
    """Returns the errors of both; for the same index, the reason in `first`."""
    return dict(sorted({**second, **first}.items())) if second else first


def errors_by_row(errors: RowErrors, starts: I64) -> RowErrors:
    """Returns the errors of values as errors of their rows; the first of each row."""
    if not errors:
        return {}
    rows = rows_of(np.fromiter(errors, np.int64, len(errors)), starts).tolist()
    # Backwards, so that a row's first reason is the one that stays.
    reasons = dict(zip(rows[::-1], list(errors.values())[::-1], strict=True))
    return dict(sorted(reasons.items()))


def rows_of(indices: npt.NDArray[np.intp], starts: I64) -> npt.NDArray[np.intp]:
    """Returns the row of each value, given the start of each row's values (rows + 1)."""
    return np.searchsorted(starts, indices, side="right") - 1


def prefix_errors(feature_name: str, errors: RowErrors) -> RowErrors:
    """Returns the errors with reasons that name the feature."""
    return {row: f"feature {feature_name!r}: {why}" for row, why in errors.items()}


def raise_errors(errors: RowErrors) -> None:
    """Raises the errors of some rows; does nothing if there are none."""
    if errors:
        raise RowsError(errors)


# These checks are shared: casting uses them for the declared dtype, encoding for the
# stored type, `verify` for decoded values. All of them take whole arrays and return a
# reason for each invalid index.

# Integers with more binary digits are rounded in a float of this type.
_FLOAT_DIGITS = {"float16": 11, "float32": 24, "float64": 53}
_LARGEST = {"float16": "65504", "float32": "3.4e38", "float64": "1.8e308"}


def integer_errors(values: npt.NDArray[Any], dtype: str) -> RowErrors:
    """Returns errors for the integers that are beyond another integer dtype."""
    if np.can_cast(values.dtype, dtype):
        return {}
    # Bounds that the values' own type can represent, so that none of them is rounded.
    source_limits, target_limits = np.iinfo(values.dtype), np.iinfo(dtype)
    wrong = (values < max(source_limits.min, target_limits.min)) | (
        values > min(source_limits.max, target_limits.max)
    )
    return flag_invalid(wrong, lambda i: integer_range_reason(values[i], dtype))


def integer_range_reason(value: object, dtype: str) -> str:
    """Returns the reason for an integer that a dtype cannot represent."""
    limits = np.iinfo(dtype)
    return f"{value} is beyond {dtype} ({limits.min} to {limits.max})"


def narrow_floats(
    wide: npt.NDArray[Any], dtype: str
) -> tuple[npt.NDArray[Any], RowErrors]:
    """Converts floats to another dtype; returns them, and errors for overflows."""
    if np.can_cast(wide.dtype, dtype):
        return wide.astype(dtype, copy=False), {}
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype)
    infinite = np.isinf(narrow)
    if not infinite.any():
        return narrow, {}
    lost = infinite & ~np.isinf(wide)
    return narrow, flag_invalid(
        lost, lambda i: float_range_reason(repr(float(wide[i])), dtype)
    )


def float_range_reason(value: object, dtype: str) -> str:
    """Returns the reason for a number that would become infinite in a float dtype."""
    return f"{value} is beyond {dtype} (at most {_LARGEST[dtype]})"


def integers_as_floats(
    values: npt.NDArray[Any], dtype: str
) -> tuple[npt.NDArray[Any], RowErrors]:
    """Converts integers to a float dtype; returns them, and errors for inexact ones.

    An integer is exact if it fits the significand without its trailing zero bits. As
    float32 (24 bits):

        2**25 + 2 = 0b10...010   lowest bit 2   (2**25 + 2) / 2 = 2**24 + 1: rounded
        2**25 + 4 = 0b10...100   lowest bit 4   (2**25 + 4) / 4 = 2**23 + 1: exact
    """
    with np.errstate(over="ignore"):
        floats = values.astype(dtype)
    limit = 1 << _FLOAT_DIGITS[dtype]
    large = np.flatnonzero((values > limit) | (values < -limit))
    if not len(large):
        return floats, {}
    # Two's complement: also the absolute value of the lowest integer.
    size = np.abs(values[large]).astype(np.uint64)
    lowest_bit = size & (~size + np.uint64(1))
    wrong = np.zeros(len(values), np.bool_)
    wrong[large] = size // lowest_bit >= np.uint64(limit)
    wrong |= np.isinf(floats)
    return floats, flag_invalid(
        wrong,
        lambda i: f"{values[i]} would be rounded in {dtype}: declare an integer dtype",
    )


def bound_errors(
    values: npt.NDArray[Any],
    minimum: float | None,
    maximum: float | None,
    valid: Mask | None = None,
) -> RowErrors:
    """Returns errors for the numbers outside the bounds; NaN is always outside."""
    wrong: Mask = np.zeros(len(values), np.bool_)
    if minimum is not None:
        wrong |= ~(values >= _bound(minimum, values.dtype, math.ceil))
    if maximum is not None:
        wrong |= ~(values <= _bound(maximum, values.dtype, math.floor))
    if valid is not None:
        wrong &= valid
    bounds = ", ".join(
        f"{name} {bound}"
        for name, bound in (("min", minimum), ("max", maximum))
        if bound is not None
    )
    return flag_invalid(wrong, lambda i: f"{values[i]!s} is out of range ({bounds})")


def _bound(
    bound: float, dtype: np.dtype[Any], to_whole: Callable[[int | float], int]
) -> Any:
    """Returns a bound in the form in which values of this dtype are compared with it."""
    if dtype.kind != "f":
        return to_whole(bound)
    try:
        wide = np.float64(bound)
    except OverflowError:
        raise SchemaError(f"bound {bound} is beyond float64") from None
    with np.errstate(over="ignore"):
        narrow = dtype.type(wide)
    # 0.1 is rounded to float32, like the values; a bound beyond float32 is kept.
    return narrow if np.isfinite(narrow) else wide


def utf8_errors(values: pa.BinaryArray) -> RowErrors:
    """Returns errors for the values of a plain binary array that are not UTF-8."""
    if is_utf8(values):
        return {}
    # Value by value, only if some text is invalid.
    return {
        index: reason
        for index, value in enumerate(values)
        if value.is_valid and (reason := utf8_reason(value.as_py()))
    }


def is_utf8(values: pa.BinaryArray) -> bool:
    """Checks whether every value of a plain binary array is UTF-8."""
    if not len(values):
        return True
    offsets = value_offsets(values)
    if offsets[0] == offsets[-1]:
        return True
    data = np.frombuffer(values.buffers()[2], np.uint8)
    if data[offsets[0] : offsets[-1]].max() < 0x80:
        return True  # ASCII: this check is ten times as fast as the cast below
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def bytes_are_utf8(data: bytes) -> bool:
    """Checks whether bytes are UTF-8, without copying them."""
    if data.isascii():
        return True
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    buffers = [None, offsets, pa.py_buffer(data)]
    return is_utf8(pa.Array.from_buffers(pa.binary(), 1, buffers))


def utf8_reason(raw: bytes, whole: str = "value") -> str:
    r"""Returns the reason why bytes are not UTF-8; "" if they are.

    >>> utf8_reason(b"caf\xe9")
    "not UTF-8: b'\\xe9' at byte 3 of the value"
    """
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        invalid_bytes = raw[error.start : error.start + 4]
        return f"not UTF-8: {invalid_bytes!r} at byte {error.start} of the {whole}"
    return ""
