"""Reads the serialized TensorProtos of many records at once.

    TensorProto       08 dtype | 12 len TensorShapeProto | 22 len content
                      strings: 42 len bytes for each, instead of the content
    TensorShapeProto  (12 len Dim)*       Dim  08 varint size, omitted if 0

This is what tf.io.serialize_tensor writes. For example, int16 [7, 8]:

    08 05 | 12 04  12 02 08 02 | 22 04  07 00 08 00
    dtype   shape: one Dim of 2  content of 4 bytes

Other layouts, as tf.make_tensor_proto uses for few values, are read by `read_tensor`,
one tensor at a time.

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
_MAX_FILLED = 1 << 24  # limit of values that a (damaged) shape may repeat from one
_STRING_TAG = 0x42
_CONTENT_TAG = 0x22


def read_tensors(data: U8, spans: Spans, feature: FeatureSpec) -> tuple[Lists, I64]:
    """Reads the tensors of a feature, as tf.io.serialize_tensor writes them.

    Returns:
      The values, and the dimensions as an array of shape (records, rank). Tensors of
      another type, rank or layout are marked as irregular.
    """
    dims, spans, irregular = _read_header(data, spans, feature)
    if feature.dtype in ("string", "bytes"):
        lists = read_byte_values(data, spans, _STRING_TAG)
    else:
        lists = _read_content(data, spans, feature.dtype)
    # As floats: a product beyond 64 bits must not wrap around to a small number.
    num_values = dims.astype(np.float64).prod(axis=1)
    irregular = (
        irregular | lists.irregular | (spans.present & (lists.counts != num_values))
    )
    if irregular.any():
        dims[irregular] = 0
        lists = lists.without(irregular)
    return replace(lists, irregular=irregular), dims


def _read_header(
    data: U8, spans: Spans, feature: FeatureSpec
) -> tuple[I64, Spans, Mask]:
    """Returns the dimensions, the spans after them, and a mask of irregular tensors."""
    ends = spans.starts + spans.lengths
    words = gather_words(data, spans.starts).ravel()
    head = 0x12_00_08 | (DATA_TYPES[feature.dtype] << 8)
    shape_lengths, sizes = read_varints(words >> np.uint64(24))
    positions = spans.starts + 3 + sizes
    fits = spans.present & ((words & np.uint64(0xFFFFFF)) == head) & (sizes <= 5)
    shape_ends = positions + shape_lengths.view(np.int64)
    fits &= shape_ends <= ends
    dims = np.zeros((len(positions), len(feature.shape)), np.int64)
    for axis in range(len(feature.shape)):
        positions = np.where(fits, positions, spans.starts)
        words = gather_words(data, positions).ravel()
        dim_lengths = ((words >> np.uint64(8)) & np.uint64(0xFF)).view(np.int64)
        values, sizes = read_varints(words >> np.uint64(24))
        known = dim_lengths > 0
        fits &= (words & np.uint64(0xFF)) == 0x12
        fits &= ~known | (
            (((words >> np.uint64(16)) & np.uint64(0xFF)) == 0x08)
            & (dim_lengths == sizes + 1)
            & (sizes <= 5)
        )
        positions = positions + 2 + dim_lengths
        fits &= positions <= shape_ends
        dims[:, axis] = np.where(fits & known, values, np.uint64(0))
        if feature.shape[axis] is not None:
            fits &= dims[:, axis] == feature.shape[axis]
    fits &= positions == shape_ends
    irregular = spans.present & ~fits
    starts = np.where(fits, positions, ends)
    return dims, Spans(starts, ends - starts, spans.present), irregular


def _read_content(data: U8, spans: Spans, dtype: str) -> Lists:
    """Reads the content field after the dimensions; an empty tensor has none."""
    words = gather_words(data, spans.starts).ravel()
    lengths, sizes = read_varints(words >> np.uint64(8))
    filled = spans.lengths > 0
    starts = spans.starts + np.where(filled, 1 + sizes, 0)
    content = np.where(filled, lengths.view(np.int64), 0)
    item = np.dtype(dtype).newbyteorder("<")
    irregular = starts + content != spans.starts + spans.lengths
    irregular |= filled & ((words & np.uint64(0xFF)) != _CONTENT_TAG)
    irregular |= content % item.itemsize != 0
    starts = np.where(irregular, spans.starts, starts)
    packed, offsets = extract(data, starts, np.where(irregular, 0, content))
    numbers = packed[: int(offsets[-1])]
    values = numbers != 0 if dtype == "bool" else numbers.view(item)
    return Lists(values, offsets // item.itemsize, spans.present, irregular)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor.

    Attributes:
      dtype: NumPy's name of its type, or "string".
      shape: its dimensions.
      values: its flat values.
    """

    dtype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any] | list[bytes]

    def to_bytes(self) -> bytes:
        """Serializes the tensor as tf.io.serialize_tensor does."""
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
    """Reads any TensorProto of a type that a feature can have.

    Raises:
      ValueError: it is not a valid tensor; the message says why.
    """
    try:
        proto = TensorProto.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    dtype = _DTYPES.get(proto.dtype)
    if dtype is None:
        raise ValueError(f"tensorflow.DataType {proto.dtype} is not supported")
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise ValueError("its shape has unknown dimensions")
    size = math.prod(shape)
    if dtype == "string":
        return Tensor(dtype, shape, _strings(proto, size))
    if not proto.tensor_content:
        return Tensor(dtype, shape, _loose_values(proto, dtype, size))
    item = np.dtype(dtype).newbyteorder("<")
    if len(proto.tensor_content) != size * item.itemsize:
        raise ValueError(
            f"it has {len(proto.tensor_content)} bytes, but shape {list(shape)} of "
            f"{dtype} needs {size * item.itemsize}"
        )
    # A view as NumPy's bool would keep bytes other than 0 and 1.
    if dtype == "bool":
        return Tensor(dtype, shape, np.frombuffer(proto.tensor_content, "u1") != 0)
    return Tensor(dtype, shape, np.frombuffer(proto.tensor_content, item))


def _strings(proto: TensorProto, size: int) -> list[bytes]:
    if proto.tensor_content:
        raise ValueError("its strings are in tensor_content, expected string_val")
    return _fill(list(proto.string_val), size, b"")


def _loose_values(proto: TensorProto, dtype: str, size: int) -> npt.NDArray[Any]:
    """Reads the values of a tensor that stores them one by one, not as content."""
    values = _fill(list(getattr(proto, _VALUE_FIELDS[dtype])), size, 0)
    if dtype == "float16":  # stored as the 16 bits of each value
        return np.array(values, np.int64).astype(np.uint16).view(np.float16)
    wide = {"f": np.float64, "b": np.bool_}.get(np.dtype(dtype).kind, np.int64)
    return np.array(values, np.uint64 if dtype == "uint64" else wide).astype(dtype)


def _fill(values: list[Any], size: int, default: Any) -> list[Any]:
    """Repeats the last value for all omitted ones, as TensorFlow does."""
    if size > max(len(values), _MAX_FILLED):
        raise ValueError(f"it has {len(values)} values, but its shape needs {size}")
    last = values[-1] if values else default
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
