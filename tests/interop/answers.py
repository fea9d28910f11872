"""Encode, parse and decode with TensorFlow and TFDS, to compare what recordmill does.

    python tests/interop/answers.py tensors|json|sequences|ragged|parse|images < CASES

Run by the interop environment's python (requirements-interop.lock). It never imports
recordmill. Cases come as a JSON array on stdin; for each an answer on a line.
"""

import base64
import json
import sys
from typing import Any

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


def plain(value: Any) -> Any:
    """Give a nested list with bytes in hex."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else value


def described(value: Any) -> dict[str, Any]:
    """Give what a tensor is and holds: bytes in hex, unknown sizes null."""
    if isinstance(value, tf.RaggedTensor):
        values = value.to_list()
    else:
        values = value.numpy()
        values = values if isinstance(values, bytes) else values.tolist()
    return {
        "dtype": value.dtype.name,
        "shape": value.shape.as_list(),
        "value": plain(values),
    }


def parse_records(case: dict[str, Any]) -> list[dict[str, Any]]:
    """Parse records with printed code, in the graph of Dataset.map, two also eagerly."""
    names: dict[str, Any] = {}
    exec(case["code"], names)
    (parse,) = (names[name] for name in names if name.startswith("parse_"))
    records = [bytes.fromhex(record) for record in case["records"]]
    mapped = tf.data.Dataset.from_tensor_slices(records).map(parse)
    rows = []
    for record, found in zip(records, mapped, strict=True):
        facts = {name: described(value) for name, value in found.items()}
        if len(rows) < 2:
            eager = {name: described(item) for name, item in parse(record).items()}
            assert json.dumps(facts) == json.dumps(eager), (facts, eager)
        rows.append(facts)
    return rows


def decodes(text: str) -> bool:
    """Tell whether TensorFlow decodes an image."""
    data = base64.b64decode(text)
    try:
        tf.io.decode_image(data, channels=0, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return False
    return True


COMMANDS = {
    "tensors": serialize_tensor,
    "json": decode_json,
    "sequences": parse_sequence,
    "ragged": encode_ragged,
    "parse": parse_records,
    "images": decodes,
}


for each in json.load(sys.stdin):
    print(json.dumps(COMMANDS[sys.argv[1]](each)), flush=True)
