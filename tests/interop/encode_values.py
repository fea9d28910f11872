"""Encode values with TensorFlow and TFDS, to compare recordmill's bytes with theirs.

    python tests/interop/encode_values.py tensors|json|sequences|ragged < CASES

Run by the interop environment's python (requirements-interop.lock). It never imports
recordmill. Cases come as a JSON array on stdin; for each an answer on a line.
"""

import base64
import json
import os
import sys
from typing import Any

# Set before the import: TensorFlow reads it while loading.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf


def serialize_tensor(case: dict[str, Any]) -> str:
    """Give tf.io.serialize_tensor of an array; after parsing it is the same."""
    if case["dtype"] == "string":
        values = [base64.b64decode(value) for value in case["values"]]
        array = np.array(values, object).reshape(case["shape"])
    else:
        data = base64.b64decode(case["data"])
        array = np.frombuffer(data, case["dtype"]).reshape(case["shape"])
    dtype = tf.dtypes.as_dtype(case["dtype"])
    tensor = tf.constant(array, dtype, case["shape"])
    serialized = tf.io.serialize_tensor(tensor)
    parsed = tf.io.parse_tensor(serialized, dtype).numpy()
    if case["dtype"] == "string":
        assert np.asarray(parsed, object).ravel().tolist() == values
    else:
        assert parsed.tobytes() == data
    assert np.shape(parsed) == tuple(case["shape"])
    return serialized.numpy().hex()


def decode_json(text: str) -> str:
    """Give the example that tf.io.decode_json_example makes of a JSON text."""
    decoded = tf.io.decode_json_example(text).numpy()
    example = tf.train.Example.FromString(decoded)
    return example.SerializeToString(deterministic=True).hex()


def parse_sequence(record: str) -> dict[str, Any]:
    """Give what TensorFlow's parser finds in a sequence example of the test's kind."""
    context, lists = tf.io.parse_single_sequence_example(
        bytes.fromhex(record),
        context_features={
            "label": tf.io.FixedLenFeature([], tf.int64),
            "name": tf.io.FixedLenFeature([], tf.string, default_value="(none)"),
        },
        sequence_features={
            "frame": tf.io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True),
            "token": tf.io.RaggedFeature(tf.int64),
            "word": tf.io.VarLenFeature(tf.string),
        },
    )
    return {
        "label": int(context["label"]),
        "name": context["name"].numpy().decode(),
        "frame": lists["frame"].numpy().tolist(),
        "token": lists["token"].to_list(),
        "word": [value.decode() for value in lists["word"].values.numpy().tolist()],
    }


def encode_ragged(case: dict[str, Any]) -> str:
    """Give TFDS' example of one value of nested sequences around a tensor."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core import example_serializer

    inner = tfds.features.Tensor(shape=case["inner"], dtype=np.dtype(case["dtype"]))
    if case["dtype"] == "str":
        inner = tfds.features.Text()
    for length in reversed(case["outer"]):
        inner = tfds.features.Sequence(inner, length=length)
    features = tfds.features.FeaturesDict({"f": inner})
    serializer = example_serializer.ExampleSerializer(features.get_serialized_info())
    value = case["value"]
    encoded = features.encode_example({"f": value})
    example = serializer.get_tf_example(encoded)
    return example.SerializeToString(deterministic=True).hex()


COMMANDS = {
    "tensors": serialize_tensor,
    "json": decode_json,
    "sequences": parse_sequence,
    "ragged": encode_ragged,
}


def main(argv: list[str]) -> int:
    """Answer all cases of one command."""
    answer = COMMANDS[argv[0]]
    for case in json.load(sys.stdin):
        print(json.dumps(answer(case)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
