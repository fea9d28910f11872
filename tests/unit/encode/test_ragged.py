"""Ragged features: which keys they have, what lies in them, and in which order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.encode.examples import encode

INT64 = Kind.INT64
Shape = tuple[int | None, ...]


def keys_of(rows: list[Any], arrow_type: pa.DataType, shape: Shape) -> list[Any]:
    """Each row's map, the name of the feature left out of the keys."""
    batch = pa.RecordBatch.from_arrays([pa.array(rows, arrow_type)], ["f"])
    schema = Schema((FeatureSpec("f", INT64, shape=shape),))
    found = []
    for record in encode(batch, schema).to_pylist():
        features = Example.FromString(record).features.feature
        found.append(
            {
                key.removeprefix("f/ragged_"): list(feature.int64_list.value)
                for key, feature in features.items()
            }
        )
    return found


def lists(depth: int) -> pa.DataType:
    arrow_type = pa.int64()
    for _ in range(depth):
        arrow_type = pa.list_(arrow_type)
    return arrow_type


def test_two_unknown_dimensions() -> None:
    rows = [[[1, 2, 3], [], [4, 5]], [], None, [[]]]
    assert keys_of(rows, lists(2), (None, None)) == [
        # The example of tensorflow_datasets/core/example_serializer.py
        {"flat_values": [1, 2, 3, 4, 5], "row_lengths_0": [3, 0, 2]},
        {"flat_values": [], "row_lengths_0": []},
        {},
        {"flat_values": [], "row_lengths_0": [0]},
    ]


BOXES = [
    ([[[[1, 2], [3, 4]], []], [[[5, 6]]]], 3, "a list for each box"),
    ([[[1, 2, 3, 4], []], [[5, 6]]], 2, "all boxes of a frame in one list"),
]


@pytest.mark.parametrize(("rows", "depth", "reason"), BOXES)
def test_known_last_dimension_has_none(
    rows: list[Any], depth: int, reason: str
) -> None:
    assert keys_of(rows, lists(depth), (None, None, 2)) == [
        {"flat_values": [1, 2, 3, 4], "row_lengths_0": [2, 0]},
        {"flat_values": [5, 6], "row_lengths_0": [1]},
    ], reason


def test_keys_lie_among_those_of_other_features() -> None:
    """The map is sorted by key; by feature name a/s would come before a's keys."""
    names = ["a", "a/s", "a/ragged", "a/ragged_flat_values2", "a/ragged_s", "b"]
    features = [FeatureSpec(name, INT64) for name in names[1:]]
    schema = Schema((FeatureSpec("a", Kind.FLOAT, shape=(None, None)), *features))
    columns: dict[str, Any] = {name: pa.array([7]) for name in names[1:]}
    columns["a"] = pa.array([[[0.5], []]], pa.list_(pa.list_(pa.float32())))
    (found,) = encode(pa.RecordBatch.from_pydict(columns), schema).to_pylist()
    example = Example()
    feature = example.features.feature
    for name in names[1:]:
        feature[name].int64_list.value.append(7)
    feature["a/ragged_flat_values"].float_list.value.append(0.5)
    feature["a/ragged_row_lengths_0"].int64_list.value.extend([1, 0])
    assert found == example.SerializeToString(deterministic=True)
    assert found.index(b"a/ragged_s") < found.index(b"a/s")


def test_keys_that_collide() -> None:
    with pytest.raises(
        SchemaError,
        match=r"^features 'a/ragged_row_lengths_0' and 'a' would both be stored under "
        r"the key 'a/ragged_row_lengths_0': rename one of them$",
    ):
        Schema(
            (
                FeatureSpec("a", INT64, shape=(None, None)),
                FeatureSpec("a/ragged_row_lengths_0", INT64),
            )
        )
    # Without a second unknown dimension there is no such key.
    Schema(
        (
            FeatureSpec("a", INT64, shape=(None, 2)),
            FeatureSpec("a/ragged_row_lengths_0", INT64),
        )
    )


def test_rows_that_do_not_fit_are_named() -> None:
    beyond = 1 << 63
    rows = [[[1], [2]], [[beyond]], [], [[], [3, beyond]]]
    with pytest.raises(RowsError) as caught:
        keys_of(rows, pa.list_(pa.list_(pa.uint64())), (None, None))
    assert list(caught.value.errors) == [1, 3]
    with pytest.raises(RowsError) as caught:
        keys_of([[[1]], [None], [[None]]], lists(2), (None, None))
    reason = "feature 'f': a list contains an empty or null value"
    assert caught.value.errors == dict.fromkeys((1, 2), reason)
