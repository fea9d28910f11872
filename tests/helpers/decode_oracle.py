"""Reads examples one value at a time with the protobuf runtime: slow, and plain."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from encoder_cases import NUMBERS
from google.protobuf.message import DecodeError

from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.proto.tensor_pb2 import TensorProto


class NotReadableError(Exception):
    pass


def read_row(data: bytes, schema: Schema) -> dict[str, Any]:
    """The features of one example.

    Raises:
      NotReadableError: the bytes are no example, or not one of the schema.
    """
    try:
        features = Example.FromString(data).features.feature
    except DecodeError as error:
        raise NotReadableError(str(error)) from error
    return {
        feature.name: read_feature(features, feature) for feature in schema.features
    }


def read_feature(features: Any, feature: FeatureSpec) -> Any:
    unknown = [i for i, size in enumerate(feature.shape) if size is None]
    if feature.content is Content.VALUES and len(unknown) > 1:
        return read_ragged(features, feature, unknown[-1])
    values = read_key(features, feature.name, feature.kind)
    if values is None:
        return None
    if feature.content is Content.TENSOR:
        return read_tensor(only(values), feature)
    if feature.content is Content.IMAGE:
        return only(values)
    if feature.content is Content.ARRAY:
        value = only(values)
        item_bytes = np.dtype(feature.dtype).itemsize
        require(len(value) % item_bytes == 0)
        require_count(len(value) // item_bytes, feature.shape)
        return value
    if not feature.shape:
        return cast(only(values), feature.dtype)
    require_count(len(values), feature.shape)
    return [cast(value, feature.dtype) for value in values]


def read_key(features: Any, key: str, kind: str) -> list[Any] | None:
    if key not in features or features[key].WhichOneof("kind") is None:
        return None
    require(features[key].WhichOneof("kind") == kind)
    return list(getattr(features[key], kind).value)


def read_ragged(features: Any, feature: FeatureSpec, rank: int) -> Any:
    name = feature.name
    values = read_key(features, f"{name}/ragged_flat_values", feature.kind)
    levels = [
        read_key(features, f"{name}/ragged_row_lengths_{level}", "int64_list")
        for level in range(rank)
    ]
    if values is None and all(level is None for level in levels):
        return None
    require(values is not None and None not in levels)
    nested: list[Any] = [cast(value, feature.dtype) for value in values or []]
    inner = math.prod(size or 0 for size in feature.shape[rank + 1 :])
    for place in reversed(range(rank)):
        lengths = levels[place] or []
        size = feature.shape[place + 1]
        require(all(n >= 0 and size in (None, n) for n in lengths))
        inside = inner if place == rank - 1 else 1
        require(sum(lengths) * inside == len(nested))
        rows, start = [], 0
        for length in lengths:
            rows.append(nested[start : start + length * inside])
            start += length * inside
        nested = rows
    require(feature.shape[0] in (None, len(nested)))
    return nested


def read_tensor(data: bytes, feature: FeatureSpec) -> Any:
    try:
        proto = TensorProto.FromString(data)
    except DecodeError as error:
        raise NotReadableError(str(error)) from error
    shape = [dim.size for dim in proto.tensor_shape.dim]
    require(not proto.tensor_shape.unknown_rank)
    require(len(shape) == len(feature.shape))
    require(all(b in (None, a) for a, b in zip(shape, feature.shape, strict=True)))
    require(all(size >= 0 for size in shape))
    count = math.prod(shape)
    values: list[Any]
    if feature.dtype in ("string", "bytes"):
        require(proto.dtype == 7)
        require(len(proto.string_val) == count)
        values = [*proto.string_val]
        values = [cast(value, feature.dtype) for value in values]
    else:
        letter, number = NUMBERS[feature.dtype]
        require(proto.dtype == number)
        require(len(proto.tensor_content) == count * struct.calcsize(letter))
        values = list(struct.unpack(f"<{count}{letter}", proto.tensor_content))
    if not feature.shape:
        return values[0]
    unknown = [i for i, size in enumerate(feature.shape) if size is None]
    depth = unknown[-2] + 2 if len(unknown) > 1 else 1
    return nest(values, [*shape[: depth - 1], math.prod(shape[depth - 1 :])])


def nest(values: list[Any], shape: list[int]) -> list[Any]:
    if len(shape) == 1:
        return values
    size = len(values) // shape[0] if shape[0] else 0
    return [nest(values[i * size : (i + 1) * size], shape[1:]) for i in range(shape[0])]


def cast(value: Any, dtype: str) -> Any:
    if dtype == "bytes":
        return value
    if dtype == "string":
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise NotReadableError(str(error)) from error
    if dtype.startswith("float"):
        with np.errstate(over="ignore"):
            found = float(np.dtype(dtype).type(value))
        require(found == value or value != value)
        return found
    require(math.isfinite(value) and int(value) == value)
    if dtype == "bool":
        require(value in (0, 1))
        return bool(value)
    limits = np.iinfo(dtype)
    require(int(limits.min) <= value <= int(limits.max))
    return int(value)


def only(values: list[Any]) -> Any:
    require(len(values) == 1)
    return values[0]


def require_count(count: int, shape: tuple[int | None, ...]) -> None:
    known = math.prod(size for size in shape if size is not None)
    if None not in shape:
        require(count == known)
    else:
        require(count % known == 0 if known else count == 0)


def require(condition: bool) -> None:
    if not condition:
        raise NotReadableError
