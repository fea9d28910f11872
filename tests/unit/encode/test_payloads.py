"""What a record can hold instead of an example, against protobuf's own runtime."""

from __future__ import annotations

import json
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from encoder_cases import Case, batches, example_of, sequence_of
from example_counts import examples
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import Example, SequenceExample
from recordmill.transforms.encode.columns import check_types
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.payloads import (
    check_payload,
    encode_payload,
    raw_feature,
)

ROOMS = st.sampled_from([(0, 0), (12, 4), (1, 0), (0, 3)])
Made = tuple[pa.RecordBatch, Schema, list[Case]]

IMAGE = FeatureSpec("image", Kind.BYTES, content=Content.IMAGE, shape=(None,) * 3)
PIXELS = FeatureSpec(
    "pixels", Kind.BYTES, dtype="uint8", shape=(2,), content=Content.ARRAY
)
TENSOR = FeatureSpec("tensor", Kind.BYTES, dtype="int8", content=Content.TENSOR)
NAME = FeatureSpec("name", Kind.BYTES, dtype="string")
NOTE = FeatureSpec("note", Kind.BYTES, dtype="string")
TAGS = FeatureSpec("tags", Kind.BYTES, dtype="string", shape=(None,))
LABEL = FeatureSpec("label", Kind.INT64)
FRAMES = FeatureSpec("frames", Kind.INT64, is_sequence=True)


def without_room(records: pa.BinaryArray, room: tuple[int, int]) -> list[bytes]:
    """The records; what stands around them must be zeros."""
    head, tail = room
    found = []
    records.validate(full=True)
    assert records.type == pa.binary()
    assert records.null_count == 0
    for record in records.to_pylist():
        end = len(record) - tail
        assert not any(record[:head] + record[end:])
        found.append(record[head:end])
    return found


@examples(500)
@given(batches(sequences=True), ROOMS)
def test_sequence_examples_equal_protobuf(made: Made, room: tuple[int, int]) -> None:
    batch, schema, cases = made
    check_payload(schema, "sequence_example")
    check_types(batch.schema, schema)
    records = encode_payload(
        batch, schema, "sequence_example", head_room=room[0], tail_room=room[1]
    )
    assert without_room(records, room) == [
        sequence_of(cases, row).SerializeToString(deterministic=True)
        for row in range(batch.num_rows)
    ]


@examples(400)
@given(batches(), ROOMS)
def test_json_means_the_example(made: Made, room: tuple[int, int]) -> None:
    batch, schema, cases = made
    records = encode_payload(
        batch, schema, "json", head_room=room[0], tail_room=room[1]
    )
    for row, text in enumerate(without_room(records, room)):
        found = json_format.Parse(text, Example())
        wanted = example_of(cases, row)
        # As bytes, because NaN is not equal to itself.
        assert found.SerializeToString(deterministic=True) == wanted.SerializeToString(
            deterministic=True
        )


def test_json_of_the_largest_floats() -> None:
    """3.4028235e+38, their fewest digits, is too large for protobuf's parser."""
    largest = np.finfo(np.float32).max
    values = np.array([largest, -largest, np.inf, -np.inf, 1.0], np.float32)
    batch = pa.RecordBatch.from_pydict({"f": pa.array([values])})
    schema = Schema((FeatureSpec("f", Kind.FLOAT, shape=(None,)),))
    (text,) = encode_payload(batch, schema, "json").to_pylist()
    found = json_format.Parse(text, Example()).features.feature["f"].float_list.value
    assert list(found) == values.tolist()


def test_json_text() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "b": pa.array([[b"\0\xff", b""], [], None]),
            "a": pa.array([1 << 60, None, -1]),
            'a"\n': pa.array([[0.1, -0.0, float("nan")], [float("-inf"), 1e20], None]),
            "c": pa.array(["ß", None, None]),
        }
    )
    schema = Schema(
        (
            FeatureSpec("a", Kind.INT64),
            FeatureSpec('a"\n', Kind.FLOAT, shape=(None,)),
            FeatureSpec("b", Kind.BYTES, shape=(None,)),
            FeatureSpec("c", Kind.BYTES, dtype="string"),
        )
    )
    start = '{"features":{"feature":{'
    found = encode_payload(batch, schema, "json").to_pylist()
    assert [text.decode() for text in found] == [
        start + '"a":{"int64List":{"value":["1152921504606846976"]}},'
        '"a\\"\\n":{"floatList":{"value":[0.1,-0.0,"NaN"]}},'
        '"b":{"bytesList":{"value":["AP8=",""]}},'
        '"c":{"bytesList":{"value":["w58="]}}}}}',
        start + '"a\\"\\n":{"floatList":{"value":["-Infinity",1e+20]}},'
        '"b":{"bytesList":{"value":[]}}}}}',
        start + '"a":{"int64List":{"value":["-1"]}}}}}',
    ]
    for text in found:
        features = json.loads(text)["features"]["feature"]
        assert list(features) == sorted(features)


def test_json_of_a_row_without_any_value() -> None:
    batch = pa.RecordBatch.from_pydict({"label": pa.array([None], pa.int64())})
    found = encode_payload(batch, Schema((LABEL,)), "json").to_pylist()
    assert found == [b'{"features":{"feature":{}}}']


@pytest.mark.parametrize("seed", range(4))
def test_json_keeps_every_float32(seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 1 << 32, 20_000, np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    batch = pa.RecordBatch.from_pydict(
        {"x": pa.array([values.tolist()], pa.list_(pa.float32()))}
    )
    schema = Schema((FeatureSpec("x", Kind.FLOAT, shape=(None,)),))
    (text,) = encode_payload(batch, schema, "json").to_pylist()
    printed = json.loads(text)["features"]["feature"]["x"]["floatList"]["value"]
    assert (
        np.array(printed, np.float64).astype(np.float32).tobytes() == values.tobytes()
    )


def test_sequence_example_by_hand() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"frames": pa.array([[5], [], None]), "label": pa.array([1, None, 2])}
    )
    schema = Schema((FRAMES, LABEL))
    context = "0a10" + "0a0e" + "0a05" + b"label".hex() + "1205" + "1a030a0101"
    found = encode_payload(batch, schema, "sequence_example").to_pylist()
    assert found[0].hex() == (
        context
        + "1213"
        + "0a11"
        + "0a06"
        + b"frames".hex()
        + "1207"
        + "0a05"
        + "1a030a0105"
    )
    # An empty list of steps is an entry; a missing one is none.
    assert (
        found[1].hex() == "0a00" + "120c" + "0a0a" + "0a06" + b"frames".hex() + "1200"
    )
    assert found[2].hex() == context.replace("0101", "0102") + "1200"


def test_rows_with_a_step_that_does_not_fit() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "frames": pa.array([[1], [], [2, None], None, [3, None]]),
            "big": pa.array(
                [[[1]], [[2], [1 << 63]], [[3, 4]], [], None],
                pa.list_(pa.list_(pa.uint64())),
            ),
        }
    )
    schema = Schema(
        (FRAMES, FeatureSpec("big", Kind.INT64, shape=(1,), is_sequence=True))
    )
    with pytest.raises(RowsError) as caught:
        encode_payload(batch, schema, "sequence_example")
    assert caught.value.errors == {
        2: "feature 'big': length 2 in dimension 0, expected 1 (shape [1])",
        4: "feature 'frames': a list contains an empty or null value",
    }


def test_step_of_wrong_type() -> None:
    batch = pa.RecordBatch.from_pydict({"frames": pa.array([["a"]])})
    with pytest.raises(SchemaError, match=r"type string, for example 'a' in row 0: "):
        encode_payload(batch, Schema((FRAMES,)), "sequence_example")
    batch = pa.RecordBatch.from_pydict({"frames": pa.array([1])})
    with pytest.raises(SchemaError, match=r"requires 1, a list of steps included: "):
        encode_payload(batch, Schema((FRAMES,)), "sequence_example")


def test_column_of_no_type_for_steps() -> None:
    batch = pa.RecordBatch.from_pydict({"frames": pa.nulls(2)})
    found = encode_payload(batch, Schema((FRAMES,)), "sequence_example").to_pylist()
    assert found == [
        SequenceExample.FromString(record).SerializeToString() for record in found
    ]
    assert found == [b"\x0a\x00\x12\x00"] * 2


@pytest.mark.parametrize("payload", ["example", "json"])
def test_feature_lists_need_sequence_examples(payload: Payload) -> None:
    schema = Schema((FRAMES, LABEL))
    message = (
        "^feature 'frames': only sequence examples have feature lists. Use `payload"
    )
    with pytest.raises(SchemaError, match=message):
        check_payload(schema, payload)
    batch = pa.RecordBatch.from_pydict({"frames": [[1]], "label": [1]})
    with pytest.raises(SchemaError, match=message):
        encode_payload(batch, schema, payload)


def test_steps_are_not_ragged() -> None:
    feature = FeatureSpec("f", Kind.INT64, shape=(None, None), is_sequence=True)
    with pytest.raises(SchemaError, match=r"store the steps as tensors$"):
        check_payload(Schema((feature,)), "sequence_example")
    batch = pa.RecordBatch.from_pydict({"f": [[[[1]]]]})
    with pytest.raises(SchemaError, match=r"store the steps as tensors$"):
        encode_payload(batch, Schema((feature,)), "sequence_example")


RAW = [
    ((NAME, LABEL), NAME, "the only bytes"),
    ((IMAGE, NAME, LABEL), IMAGE, "the only image among several"),
    ((PIXELS, NAME, TENSOR), PIXELS, "the only array among several"),
    ((TENSOR, LABEL), TENSOR, "a tensor is bytes, too"),
    ((NAME, TAGS), NAME, "a list is not one value"),
]


@pytest.mark.parametrize(("features", "wanted", "reason"), RAW)
def test_which_feature_is_the_record(
    features: tuple[FeatureSpec, ...], wanted: FeatureSpec, reason: str
) -> None:
    schema = Schema(features)
    check_payload(schema, "raw")
    assert raw_feature(schema) == wanted, reason


NOT_RAW = [
    (
        (LABEL, TAGS),
        "no feature has one bytes value per record; the features are label, tags",
    ),
    (
        (NAME, NOTE),
        "a record contains the bytes of one feature, but there are name, note",
    ),
    ((IMAGE, PIXELS, NAME), "the bytes of one feature, but there are image, pixels"),
]


@pytest.mark.parametrize(("features", "said"), NOT_RAW)
def test_no_feature_or_several_for_raw(
    features: tuple[FeatureSpec, ...], said: str
) -> None:
    with pytest.raises(
        SchemaError, match=f"^payload raw: .*{said}: .*(declare|choose)"
    ):
        check_payload(Schema(features), "raw")


def test_raw_records_are_the_columns_bytes() -> None:
    rows = ["first line", "", "ß"]
    batch = pa.RecordBatch.from_pydict({"name": rows, "label": [1, 2, 3]})
    schema = Schema((NAME, LABEL))
    for room in [(0, 0), (12, 4)]:
        records = encode_payload(
            batch, schema, "raw", head_room=room[0], tail_room=room[1]
        )
        assert without_room(records, room) == [row.encode() for row in rows]
        assert records.buffers()[2].is_mutable
        assert records.buffers()[2].address != batch["name"].buffers()[2].address


def test_raw_record_needs_a_value() -> None:
    batch = pa.RecordBatch.from_pydict({"name": ["a", None, None]})
    with pytest.raises(RowsError) as caught:
        encode_payload(batch, Schema((NAME,)), "raw")
    reason = "feature 'name': no value, but a raw record needs its bytes"
    assert caught.value.errors == dict.fromkeys((1, 2), reason)


def test_example_is_the_default_encoding() -> None:
    batch = pa.RecordBatch.from_pydict({"label": [1, 2]})
    schema = Schema((LABEL,))
    assert encode_payload(batch, schema, "example").equals(encode(batch, schema))


def test_every_payload_takes_an_empty_batch() -> None:
    batch = pa.RecordBatch.from_pydict({"name": pa.array([], pa.string())})
    payloads: tuple[Any, ...] = get_args(Payload)
    assert len(payloads) == 4
    for payload in payloads:
        records = encode_payload(
            batch, Schema((NAME,)), payload, head_room=12, tail_room=4
        )
        assert len(records) == 0
        assert records.type == pa.binary()
