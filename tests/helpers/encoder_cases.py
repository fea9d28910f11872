"""Random features with their columns, and what protobuf's runtime makes of them.

What a row stores is worked out value by value from Python lists; no code is shared
with the encoder.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.proto import example_pb2

# Payload sizes on both sides of the varints' one- and two-byte limits.
SIZES = st.sampled_from([*range(115, 132), *range(16_368, 16_388)])
NAMES = st.one_of(
    st.text("abé漢/", min_size=1, max_size=4),
    st.builds(lambda size: "n" * size, st.integers(100, 140)),
)
# struct's letters and tensorflow/core/framework/types.proto's numbers.
NUMBERS = {
    "bool": ("?", 10),
    "int8": ("b", 6),
    "int16": ("h", 5),
    "int32": ("i", 3),
    "int64": ("q", 9),
    "uint8": ("B", 4),
    "uint16": ("H", 17),
    "uint32": ("I", 22),
    "uint64": ("Q", 23),
    "float16": ("e", 19),
    "float32": ("f", 1),
    "float64": ("d", 2),
}

# What one key stores in one row; None where the row has no value.
Stored = tuple[Kind, list[Any]] | None


@dataclass(frozen=True)
class Leaf:
    """A type of values that a feature may have.

    Attributes:
      values: as pa.array takes them; integers for dates and times.
    """

    kind: Kind
    dtype: str
    values: st.SearchStrategy[Any]
    arrow_type: pa.DataType


@dataclass(frozen=True)
class Case:
    """A feature, its column, and what each of its keys (or steps) stores by row."""

    feature: FeatureSpec
    array: pa.Array
    stored: list[dict[str, Stored]]
    steps: list[list[Stored] | None]


def int_values(dtype: str) -> st.SearchStrategy[int]:
    bits = int(dtype.lstrip("uint"))
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if dtype.startswith("u"):
        low, high = 0, (1 << bits) - 1
    near = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 1 << 21, 1 << 28, -1])
    limits = st.sampled_from([low, high])
    return st.one_of(
        st.integers(low, high), limits, near.filter(lambda v: low <= v <= high)
    )


def float_values(bits: Literal[16, 32, 64]) -> st.SearchStrategy[float]:
    # A double beyond float32 is refused, so doubles are drawn from its range.
    return st.one_of(
        st.floats(-3.4e38, 3.4e38, allow_nan=False)
        if bits == 64
        else st.floats(width=bits, allow_nan=False),
        st.sampled_from([0.0, -0.0, float("inf"), float("-inf"), float("nan")]),
    )


TEXT = st.one_of(st.text("aß漢😀", max_size=4), st.builds(lambda n: "y" * n, SIZES))
BYTES = st.one_of(st.binary(max_size=4), st.builds(lambda n: b"x" * n, SIZES))
I64_AS_U64 = st.integers(0, (1 << 63) - 1)
MILLIS_OF_A_DAY = st.integers(0, 86_399_999)


def _numbers() -> list[Leaf]:
    leaves = []
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"):
        kind = pa.from_numpy_dtype(dtype)
        leaves.append(Leaf(Kind.INT64, dtype, int_values(dtype), kind))
    u64 = pa.uint64()
    leaves.append(Leaf(Kind.INT64, "uint64", I64_AS_U64, u64))
    leaves.append(Leaf(Kind.INT64, "bool", st.booleans(), pa.bool_()))
    for bits in (16, 32, 64):
        kind = pa.from_numpy_dtype(f"float{bits}")
        leaves.append(Leaf(Kind.FLOAT, f"float{bits}", float_values(bits), kind))
    return leaves


def _bytes() -> list[Leaf]:
    leaves = [
        Leaf(Kind.BYTES, dtype, TEXT, arrow_type)
        for dtype in ("string", "bytes")
        for arrow_type in (pa.string(), pa.large_string(), pa.string_view())
    ]
    leaves += [
        Leaf(Kind.BYTES, "bytes", BYTES, arrow_type)
        for arrow_type in (pa.binary(), pa.large_binary(), pa.binary_view())
    ]
    utf8 = TEXT.map(str.encode)
    fixed = st.binary(min_size=3, max_size=3)
    return [
        *leaves,
        Leaf(Kind.BYTES, "string", utf8, pa.binary()),
        Leaf(Kind.BYTES, "bytes", fixed, pa.binary(3)),
    ]


def _others() -> list[Leaf]:
    days, seconds = int_values("int32"), int_values("int64")
    times = [
        (pa.date32(), days),
        (pa.date64(), st.integers(-9999, 9999).map((86_400_000).__mul__)),
        (pa.time32("ms"), MILLIS_OF_A_DAY),
        (pa.time64("us"), MILLIS_OF_A_DAY),
        (pa.timestamp("ns"), seconds),
        (pa.timestamp("s", "UTC"), seconds),
        (pa.duration("us"), seconds),
    ]
    leaves = [Leaf(Kind.INT64, "int64", v, arrow_type) for arrow_type, v in times]
    coded = [
        (Kind.BYTES, "string", pa.int8(), pa.string(), st.text("ab", max_size=2)),
        (Kind.BYTES, "bytes", pa.int32(), pa.binary(), st.binary(max_size=2)),
        (Kind.INT64, "int64", pa.int16(), pa.int64(), st.integers(-3, 3)),
    ]
    for kind, dtype, index, base, values in coded:
        leaves.append(Leaf(kind, dtype, values, pa.dictionary(index, base)))
    # Numbers as they are declared for a float list.
    for dtype in ("int16", "uint8", "bool"):
        own = pa.from_numpy_dtype(dtype)
        few = st.booleans() if dtype == "bool" else int_values(dtype)
        leaves.append(Leaf(Kind.FLOAT, dtype, few, own))
    return leaves


# One family after another, so that none is drawn more often for its many types.
LEAVES = st.one_of(*map(st.sampled_from, (_numbers(), _bytes(), _others())))
# uint64 in all its range where no int64 list has to hold it.
WHOLE_U64 = Leaf(Kind.BYTES, "uint64", int_values("uint64"), pa.uint64())
PLAIN_NUMBERS = st.sampled_from([*_numbers(), WHOLE_U64])
TENSOR_LEAVES = st.one_of(PLAIN_NUMBERS, st.sampled_from(_bytes()))


def shapes(max_unknown: int) -> st.SearchStrategy[tuple[int | None, ...]]:
    sides = st.sampled_from([None, None, 1, 2, 3, 0])
    few = st.lists(sides, max_size=3).map(tuple)
    return st.one_of(
        st.just(()), few.filter(lambda shape: shape.count(None) <= max_unknown)
    )


@st.composite
def cases(draw: st.DrawFn, name: str, num_rows: int, *, sequence: bool) -> Case:
    """A feature with a column of so many rows."""
    content = draw(
        st.sampled_from([Content.VALUES] * 3 + [Content.TENSOR, Content.ARRAY])
    )
    if content is Content.VALUES:
        leaf = draw(LEAVES)
        shape = draw(shapes(1 if sequence else 3))
        kind = leaf.kind
    else:
        leaf = draw(TENSOR_LEAVES if content is Content.TENSOR else PLAIN_NUMBERS)
        shape = draw(shapes(3 if content is Content.TENSOR else 1))
        kind = Kind.BYTES
    optional = draw(st.booleans())
    feature = FeatureSpec(
        name,
        kind,
        dtype=leaf.dtype,
        shape=shape,
        content=content,
        optional=optional,
        is_sequence=sequence,
    )
    depth = draw(st.integers(*depths(feature)))
    cell = cells(leaf.values, shape, depth, ragged=feature.is_ragged)
    if sequence:
        cell = st.lists(cell, max_size=3)
    if optional:
        cell = st.one_of(st.none(), cell)
    rows = draw(st.lists(cell, min_size=num_rows, max_size=num_rows))
    levels = draw(
        st.lists(LEVELS, min_size=depth + sequence, max_size=depth + sequence)
    )
    array = pa.array(rows, listed(leaf.arrow_type, levels))
    if sequence:
        steps = [
            None
            if row is None
            else [stored_of(step, feature, depth)[name] for step in row]
            for row in rows
        ]
        return Case(feature, array, [], steps)
    stored = [
        dict.fromkeys(feature.keys) if row is None else stored_of(row, feature, depth)
        for row in rows
    ]
    return Case(feature, array, stored, [])


LEVELS = st.sampled_from([pa.list_, pa.list_, pa.large_list, pa.list_view])


def listed(leaf: pa.DataType, levels: list[Any]) -> pa.DataType:
    for make_type in levels:
        leaf = make_type(leaf)
    return leaf


def depths(feature: FeatureSpec) -> tuple[int, int]:
    """Levels of lists: one at least for all but the last unknown dimension."""
    shape = feature.shape
    unknown = [i for i, size in enumerate(shape) if size is None]
    fewest = min(1, len(shape))
    if len(unknown) > 1:
        fewest = unknown[-1] + 1 if feature.is_ragged else unknown[-2] + 2
    return fewest, len(shape)


@st.composite
def cells(
    draw: st.DrawFn,
    values: st.SearchStrategy[Any],
    shape: tuple[int | None, ...],
    depth: int,
    *,
    ragged: bool,
) -> Any:
    """A row's value as lists nested `depth` deep, the last dimensions in one list."""
    sizes = st.integers(0, 3)
    if len(shape) == 1:
        sizes = st.sampled_from([0, 0, 1, 2, 3, 14, 31, 32, 62, 63, 64, 126, 127, 128])
    even = [draw(sizes) if size is None else size for size in shape]
    # Long lists repeat one value: what matters is their length.
    repeated = draw(values) if math.prod(even) > 8 else None

    def nest(place: int) -> Any:
        if place == len(shape):
            return draw(values) if repeated is None else repeated
        size = draw(sizes) if ragged and shape[place] is None else even[place]
        items = [nest(place + 1) for _ in range(size)]
        joins = place >= depth - 1 and place + 1 < len(shape)
        return [value for item in items for value in item] if joins else items

    return nest(0)


def flat(value: Any, depth: int) -> list[Any]:
    for _ in range(depth - 1):
        value = [item for part in value for item in part]
    return list(value) if depth else [value]


def stored_of(value: Any, feature: FeatureSpec, depth: int) -> dict[str, Stored]:
    """What the feature's keys store for one value."""
    values = [v.encode() if isinstance(v, str) else v for v in flat(value, depth)]
    if feature.content is Content.TENSOR:
        dims = dims_of(value, feature.shape, depth)
        return {feature.name: (Kind.BYTES, [tensor(values, feature.dtype, dims)])}
    if feature.content is Content.ARRAY:
        return {feature.name: (Kind.BYTES, [packed(values, feature.dtype)])}
    if feature.kind is not Kind.BYTES:
        make = int if feature.kind is Kind.INT64 else float
        values = [make(v) for v in values]
    stored: dict[str, Stored] = {}
    for key in feature.keys:
        stem, _, level = key.rpartition("_lengths_")
        if not (feature.is_ragged and stem):
            stored[key] = (feature.kind, values)
            continue
        lists = value
        for _ in range(int(level)):
            lists = [item for part in lists for item in part]
        lengths = [len(item) for item in lists]
        if int(level) + 2 == depth:
            inside = math.prod(feature.shape[depth:])  # type: ignore[arg-type]
            lengths = [length // inside if inside else 0 for length in lengths]
        stored[key] = (Kind.INT64, lengths)
    return stored


def dims_of(value: Any, shape: tuple[int | None, ...], depth: int) -> list[int]:
    """The dimensions of one value; an unknown one inside nothing is 0."""
    dims = [size or 0 for size in shape]
    for place in range(depth - 1):
        dims[place] = len(value) if shape[place] is None else dims[place]
        value = value[0] if value else []
    for place in range(max(depth - 1, 0), len(shape)):
        if shape[place] is None:
            inside = math.prod(n for n in shape[depth - 1 :] if n is not None)
            dims[place] = len(value) // inside if inside else 0
    return dims


def packed(values: list[Any], dtype: str) -> bytes:
    return struct.pack(f"<{len(values)}{NUMBERS[dtype][0]}", *values)


def tensor(values: list[Any], dtype: str, dims: list[int]) -> bytes:
    """A TensorProto by hand; golden/tensors.json holds TensorFlow's to compare."""
    sides = [b"\x08" + varint(size) if size else b"" for size in dims]
    shape = b"".join(b"\x12" + varint(len(side)) + side for side in sides)
    number = NUMBERS[dtype][1] if dtype in NUMBERS else 7
    head = bytes([8, number, 0x12, len(shape)]) + shape
    if dtype not in NUMBERS:
        return head + b"".join(b"\x42" + varint(len(v)) + v for v in values)
    content = packed(values, dtype)
    return head + b"\x22" + varint(len(content)) + content if content else head


def varint(value: int) -> bytes:
    parts = []
    while value > 127:
        parts.append(value % 128 + 128)
        value //= 128
    return bytes([*parts, value])


@st.composite
def batches(
    draw: st.DrawFn, *, sequences: bool = False
) -> tuple[pa.RecordBatch, Schema, list[Case]]:
    """A batch that may be a slice, its schema, and the cases it is made of."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    before, num_rows, behind = (draw(st.integers(0, n)) for n in (2, 5, 2))
    made = []
    for name in names:
        sequence = sequences and draw(st.booleans())
        made.append(draw(cases(name, before + num_rows + behind, sequence=sequence)))
    batch = pa.RecordBatch.from_arrays([case.array for case in made], names)
    schema = Schema(tuple(case.feature for case in made))
    keep = slice(before, before + num_rows)
    kept = [
        Case(case.feature, case.array, case.stored[keep], case.steps[keep])
        for case in made
    ]
    return batch.slice(before, num_rows), schema, kept


def fill_feature(feature: example_pb2.Feature, stored: Stored) -> None:
    assert stored is not None  # the caller's condition
    kind, values = stored
    target = getattr(feature, kind)
    target.SetInParent()
    target.value.extend(values)


def example_of(made: list[Case], row: int) -> example_pb2.Example:
    """The row as the protobuf runtime has it."""
    example = example_pb2.Example()
    example.features.SetInParent()
    fill_map(example.features, made, row)
    return example


def sequence_of(made: list[Case], row: int) -> example_pb2.SequenceExample:
    """The row with feature lists as the protobuf runtime has it."""
    example = example_pb2.SequenceExample()
    example.context.SetInParent()
    example.feature_lists.SetInParent()
    fill_map(example.context, [c for c in made if not c.feature.is_sequence], row)
    for case in made:
        if not case.feature.is_sequence or case.steps[row] is None:
            continue
        steps = example.feature_lists.feature_list[case.feature.name]
        steps.SetInParent()
        for step in case.steps[row] or []:
            fill_feature(steps.feature.add(), step)
    return example


def fill_map(features: example_pb2.Features, made: list[Case], row: int) -> None:
    for case in made:
        for key, stored in case.stored[row].items():
            if stored is not None:
                fill_feature(features.feature[key], stored)
