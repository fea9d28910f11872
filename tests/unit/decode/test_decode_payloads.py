from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from decode_cases import stored, tells_dimensions
from encoder_cases import batches
from example_counts import examples
from hypothesis import assume, given

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import SequenceExample
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.encode.payloads import encode_payload
from recordmill.transforms.encode.tensors import tensor_head

LABEL = FeatureSpec("label", Kind.INT64)
FRAMES = FeatureSpec("frames", Kind.FLOAT, shape=(2,), is_sequence=True)
WORDS = FeatureSpec(
    "words", Kind.BYTES, dtype="string", is_sequence=True, optional=True
)


def takes_back(batch: pa.RecordBatch, schema: Schema, payload: Payload) -> None:
    assume(tells_dimensions(schema))
    records = encode_payload(batch, schema, payload)
    decoded = decode_payload(records, schema, payload, unknown="error")
    assert decoded.row_errors == []
    again = encode_payload(decoded.batch, schema, payload)
    assert again.to_pylist() == records.to_pylist()


@examples(200)
@given(batches(sequences=True))
def test_takes_back_sequence_examples(made: tuple[Any, ...]) -> None:
    takes_back(made[0], made[1], "sequence_example")


@examples(200)
@given(batches())
def test_takes_back_json(made: tuple[Any, ...]) -> None:
    takes_back(made[0], made[1], "json")


def sequence(**lists: list[tuple[str, list[Any]]]) -> bytes:
    message = SequenceExample()
    message.context.feature["label"].int64_list.value.append(1)
    for name, steps in lists.items():
        found = message.feature_lists.feature_list[name]
        found.SetInParent()
        for kind, values in steps:
            feature = found.feature.add()
            if kind:
                getattr(feature, kind).value.extend(values)
                getattr(feature, kind).SetInParent()
    return message.SerializeToString(deterministic=True)


def test_sequence_examples_that_do_not_fit() -> None:
    good = sequence(frames=[("float_list", [1.0, 2.0])])
    records = [
        good,
        b"\xff",
        sequence(frames=[("float_list", [1.0, 2.0]), ("float_list", [3.0])]),
        sequence(frames=[("float_list", [1.0, 2.0]), ("", [])]),
        sequence(frames=[("int64_list", [1, 2])]),
        sequence(frames=[], more=[]),
        good,
    ]
    decoded = decode_payload(
        pa.array(records, pa.binary()),
        Schema((LABEL, FRAMES, WORDS)),
        "sequence_example",
        unknown="error",
    )
    reasons = dict(decoded.row_errors)
    assert reasons.pop(1).startswith(
        "1 bytes that start with 'ff' are not a valid tf.train.SequenceExample: "
    )
    assert reasons == {
        2: "step 1: feature 'frames': 1 values do not fit shape [2]",
        3: "step 1: feature 'frames': no value",
        4: "step 0: feature 'frames': int64_list, expected float_list",
        5: "feature 'more' is not in the schema",
    }
    rows = decoded.batch.to_pylist()
    wanted = {"frames": [[1.0, 2.0]], "label": 1, "words": None}
    assert [rows[0], rows[6]] == [wanted, wanted]


def test_json_of_other_writers() -> None:
    """Spellings that proto3's JSON allows."""
    texts = [
        '{"features": {"feature": {"label": {"int64_list": {"value": [7]}}}}}',
        '{"features": {"feature": {"label": {"int64List": {"value": ["-8"]}}}}}',
        "{}",
        "[]",
        '{"features": 1}',
        b'{"\xff": 1}',
    ]
    records = [text.encode() if isinstance(text, str) else text for text in texts]
    decoded = decode_payload(pa.array(records, pa.binary()), Schema((LABEL,)), "json")
    assert decoded.batch["label"].to_pylist()[:3] == [7, -8, None]
    assert [row for row, _ in decoded.row_errors] == [3, 4, 5]
    assert decoded.row_errors[0][1].startswith(
        "2 bytes that start with b'[]' are not valid JSON of a tf.train.Example: "
    )


@pytest.mark.parametrize(
    ("feature", "good", "value", "bad", "reason"),
    [
        (
            FeatureSpec("f", Kind.BYTES, dtype="string"),
            "ß".encode(), "ß", b"\xff", "feature 'f': b'\\xff' is not UTF-8",
        ),
        (
            FeatureSpec(
                "f", Kind.BYTES, dtype="int16", shape=(2,), content=Content.ARRAY
            ),
            b"abcd", b"abcd", b"abc",
            "feature 'f': 3 bytes are not an array of int16 of shape [2]",
        ),
        (
            FeatureSpec(
                "f", Kind.BYTES, dtype="int8", shape=(None,), content=Content.TENSOR
            ),
            tensor_head("int8", [2]) + b"\1\2", [1, 2], b"\xff",
            "feature 'f': not a valid tensor: Error parsing message with type 'recordmill.TensorProto'",
        ),
    ],
)  # fmt: skip
def test_raw(
    feature: FeatureSpec, good: bytes, value: Any, bad: bytes, reason: str
) -> None:
    records = pa.array([good, bad, good], pa.binary())
    decoded = decode_payload(records, Schema((feature,)), "raw")
    assert decoded.row_errors == [(1, reason)]
    found = decoded.batch["f"].to_pylist()
    assert [found[0], found[2]] == [value, value]


def test_raw_gives_one_feature() -> None:
    image = FeatureSpec("image", Kind.BYTES, dtype="uint8", content=Content.IMAGE)
    decoded = decode_payload(pa.array([b"x", b""]), Schema((LABEL, image)), "raw")
    assert decoded.batch.to_pydict() == {"image": [b"x", b""]}


def test_steps_in_examples() -> None:
    with pytest.raises(SchemaError, match="'frames'"):
        decode_payload(pa.array([b""]), Schema((FRAMES,)), "example")


def test_examples() -> None:
    records = pa.array([stored(label=(Kind.INT64, [3])), b"\xff"], pa.binary())
    decoded = decode_payload(records, Schema((LABEL,)), "example")
    assert decoded.batch["label"][0].as_py() == 3
    assert [row for row, _ in decoded.row_errors] == [1]
    assert json.dumps(decoded.row_errors)
