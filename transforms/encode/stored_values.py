"""A column's innermost values as they are stored: numbers of one dtype, or bytes.

Strict like the tutorials: 1.0 is no int64, text is no number. What a type allows and
a single value does not (an integer beyond int64, text that is no UTF-8) is refused
with the feature, the value and the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.features.feature import Kind
from recordmill.transforms.arrow import I64, require_fit, value_offsets
from recordmill.transforms.encode.arrow_types import BOOL, FLOAT, NULL, TIME, family_of
from recordmill.transforms.encode.nested import Nested

# Integers of more binary digits lose some of them in a float of this type.
_FLOAT_DIGITS = {"float16": 11, "float32": 24, "float64": 53}
_STORED: dict[Kind, np.dtype[Any]] = {
    Kind.INT64: np.dtype(np.int64),
    Kind.FLOAT: np.dtype(np.float32),
}


@dataclass(slots=True)
class Column:
    """What one key of the feature map holds, ready to encode.

    Attributes:
      values: int64 or float32 array, or for bytes an Arrow binary array without
        nulls; one value per row, or for lists all rows' values end to end.
      lists: for lists, where each row's values start (rows + 1), else None.
      valid: which rows have a value; None if all do.
    """

    values: Any
    lists: I64 | None
    valid: npt.NDArray[np.bool_] | None


def value_column(nested: Nested) -> Column:
    """The values as the feature's kind of list stores them.

    Raises:
      RowsError: rows with a value that the list cannot hold.
    """
    values: Any
    if nested.feature.kind is Kind.BYTES:
        values = byte_values(nested)
    else:
        values = numbers(nested, _STORED[nested.feature.kind])
    return Column(values, nested.starts, nested.valid)


def numbers(nested: Nested, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The innermost values as numbers of a dtype; 0 for nulls.

    Raises:
      RowsError: rows with a number that the dtype cannot hold.
    """
    leaf = nested.leaf
    family = family_of(leaf.type)
    if family == NULL:
        return np.zeros(len(leaf), dtype)
    if family == TIME:
        leaf = leaf.view(pa.int32() if leaf.type.bit_width == 32 else pa.int64())
    elif family == BOOL:
        leaf = leaf.cast(pa.int8())
    if leaf.null_count:
        leaf = leaf.fill_null(0)
    values: npt.NDArray[Any] = leaf.to_numpy(False)
    if family == FLOAT:
        return _floats(nested, values, dtype)
    if dtype.kind == "f":
        return _integers_as_floats(nested, values, dtype)
    if dtype.kind != "b" and not np.can_cast(values.dtype, dtype):
        limits = np.iinfo(dtype)
        where = np.flatnonzero((values < limits.min) | (values > limits.max))
        bound = f"{limits.min} to {limits.max}"
        nested.refuse(where, lambda i: f"{values[i]} is beyond {dtype} ({bound})")
    return values.astype(dtype, copy=False)


def byte_values(nested: Nested) -> pa.BinaryArray:
    """The innermost values as plain binary; empty for nulls.

    Raises:
      RowsError: rows with text that is no UTF-8, if the feature is a string.
      RecordmillError: the values together are beyond 2 GiB.
    """
    leaf = nested.leaf
    if family_of(leaf.type) == NULL:
        leaf = leaf.cast(pa.binary())
    try:
        plain = leaf.cast(pa.binary())
    except pa.ArrowInvalid:  # of large types, and only their size can be wrong
        require_fit(pc.sum(pc.binary_length(leaf)).as_py())
        raise
    if plain.null_count:
        plain = plain.fill_null(b"")
    if nested.feature.dtype == "string" and not is_utf8(plain):
        _refuse_text(nested, plain)
    return plain


def is_utf8(array: pa.BinaryArray) -> bool:
    """Whether every value of a plain binary array without nulls is UTF-8."""
    offsets = value_offsets(array)
    if offsets[0] == offsets[-1]:
        return True
    data = np.frombuffer(array.buffers()[2], np.uint8)
    if data[offsets[0] : offsets[-1]].max() < 0x80:
        return True  # ASCII: ten times as fast to see as the cast below
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def _floats(
    nested: Nested, wide: npt.NDArray[Any], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    if np.can_cast(wide.dtype, dtype):
        return wide.astype(dtype, copy=False)
    with np.errstate(over="ignore"):
        values = wide.astype(dtype)
    infinite = np.isinf(values)
    if infinite.any():
        where = np.flatnonzero(infinite & ~np.isinf(wide))
        most = f"{float(np.finfo(dtype).max):.2g}".replace("e+", "e")
        nested.refuse(
            where,
            lambda i: f"{float(wide[i])!r} does not fit in {dtype} (at most {most})",
        )
    return values


def _integers_as_floats(
    nested: Nested, values: npt.NDArray[Any], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Integers in a float list: those that it would round are refused."""
    digits = _FLOAT_DIGITS[dtype.name]
    limit = 1 << digits
    large = np.flatnonzero((values > limit) | (values < -limit))
    if len(large):
        # Two's complement: the absolute value also of the lowest integer.
        size = np.abs(values[large]).astype(np.uint64)
        lowest_bit = size & (~size + np.uint64(1))
        where = large[size // lowest_bit >= np.uint64(limit)]
        nested.refuse(where, lambda i: f"{values[i]} would be rounded in {dtype}")
    return values.astype(dtype)


def _refuse_text(nested: Nested, plain: pa.BinaryArray) -> None:
    reasons = {}
    # By value, but only of a batch that holds some broken text.
    for index, value in enumerate(plain.to_pylist()):
        try:
            value.decode()
        except UnicodeDecodeError as error:
            byte = value[error.start]
            reasons[index] = f"byte {byte:#04x} at {error.start} is no UTF-8"
    nested.refuse(np.array(list(reasons), np.intp), reasons.__getitem__)
