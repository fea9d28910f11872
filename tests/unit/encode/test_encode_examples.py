from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from encoder_cases import Case, batches, example_of, fill_feature
from example_counts import examples
from google.protobuf.internal import api_implementation
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.proto import example_pb2
from recordmill.transforms.encode.columns import check_types
from recordmill.transforms.encode.examples import encode

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
KINDS = {str(kind): kind for kind in Kind}


def oracle(batch: pa.RecordBatch, schema: Schema) -> list[bytes]:
    """What the protobuf runtime writes for scalars and lists, row by row."""
    examples = []
    for row in batch.to_pylist():
        example = example_pb2.Example()
        example.features.SetInParent()
        for feature in schema.features:
            value = row[feature.column]
            if value is None:
                continue
            values = value if isinstance(value, list) else [value]
            values = [v.encode() if isinstance(v, str) else v for v in values]
            fill_feature(example.features.feature[feature.name], (feature.kind, values))
        examples.append(example.SerializeToString(deterministic=True))
    return examples


def one_column(values: Any, arrow_type: pa.DataType, kind: Kind, name: str) -> Any:
    batch = pa.RecordBatch.from_arrays([pa.array(values, arrow_type)], [name])
    shape = (None,) if isinstance(arrow_type, pa.ListType) else ()
    return batch, Schema((FeatureSpec(name, kind, shape=shape),))


def test_oracle_is_the_c_runtime() -> None:
    """Another runtime may order a key and its prefix differently (recordmill.schemas.feature_spec)."""
    assert api_implementation.Type() == "upb"


@examples(1000)
@given(batches(), st.sampled_from([(0, 0), (12, 4), (1, 0), (0, 3)]))
def test_equals_protobuf(
    made: tuple[pa.RecordBatch, Schema, list[Case]], room: tuple[int, int]
) -> None:
    batch, schema, cases = made
    head, tail = room
    check_types(batch.schema, schema)
    encoded = encode(batch, schema, head_room=head, tail_room=tail)
    encoded.validate(full=True)
    assert encoded.type == pa.binary()
    assert encoded.null_count == 0
    wanted = [
        bytes(head)
        + example_of(cases, row).SerializeToString(deterministic=True)
        + bytes(tail)
        for row in range(batch.num_rows)
    ]
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
    # Example(label=7), put together by hand from the layout in transforms/encode/examples.py
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
        features.append(FeatureSpec(name, kind, shape=(None,)))
    wanted = entry["serialized_hex"]
    found = encode(pa.RecordBatch.from_pydict(as_list), Schema(tuple(features)))
    assert found[0].as_py().hex() == wanted
    if as_scalar.keys() == as_list.keys():
        scalars = tuple(replace(feature, shape=()) for feature in features)
        found = encode(pa.RecordBatch.from_pydict(as_scalar), Schema(scalars))
        assert found[0].as_py().hex() == wanted
