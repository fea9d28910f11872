"""Read datasets with tf.data, by the code that recordmill prints, and with TFDS.

    python tests/integration/same_rows/by_tensorflow.py CASES

Run by the interop environment's python. It never imports recordmill.
"""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds
from google.protobuf import text_format
from row_digest import Json, Row, cases_of_tfrecord, of_splits, told
from tensorflow_metadata.proto.v0 import schema_pb2

TYPES = {"bytes_list": "BYTES", "float_list": "FLOAT", "int64_list": "INT"}


def by_printed_code(case: Json) -> Iterator[Row]:
    """Yield what the printed program's load_dataset reads, split by split."""
    names: dict[str, Any] = {"__name__": "loaded"}
    exec(Path(case["code"]).read_text(), names)
    for split in case["files"]:
        for row in names["load_dataset"](split):
            yield {name: value_of(value) for name, value in row.items()}


def value_of(value: Any) -> Any:
    """Give a tensor's value; a ragged one stays as it is."""
    return value if isinstance(value, tf.RaggedTensor) else value.numpy()


def by_tfds(case: Json, folder: str) -> Iterator[Row]:
    """Yield what TFDS reads; it leaves serialized tensors as they are."""
    builder = tfds.builder_from_directory(folder)
    assert set(builder.info.splits) == set(case["files"])
    kept = {f["name"]: f["dtype"] for f in case["features"] if f["content"] == "tensor"}

    def read(split: str) -> Iterator[Row]:
        for row in tfds.as_numpy(builder.as_dataset(split=split)):
            parsed = {
                name: tf.io.parse_tensor(row[name], dtype).numpy()
                for name, dtype in kept.items()
            }
            yield {**row, **parsed}

    return of_splits(case, read)


def check_metadata(case: Json) -> None:
    """Parse schema.pbtxt as tfdv.load_schema_text does, and compare its features.

    TFDV itself cannot be here: its last wheel for this system, 1.16, asks for TensorFlow
    2.16, pyarrow 10 and protobuf below 6.
    """
    text = Path(case["output"], "schema.pbtxt").read_text()
    schema = text_format.Parse(text, schema_pb2.Schema())
    found = {feature.name: feature for feature in schema.feature}
    assert set(found) == {key for each in case["features"] for key in each["keys"]}
    for feature in case["features"]:
        kinds = [feature["kind"], *["int64_list"] * (len(feature["keys"]) - 1)]
        for key, kind in zip(feature["keys"], kinds, strict=True):
            assert schema_pb2.FeatureType.Name(found[key].type) == TYPES[kind], key
            required = found[key].presence.min_fraction == 1
            assert required == (not feature["optional"]), key
        if feature["content"] == "values" and None not in feature["shape"]:
            sides = [dim.size for dim in found[feature["name"]].shape.dim]
            assert sides == feature["shape"] or feature["optional"], feature["name"]


for case in cases_of_tfrecord():
    check_metadata(case)
    # The printed program prints when it is run, not here; TFDS logs what it does.
    with redirect_stdout(io.StringIO()) as printed:
        told(case, "tf.data", lambda case=case: by_printed_code(case))
        told(case, "tfds", lambda case=case: by_tfds(case, case["output"]))
        told(case, "tfds, exported", lambda case=case: by_tfds(case, case["exported"]))
    lines = printed.getvalue().splitlines()
    print("\n".join(line for line in lines if line.startswith('{"dataset"')))
