"""Random schemas, examples that fit them, and what others or chance make of those."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
from decode_oracle import TENSOR_TYPES
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    map_order,
)
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.proto.tensor_pb2 import TensorProto
from recordmill.transforms.decode.examples import decode_records
from recordmill.transforms.encode.examples import TAGS
from recordmill.transforms.native.numpy_loops import entry_header, varint

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES: list[tuple[int | None, ...]] = [
    (), (), (None,), (3,), (2, 2), (None, 2), (2, None), (0,), (1,),
    (None, None), (None, None, 2), (2, None, None), (None, 2, None), (None, None, None),
]  # fmt: skip
SIZES = st.sampled_from([0, 1, 2, 3, 20, 130])


def number_values(dtype: str, kind: Kind | None) -> st.SearchStrategy[Any]:
    """Values of the dtype that the kind can hold; None: a tensor holds all."""
    if dtype == "bool":
        return st.booleans()
    if dtype.startswith("float"):
        width = 32 if kind is not None else int(dtype[5:])
        narrow = 16 if dtype == "float16" else width
        return st.floats(width=narrow)
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    if kind is Kind.INT64:
        high = min(high, (1 << 63) - 1)
    if kind is Kind.FLOAT:
        low, high = max(low, -(1 << 24)), min(high, 1 << 24)
    near = [0, 1, 127, 128, 16_383, 16_384, -1, low, high]
    return st.one_of(
        st.sampled_from([n for n in near if low <= n <= high]), st.integers(low, high)
    )


def values_of(feature: FeatureSpec) -> st.SearchStrategy[Any]:
    if feature.dtype == "string":
        return st.one_of(st.text("aß漢😀", max_size=4), SIZES.map(lambda n: "y" * n))
    if feature.dtype == "bytes":
        return st.one_of(st.binary(max_size=4), SIZES.map(lambda n: b"\x0a" * n))
    tensor = feature.content in (Content.TENSOR, Content.ARRAY)
    return number_values(feature.dtype, None if tensor else feature.kind)


@st.composite
def features(draw: st.DrawFn, name: str) -> FeatureSpec:
    content = draw(
        st.sampled_from([Content.VALUES] * 4 + [Content.TENSOR] * 2 + list(Content))
    )
    shape = draw(st.sampled_from(SHAPES))
    dtypes = ["bool", *INTS, "float16", "float32", "float64", "string", "bytes"]
    if content is Content.IMAGE:
        return FeatureSpec(name, Kind.BYTES, dtype="uint8", content=content)
    if content is Content.ARRAY:
        dtype = draw(st.sampled_from(dtypes[:-2]))
        shape = draw(st.sampled_from([s for s in SHAPES if s.count(None) < 2]))
        return FeatureSpec(name, Kind.BYTES, dtype=dtype, shape=shape, content=content)
    dtype = draw(st.sampled_from(dtypes))
    kind = Kind.BYTES
    if content is Content.VALUES and dtype not in ("string", "bytes"):
        kind = Kind.FLOAT
        if not dtype.startswith("float"):
            kind = draw(st.sampled_from([Kind.INT64, Kind.INT64, Kind.FLOAT]))
    return FeatureSpec(name, kind, dtype=dtype, shape=shape, content=content)


NAMES = st.one_of(
    st.text("abé漢/", min_size=1, max_size=4),
    st.builds(lambda size: "n" * size, st.integers(100, 140)),
)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    return Schema(tuple(draw(features(name)) for name in names))


@st.composite
def nested(draw: st.DrawFn, shape: tuple[int | None, ...], leaf: Any) -> Any:
    if not shape:
        return draw(leaf)
    size = draw(st.integers(0, 3)) if shape[0] is None else shape[0]
    return [draw(nested(shape[1:], leaf)) for _ in range(size)]


@st.composite
def rectangular(draw: st.DrawFn, shape: tuple[int | None, ...], leaf: Any) -> Any:
    sizes = [draw(st.integers(0, 3)) if size is None else size for size in shape]
    count = math.prod(sizes)
    values = draw(st.lists(leaf, min_size=count, max_size=count))
    return sizes, values


def flatten(value: Any, levels: int) -> list[Any]:
    for _ in range(levels):
        value = [item for part in value for item in part]
    return list(value)


def put(example: Example, key: str, kind: Kind, values: list[Any]) -> None:
    target = getattr(example.features.feature[key], kind)
    target.SetInParent()
    if kind is Kind.BYTES:
        values = [v.encode() if isinstance(v, str) else v for v in values]
    convert = {Kind.INT64: int, Kind.FLOAT: float, Kind.BYTES: bytes}[kind]
    target.value.extend(convert(value) for value in values)


def tensor_bytes(feature: FeatureSpec, sizes: list[int], values: list[Any]) -> bytes:
    proto = TensorProto()
    proto.tensor_shape.SetInParent()
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    if feature.dtype in ("string", "bytes"):
        proto.dtype = 7
        proto.string_val.extend(
            value.encode() if isinstance(value, str) else value for value in values
        )
    else:
        proto.dtype, letter = TENSOR_TYPES[feature.dtype]
        proto.tensor_content = struct.pack(f"<{len(values)}{letter}", *values)
    return proto.SerializeToString()


@st.composite
def feature_values(draw: st.DrawFn, example: Example, feature: FeatureSpec) -> None:
    """Puts a value of the feature into the example."""
    leaf = values_of(feature)
    shape = feature.shape
    if feature.content is Content.IMAGE:
        put(example, feature.name, Kind.BYTES, [draw(st.binary())])
    elif feature.content is Content.TENSOR:
        sizes, values = draw(rectangular(shape, leaf))
        data = tensor_bytes(feature, sizes, values)
        put(example, feature.name, Kind.BYTES, [data])
    elif feature.content is Content.ARRAY:
        _, values = draw(rectangular(shape, leaf))
        letter = TENSOR_TYPES[feature.dtype][1]
        data = struct.pack(f"<{len(values)}{letter}", *values)
        put(example, feature.name, Kind.BYTES, [data])
    elif shape.count(None) > 1:
        value = draw(nested(shape, leaf))
        rank = max(i for i, size in enumerate(shape) if size is None)
        for level in range(rank):
            lengths = [len(part) for part in flatten(value, level)]
            key = f"{feature.name}/ragged_row_lengths_{level}"
            put(example, key, Kind.INT64, lengths)
        key = f"{feature.name}/ragged_flat_values"
        put(example, key, feature.kind, flatten(value, len(shape) - 1))
    else:
        _, values = draw(rectangular(shape, leaf))
        put(example, feature.name, feature.kind, values)


@st.composite
def examples(draw: st.DrawFn, schema: Schema) -> Example:
    example = Example()
    example.features.SetInParent()
    for feature in schema.features:
        if draw(st.integers(0, 5)):
            draw(feature_values(example, feature))
    return example


def pieces(example: Example) -> list[bytes]:
    """Each feature as an example of its own; joined, they make the example again."""
    found = []
    for name, feature in example.features.feature.items():
        one = Example()
        one.features.feature[name].CopyFrom(feature)
        found.append(one.SerializeToString())
    return found


@st.composite
def written_by_others(draw: st.DrawFn, example: Example) -> bytes:
    """The example as other writers may lay it out, or with what they add."""
    data = example.SerializeToString(deterministic=True)
    way = draw(
        st.sampled_from(["as it is", "order", "twice", "field", "feature", "no kind"])
    )
    if way == "order":
        return b"".join(draw(st.permutations(pieces(example))))
    if way == "twice":  # the last one counts
        return b"".join(draw(st.permutations(pieces(example)))) + data
    if way == "field":
        return data + bytes.fromhex("9a0603616263")  # field 99, bytes
    if way == "feature":
        put(example, "zz/other", draw(st.sampled_from(list(Kind))), [])
        return example.SerializeToString(deterministic=True)
    if way == "no kind":
        example.features.feature["zz"].SetInParent()
        return example.SerializeToString(deterministic=True)
    return data


@st.composite
def written(draw: st.DrawFn, *, others: bool) -> tuple[Schema, list[bytes]]:
    schema = draw(schemas())
    records = []
    for _ in range(draw(st.integers(0, 6))):
        example = draw(examples(schema))
        if others and draw(st.booleans()):
            records.append(draw(written_by_others(example)))
        else:
            records.append(example.SerializeToString(deterministic=True))
    return schema, records


# Bytes that mean something on the wire: tags, lengths, varints that go on, text.
TELLING = st.sampled_from(
    list(bytes.fromhex("00 01 02 03 04 05 07 08 0a 0c 12 1a 22 42 7f 80 81 ff 2c 35"))
)


@st.composite
def odd_payloads(draw: st.DrawFn, good: bytes) -> bytes:
    way = draw(st.sampled_from(["good", "any", "changed", "longer", "cut", "varints"]))
    if way == "any":
        return bytes(draw(st.lists(TELLING, max_size=12)))
    if way == "changed" and good:
        changed = bytearray(good)
        changed[draw(st.integers(0, min(len(good), 24) - 1))] = draw(TELLING)
        return bytes(changed)
    if way == "longer":
        return good + bytes(draw(st.lists(TELLING, min_size=1, max_size=3)))
    if way == "cut":
        return good[: draw(st.integers(0, len(good)))]
    if way == "varints":  # of 8 to 12 bytes, the last of them larger or smaller
        sizes = draw(st.lists(st.integers(7, 11), max_size=3))
        return b"".join(b"\xff" * size + bytes([draw(TELLING)]) for size in sizes)
    return good


@st.composite
def with_odd_payloads(draw: st.DrawFn) -> tuple[Schema, list[bytes]]:
    """Records whose headers are the encoder's, with payloads that may be anything."""
    schema = draw(schemas())
    owners = {key: feature for feature in schema.features for key in feature.keys}
    records = []
    for _ in range(draw(st.integers(1, 4))):
        stored = draw(examples(schema)).features.feature
        entries = b""
        for key in sorted(stored, key=map_order):
            feature, message = owners[key], stored[key]
            kind = Kind(message.WhichOneof("kind"))
            values = getattr(message, kind)
            single = not feature.shape or feature.content is not Content.VALUES
            good = values.SerializeToString()
            if kind is not Kind.BYTES:
                good = good[2:] if len(good) < 130 else good[3:]
            elif single:
                good = values.value[0]
            payload = draw(odd_payloads(good))
            delimited = kind is not Kind.BYTES or single
            name = key.encode()
            entries += entry_header(name, TAGS[kind], len(payload), delimited=delimited)
            entries += payload
        if draw(st.integers(0, 9)) == 0:
            entries = entries[: draw(st.integers(0, len(entries)))]
        records.append(b"\x0a" + varint(len(entries)) + entries)
    return schema, records


def stored(**values: tuple[Kind, list[Any]]) -> bytes:
    """An example by the protobuf runtime; "__" in a name is "/"."""
    message = Example()
    for name, (kind, items) in values.items():
        feature = message.features.feature[name.replace("__", "/")]
        getattr(feature, kind).value.extend(items)
        getattr(feature, kind).SetInParent()
    return message.SerializeToString(deterministic=True)


def plain(value: Any) -> str:
    """Comparable also for NaN, and telling 0.0 from -0.0."""
    if isinstance(value, list):
        return f"[{', '.join(map(plain, value))}]"
    return (
        repr(float(value)) if isinstance(value, (float, np.floating)) else repr(value)
    )


def tells_dimensions(schema: Schema) -> bool:
    """Rows of nothing, laid flat, do not tell how many there are."""
    return not any(None in f.shape and 0 in f.shape for f in schema.features)


def decode_batch(examples: pa.BinaryArray, schema: Schema) -> pa.RecordBatch:
    """Decodes examples, all of which must fit the schema."""
    decoded = decode_records(examples, schema)
    assert decoded.row_errors == []
    return decoded.batch
