"""Serialized TensorProtos of many records -> dimensions and flat values.

    TensorProto       08 dtype | 12 len TensorShapeProto | 22 len content
                      with strings: 42 len bytes, for each, instead of the content
    TensorShapeProto  (12 len Dim)*       Dim  08 varint size, left out if 0

That is what tf.io.serialize_tensor writes. A tensor put together otherwise, as
tf.make_tensor_proto does for few values, is read by `read_tensor`, one at a time.

Source: tensorflow/core/framework/{tensor,tensor_shape,types}.proto.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from recordmill.schemas.features.feature import FeatureSpec
from recordmill.schemas.proto.tensor_pb2 import TensorProto
from recordmill.transforms.arrow import I64, U8
from recordmill.transforms.decode.value_lists import Lists, read_byte_values
from recordmill.transforms.decode.wire import (
    Mask,
    Spans,
    extract,
    gather_words,
    read_varints,
)
from recordmill.transforms.encode.tensors import DATA_TYPES

_DTYPES = {number: name for name, number in DATA_TYPES.items() if name != "bytes"}
_MAX_FILLED = 1 << 24  # values that a damaged shape may make out of one
_STRING_TAG = 0x42
_CONTENT_TAG = 0x22


def read_tensors(data: U8, spans: Spans, feature: FeatureSpec) -> tuple[Lists, I64]:
    """The tensors of the feature, as tf.io.serialize_tensor writes them.

    Returns:
      Their values; and their dimensions, shape (records, dimensions). Tensors of
      another type, rank or layout are odd.
    """
    dims, spans, odd = _read_header(data, spans, feature)
    if feature.dtype in ("string", "bytes"):
        lists = read_byte_values(data, spans, _STRING_TAG)
    else:
        lists = _read_content(data, spans, feature.dtype)
    # As floats: a product beyond 64 bits must not come round to a small one.
    wanted = dims.astype(np.float64).prod(axis=1)
    odd = odd | lists.odd | (spans.present & (lists.counts != wanted))
    if odd.any():
        dims[odd] = 0
        lists = lists.without(odd)
    return replace(lists, odd=odd), dims


def _read_header(
    data: U8, spans: Spans, feature: FeatureSpec
) -> tuple[I64, Spans, Mask]:
    """Dimensions, where what follows them lies, and which tensors are odd."""
    ends = spans.starts + spans.lengths
    words = gather_words(data, spans.starts).ravel()
    head = 0x12_00_08 | (DATA_TYPES[feature.dtype] << 8)
    shape_lengths, sizes = read_varints(words >> np.uint64(24))
    places = spans.starts + 3 + sizes
    fits = spans.present & ((words & np.uint64(0xFFFFFF)) == head) & (sizes <= 5)
    shape_ends = places + shape_lengths.view(np.int64)
    fits &= shape_ends <= ends
    dims = np.zeros((len(places), len(feature.shape)), np.int64)
    for axis in range(len(feature.shape)):
        places = np.where(fits, places, spans.starts)
        words = gather_words(data, places).ravel()
        dim_lengths = ((words >> np.uint64(8)) & np.uint64(0xFF)).view(np.int64)
        values, sizes = read_varints(words >> np.uint64(24))
        known = dim_lengths > 0
        fits &= (words & np.uint64(0xFF)) == 0x12
        fits &= ~known | (
            (((words >> np.uint64(16)) & np.uint64(0xFF)) == 0x08)
            & (dim_lengths == sizes + 1)
            & (sizes <= 5)
        )
        places = places + 2 + dim_lengths
        fits &= places <= shape_ends
        dims[:, axis] = np.where(fits & known, values, np.uint64(0))
        if feature.shape[axis] is not None:
            fits &= dims[:, axis] == feature.shape[axis]
    fits &= places == shape_ends
    odd = spans.present & ~fits
    starts = np.where(fits, places, ends)
    return dims, Spans(starts, ends - starts, spans.present), odd


def _read_content(data: U8, spans: Spans, dtype: str) -> Lists:
    """The numbers in what follows the dimensions: one field, or nothing if empty."""
    words = gather_words(data, spans.starts).ravel()
    lengths, sizes = read_varints(words >> np.uint64(8))
    filled = spans.lengths > 0
    starts = spans.starts + np.where(filled, 1 + sizes, 0)
    content = np.where(filled, lengths.view(np.int64), 0)
    item = np.dtype(dtype).newbyteorder("<")
    odd = starts + content != spans.starts + spans.lengths
    odd |= filled & ((words & np.uint64(0xFF)) != _CONTENT_TAG)
    odd |= content % item.itemsize != 0
    starts = np.where(odd, spans.starts, starts)
    packed, offsets = extract(data, starts, np.where(odd, 0, content))
    numbers = packed[: int(offsets[-1])]
    values = numbers != 0 if dtype == "bool" else numbers.view(item)
    return Lists(values, offsets // item.itemsize, spans.present, odd)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: NumPy's name of its type (or "string"), dimensions, flat values."""

    dtype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any] | list[bytes]

    def to_bytes(self) -> bytes:
        """As tf.io.serialize_tensor writes it."""
        proto = TensorProto(dtype=DATA_TYPES[self.dtype])
        proto.tensor_shape.SetInParent()
        for size in self.shape:
            proto.tensor_shape.dim.add(size=size)
        if isinstance(self.values, list):
            proto.string_val.extend(self.values)
        else:
            little = self.values.dtype.newbyteorder("<")
            proto.tensor_content = self.values.astype(little).tobytes()
        return proto.SerializeToString(deterministic=True)


def read_tensor(data: bytes) -> Tensor:
    """Any TensorProto of a type that a feature can have.

    Raises:
      ValueError: it is none or not whole; the message goes on "is no tensor: ...".
    """
    try:
        proto = TensorProto.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    dtype = _DTYPES.get(proto.dtype)
    if dtype is None:
        raise ValueError(f"its type is number {proto.dtype} of tensorflow.DataType")
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise ValueError("its shape is not fully known")
    size = math.prod(shape)
    if dtype == "string":
        return Tensor(dtype, shape, _strings(proto, size))
    if not proto.tensor_content:
        return Tensor(dtype, shape, _loose_values(proto, dtype, size))
    item = np.dtype(dtype).newbyteorder("<")
    if len(proto.tensor_content) != size * item.itemsize:
        raise ValueError(
            f"it holds {len(proto.tensor_content)} bytes, shape {list(shape)} of "
            f"{dtype} needs {size * item.itemsize}"
        )
    # Not through NumPy's bool: a byte other than 0 and 1 would stay what it is.
    if dtype == "bool":
        return Tensor(dtype, shape, np.frombuffer(proto.tensor_content, "u1") != 0)
    return Tensor(dtype, shape, np.frombuffer(proto.tensor_content, item))


def _strings(proto: TensorProto, size: int) -> list[bytes]:
    if proto.tensor_content:
        raise ValueError("its strings are in tensor_content, expected string_val")
    return _filled(list(proto.string_val), size, b"")


def _loose_values(proto: TensorProto, dtype: str, size: int) -> npt.NDArray[Any]:
    """The values of a tensor that has them one by one and not as content."""
    values = _filled(list(getattr(proto, _VALUE_FIELDS[dtype])), size, 0)
    if dtype == "float16":  # the bits of each
        return np.array(values, np.int64).astype(np.uint16).view(np.float16)
    wide = {"f": np.float64, "b": np.bool_}.get(np.dtype(dtype).kind, np.int64)
    return np.array(values, np.uint64 if dtype == "uint64" else wide).astype(dtype)


def _filled(values: list[Any], size: int, nothing: Any) -> list[Any]:
    """TensorFlow takes the last value for all that are left out."""
    if size > max(len(values), _MAX_FILLED):
        raise ValueError(f"it holds {len(values)} values, its shape asks for {size}")
    last = values[-1] if values else nothing
    return values[:size] + [last] * (size - len(values))


_VALUE_FIELDS = {
    **dict.fromkeys(("int32", "int16", "int8", "uint16", "uint8"), "int_val"),
    "float32": "float_val",
    "float64": "double_val",
    "float16": "half_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
}
