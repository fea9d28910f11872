"""The code that parses a dataset's records, to the letter; see test_spec_interop.py."""

from __future__ import annotations

from textwrap import dedent

import pytest
from spec_cases import every_feature

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.transforms.decode.tf_code import parsing_spec, quote_literal

IMAGE = FeatureSpec(
    "image", Kind.BYTES, dtype="uint8", shape=(None, None, 3), content=Content.IMAGE
)


def spec(*features: FeatureSpec, payload: Payload = "example") -> str:
    return parsing_spec(Schema(features), payload)


def test_plain_example() -> None:
    code = spec(
        IMAGE,
        FeatureSpec("label", Kind.INT64, class_names=("cat", "dog")),
        FeatureSpec("sure", Kind.INT64, dtype="bool"),
        FeatureSpec("score", Kind.FLOAT),
        FeatureSpec("box", Kind.FLOAT, shape=(4,)),
        FeatureSpec("tags", Kind.BYTES, dtype="string", shape=(None,)),
    )
    assert code == dedent(
        '''\
        import tensorflow as tf

        FEATURES = {
            "box": tf.io.FixedLenFeature([4], tf.float32),
            "image": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "score": tf.io.FixedLenFeature([], tf.float32),
            "sure": tf.io.FixedLenFeature([], tf.int64),
            "tags": tf.io.RaggedFeature(tf.string),
        }


        def parse_example(record):
            """The features of one record; for tf.data.Dataset.map."""
            example = tf.io.parse_single_example(record, FEATURES)
            # pixels: tf.io.decode_image(example["image"], channels=3, expand_animations=False)
            example["sure"] = tf.cast(example["sure"], tf.bool)
            return example
        '''
    )


def test_optional_features_of_json() -> None:
    code = spec(
        FeatureSpec("age", Kind.INT64, dtype="uint8", optional=True),
        FeatureSpec("grid", Kind.INT64, shape=(2, 3), optional=True),
        FeatureSpec("label", Kind.INT64, class_names=("cat",), optional=True),
        FeatureSpec("size", Kind.FLOAT, dtype="float16", shape=(2,), optional=True),
        FeatureSpec("words", Kind.BYTES, shape=(None,), optional=True),
        FeatureSpec(
            "mask", Kind.BYTES, dtype="bool", shape=(None, 2), content=Content.ARRAY,
            optional=True,
        ),
        FeatureSpec(
            "tensor", Kind.BYTES, dtype="int8", shape=(None, 2),
            content=Content.TENSOR, optional=True,
        ),
        payload="json",
    )  # fmt: skip
    assert code == dedent(
        '''\
        import tensorflow as tf

        FEATURES = {
            # missing: a first dimension of 0, otherwise 1
            "age": tf.io.RaggedFeature(tf.int64),
            # missing: a first dimension of 0, otherwise 1
            "grid": tf.io.RaggedFeature(tf.int64),
            # missing: -1
            "label": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
            # missing: empty
            "mask": tf.io.FixedLenFeature([], tf.string, default_value=""),
            # missing: NaN
            "size": tf.io.FixedLenFeature([2], tf.float32, default_value=[float("nan")] * 2),
            # missing: empty
            "tensor": tf.io.FixedLenFeature([], tf.string, default_value=b"\\x08\\x06\\x12\\x06\\x12\\x00\\x12\\x02\\x08\\x02"),
            # missing: empty
            "words": tf.io.RaggedFeature(tf.string),
        }


        def parse_example(record):
            """The features of one record; for tf.data.Dataset.map."""
            record = tf.io.decode_json_example(record)
            example = tf.io.parse_single_example(record, FEATURES)
            example["age"] = tf.cast(example["age"], tf.uint8)
            example["grid"] = tf.reshape(example["grid"], [-1, 2, 3])
            example["mask"] = tf.io.decode_raw(example["mask"], tf.bool)
            example["mask"] = tf.reshape(example["mask"], [-1, 2])
            example["size"] = tf.cast(example["size"], tf.float16)
            example["tensor"] = tf.ensure_shape(tf.io.parse_tensor(example["tensor"], out_type=tf.int8), [None, 2])
            return example
        '''
    )


def test_ragged() -> None:
    assert spec(FeatureSpec("tokens", Kind.INT64, shape=(None, None, 4))) == dedent(
        '''\
        import tensorflow as tf

        FEATURES = {
            "tokens": tf.io.RaggedFeature(tf.int64, value_key="tokens/ragged_flat_values", partitions=[tf.io.RaggedFeature.RowLengths("tokens/ragged_row_lengths_0"), tf.io.RaggedFeature.UniformRowLength(4)]),
        }


        def parse_example(record):
            """The features of one record; for tf.data.Dataset.map."""
            example = tf.io.parse_single_example(record, FEATURES)
            return example
        '''
    )


def test_sequence_example() -> None:
    code = spec(
        FeatureSpec("label", Kind.INT64),
        FeatureSpec("frame", Kind.FLOAT, shape=(2,), is_sequence=True, optional=True),
        FeatureSpec(
            "tokens", Kind.INT64, dtype="int32", shape=(None,), is_sequence=True
        ),
        payload="sequence_example",
    )
    assert code == dedent(
        '''\
        import tensorflow as tf

        CONTEXT_FEATURES = {
            "label": tf.io.FixedLenFeature([], tf.int64),
        }

        SEQUENCE_FEATURES = {
            # missing: no steps
            "frame": tf.io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True),
            "tokens": tf.io.RaggedFeature(tf.int64),
        }


        def parse_sequence_example(record):
            """The features of one record; for tf.data.Dataset.map."""
            context, sequences = tf.io.parse_single_sequence_example(
                record, CONTEXT_FEATURES, SEQUENCE_FEATURES
            )
            example = {**context, **sequences}
            example["tokens"] = tf.cast(example["tokens"], tf.int32)
            return example
        '''
    )


@pytest.mark.parametrize(
    ("feature", "more"),
    [
        (FeatureSpec("f", Kind.BYTES, dtype="string"), ""),
        (
            FeatureSpec("f", Kind.BYTES, dtype="uint8", content=Content.IMAGE),
            "# Its pixels: tf.io.decode_image(record, expand_animations=False)\n",
        ),
        (
            FeatureSpec(
                "f", Kind.BYTES, dtype="uint32", shape=(2, 3), content=Content.ARRAY
            ),
            "# Its values: tf.reshape(tf.bitcast(tf.io.decode_raw(record, tf.int32), "
            "tf.uint32), [2, 3])\n",
        ),
        (
            FeatureSpec("f", Kind.BYTES, dtype="bytes", content=Content.TENSOR),
            "# Its values: tf.ensure_shape(tf.io.parse_tensor(record, "
            "out_type=tf.string), [])\n",
        ),
    ],
)
def test_raw(feature: FeatureSpec, more: str) -> None:
    start = '# A record is the bytes of "f": nothing to parse.\n'
    assert spec(feature, payload="raw") == start + more


def test_steps_need_sequence_examples() -> None:
    with pytest.raises(SchemaError, match=r"'f'.*sequence"):
        spec(FeatureSpec("f", Kind.INT64, is_sequence=True))


def test_deterministic() -> None:
    features = every_feature(sequence=False)
    assert spec(*features) == spec(*reversed(features))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", '"plain"'),
        ("it's", '"it\'s"'),
        ('say "x"', "'say \"x\"'"),
        ("both ' and \"", "'both \\' and \"'"),
        ("a\nb\\ß\x7f", '"a\\nb\\\\ß\\x7f"'),
        (b"\x00'", 'b"\\x00\'"'),
    ],
)
def test_quoted(value: str | bytes, text: str) -> None:
    assert quote_literal(value) == text
    assert eval(text) == value
