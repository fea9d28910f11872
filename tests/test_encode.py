from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from google.protobuf.internal import api_implementation
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.features import FeatureSpec, Kind, Schema
from schemas.proto import example_pb2
from transforms.encode import encode

GOLDEN = Path(__file__).parent / "data" / "golden"
KINDS = {str(kind): kind for kind in Kind}

INT_TYPES = {
    pa.int8(): 8,
    pa.int16(): 16,
    pa.int32(): 32,
    pa.int64(): 64,
    pa.uint8(): 8,
    pa.uint16(): 16,
    pa.uint32(): 32,
    pa.uint64(): 64,
}
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]

# Payload sizes on both sides of the varints' one- and two-byte limits.
SIZES = st.sampled_from([*range(115, 132), *range(16_368, 16_388)])
LIST_SIZES = st.sampled_from([0, 0, 1, 2, 3, 14, 31, 32, 62, 63, 64, 126, 127, 128])


def oracle(batch: pa.RecordBatch, schema: Schema) -> list[bytes]:
    """What the protobuf runtime writes, row by row."""
    examples = []
    for row in batch.to_pylist():
        example = example_pb2.Example()
        example.features.SetInParent()
        for feature in schema.features:
            value = row[feature.column]
            if value is None:
                continue
            values = value if isinstance(value, list) else [value]
            if feature.kind is Kind.BYTES:
                values = [v.encode() if isinstance(v, str) else v for v in values]
            target = getattr(example.features.feature[feature.name], feature.kind)
            if feature.kind is Kind.INT64:
                values = [int(v) for v in values]
            target.SetInParent()
            target.value.extend(values)
        examples.append(example.SerializeToString(deterministic=True))
    return examples


def int_values(kind: pa.DataType) -> st.SearchStrategy[int]:
    bits = INT_TYPES[kind]
    if pa.types.is_unsigned_integer(kind):
        low, high = 0, min((1 << bits) - 1, (1 << 63) - 1)
    else:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    near = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, -1, low, high])
    return st.one_of(st.integers(low, high), near.filter(lambda v: low <= v <= high))


def float_values(width: Literal[16, 32, 64]) -> st.SearchStrategy[float]:
    # A double beyond float32 is an error, so doubles are drawn from its range.
    return st.one_of(
        st.floats(-3.4e38, 3.4e38, allow_nan=False)
        if width == 64
        else st.floats(width=width, allow_nan=False),
        st.sampled_from([0.0, -0.0, float("inf"), float("-inf"), float("nan")]),
    )


BYTES_VALUES = st.one_of(
    st.binary(max_size=4), st.builds(lambda size: b"x" * size, SIZES)
)
TEXT_VALUES = st.one_of(
    st.text("aß漢😀", max_size=4), st.builds(lambda size: "y" * size, SIZES)
)


@st.composite
def leaf(draw: st.DrawFn) -> tuple[Kind, pa.DataType, st.SearchStrategy[Any]]:
    """A type that a feature may have, and its values."""
    # One of each family, so that no family is drawn more often for its many types.
    ints = st.sampled_from(list(INT_TYPES)).map(
        lambda kind: (Kind.INT64, kind, int_values(kind))
    )
    floats = st.sampled_from(
        [(pa.float16(), 16), (pa.float32(), 32), (pa.float64(), 64)]
    ).map(lambda pair: (Kind.FLOAT, pair[0], float_values(pair[1])))
    texts = st.sampled_from(TEXT_TYPES).map(
        lambda kind: (Kind.BYTES, kind, TEXT_VALUES)
    )
    binaries = st.sampled_from(BINARY_TYPES).map(
        lambda kind: (Kind.BYTES, kind, BYTES_VALUES)
    )
    others = st.sampled_from(
        [
            (Kind.INT64, pa.bool_(), st.booleans()),
            (Kind.BYTES, pa.binary(3), st.binary(min_size=3, max_size=3)),
            (Kind.BYTES, pa.dictionary(pa.int8(), pa.string()), st.text("ab")),
            (Kind.BYTES, pa.dictionary(pa.int32(), pa.binary()), st.binary()),
            (Kind.INT64, pa.dictionary(pa.int16(), pa.int64()), st.integers(-3, 3)),
            *[(kind, pa.null(), st.none()) for kind in Kind],
        ]
    )
    return draw(st.one_of(ints, floats, texts, binaries, others))


@st.composite
def column(draw: st.DrawFn, num_rows: int) -> tuple[Kind, pa.Array]:
    kind, leaf_type, values = draw(leaf())
    shape = draw(st.sampled_from(["scalar", "scalar", "list", "large_list", "fixed"]))
    arrow_type, cells = leaf_type, values
    if shape != "scalar":
        if pa.types.is_null(leaf_type):
            # A list of type null holds nothing, or a null, which is refused.
            arrow_type, cells = pa.list_(pa.null()), st.just([])
        elif shape == "fixed":
            arrow_type = pa.list_(leaf_type, 2)
            cells = st.lists(values, min_size=2, max_size=2)
        else:
            make_type = pa.list_ if shape == "list" else pa.large_list
            arrow_type = make_type(leaf_type)
            cells = st.one_of(
                st.lists(values, max_size=3),
                st.builds(lambda value, size: [value] * size, values, LIST_SIZES),
            )
    if draw(st.booleans()):
        cells = st.one_of(st.none(), cells)
    drawn = draw(st.lists(cells, min_size=num_rows, max_size=num_rows))
    return kind, pa.array(drawn, arrow_type)


NAMES = st.one_of(
    st.text("abé漢/", min_size=1, max_size=4),
    st.builds(lambda size: "n" * size, st.integers(100, 140)),
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.RecordBatch, Schema]:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    before, num_rows, behind = (draw(st.integers(0, n)) for n in (2, 6, 2))
    columns = [draw(column(before + num_rows + behind)) for _ in names]
    batch = pa.RecordBatch.from_arrays([array for _, array in columns], names)
    schema = Schema(
        tuple(
            FeatureSpec(name, kind)
            for name, (kind, _) in zip(names, columns, strict=True)
        )
    )
    return batch.slice(before, num_rows), schema


def one_column(values: Any, arrow_type: pa.DataType, kind: Kind, name: str) -> Any:
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], [name])
    return batch, Schema((FeatureSpec(name, kind),))


def test_oracle_is_the_c_runtime() -> None:
    """Another runtime may order a key and its prefix differently (schemas.features)."""
    assert api_implementation.Type() == "upb"


@settings(max_examples=400, deadline=None)
@given(batches(), st.sampled_from([(0, 0), (12, 4), (1, 0), (0, 3)]))
def test_equals_protobuf(
    made: tuple[pa.RecordBatch, Schema], room: tuple[int, int]
) -> None:
    batch, schema = made
    head, tail = room
    encoded = encode(batch, schema, head_room=head, tail_room=tail)
    encoded.validate(full=True)
    assert encoded.type == pa.binary()
    assert encoded.null_count == 0
    wanted = [bytes(head) + one + bytes(tail) for one in oracle(batch, schema)]
    assert encoded.to_pylist() == wanted


@pytest.mark.parametrize(
    ("kind", "arrow_type", "values", "reason"),
    [
        (Kind.INT64, pa.int64(), [0, 300, -1], "one block of varints of mixed size"),
        (Kind.INT64, pa.int64(), [0, None, 300, -1], "the same, sparse"),
        (Kind.INT64, pa.int64(), [5, 6, 7], "fixed size"),
        (Kind.FLOAT, pa.float32(), [0.5, 1.5], "fixed size"),
        (Kind.FLOAT, pa.float32(), [0.5, None], "sparse"),
        (Kind.BYTES, pa.string(), ["", "ab", "z" * 20], "bytes"),
        (Kind.BYTES, pa.list_(pa.string()), [[], None, ["", "a"]], "list"),
    ],
)
def test_names_around_the_one_byte_limit(
    kind: Kind, arrow_type: pa.DataType, values: list[Any], reason: str
) -> None:
    """Key, feature, entry and features lengths each cross 127 for some of these."""
    for size in range(80, 135):
        batch, schema = one_column(values, arrow_type, kind, "n" * size)
        found = encode(batch, schema).to_pylist()
        assert found == oracle(batch, schema), f"{reason}, name of {size} bytes"


@pytest.mark.parametrize("limit", [127, 16_383, 2_097_151])
def test_payloads_around_varint_limits(limit: int) -> None:
    sizes = range(limit - 16, limit + 3)
    batch, schema = one_column([b"p" * n for n in sizes], None, Kind.BYTES, "key")
    assert encode(batch, schema).to_pylist() == oracle(batch, schema)


def test_key_that_begins_another_comes_behind_it() -> None:
    names = ["a", "ab", "abc", "b", "a/b", "aé"]
    schema = Schema(tuple(FeatureSpec(name, Kind.INT64) for name in names))
    assert [f.name for f in schema.features] == ["a/b", "abc", "ab", "aé", "a", "b"]
    batch = pa.RecordBatch.from_pydict({name: [1] for name in names})
    assert encode(batch, schema).to_pylist() == oracle(batch, schema)


def test_column_named_apart_from_feature() -> None:
    batch = pa.RecordBatch.from_pydict({"x": [7], "unused": ["?"]})
    schema = Schema((FeatureSpec("label", Kind.INT64, column="x"),))
    # Example(label=7), put together by hand from the layout in transforms/encode.py
    assert encode(batch, schema).to_pylist() == [
        bytes.fromhex("0a100a0e0a056c6162656c12051a030a0107")
    ]


def test_example_without_any_feature() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([None], pa.int64()), "b": pa.array([None], pa.string())}
    )
    schema = Schema((FeatureSpec("a", Kind.INT64), FeatureSpec("b", Kind.BYTES)))
    assert encode(batch, schema).to_pylist() == [b"\n\x00"] == oracle(batch, schema)


def test_golden_tutorial_row() -> None:
    golden = json.loads((GOLDEN / "tutorial_row.json").read_text())
    batch = pa.RecordBatch.from_pylist([golden["row"]])
    kinds = [Kind.INT64, Kind.INT64, Kind.BYTES, Kind.FLOAT]
    schema = Schema(
        tuple(FeatureSpec(f"feature{i}", kind) for i, kind in enumerate(kinds))
    )
    assert encode(batch, schema)[0].as_py().hex() == golden["serialized_hex"]


def zoo() -> list[Any]:
    entries: list[Any] = json.loads((GOLDEN / "zoo.json").read_text())
    return entries


@pytest.mark.parametrize("entry", zoo(), ids=lambda entry: ",".join(entry["features"]))
def test_golden_zoo(entry: dict[str, Any]) -> None:
    types = {"int64_list": pa.int64(), "float_list": pa.float64()}
    as_list, as_scalar, features = {}, {}, []
    for name, stored in entry["features"].items():
        kind = KINDS[stored["kind"]]
        values = stored["value"]
        if kind is Kind.FLOAT:
            values = [float(value) for value in values]
        value_type = types.get(stored["kind"], pa.string())
        as_list[name] = pa.array([values], pa.list_(value_type))
        if len(values) == 1:
            as_scalar[name] = pa.array(values, value_type)
        features.append(FeatureSpec(name, kind))
    schema = Schema(tuple(features))
    wanted = entry["serialized_hex"]
    found = encode(pa.RecordBatch.from_pydict(as_list), schema)
    assert found[0].as_py().hex() == wanted
    if as_scalar.keys() == as_list.keys():
        found = encode(pa.RecordBatch.from_pydict(as_scalar), schema)
        assert found[0].as_py().hex() == wanted
