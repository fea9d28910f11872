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


def by_metadata(case: Json) -> None:
    """Parse schema.pbtxt as tfdv.load_schema_text does, and compare its features."""
    text = Path(case["output"], "schema.pbtxt").read_text()
    schema = text_format.Parse(text, schema_pb2.Schema())
    found = {feature.name for feature in schema.feature}
    keys = {key for feature in case["features"] for key in feature["keys"]}
    assert found in (keys, {f["name"] for f in case["features"]}), (found, keys)


for case in cases_of_tfrecord():
    by_metadata(case)
    # The printed program prints when it is run, not here; TFDS logs what it does.
    with redirect_stdout(io.StringIO()) as printed:
        told(case, "tf.data", lambda case=case: by_printed_code(case))
        told(case, "tfds", lambda case=case: by_tfds(case, case["output"]))
        told(case, "tfds, exported", lambda case=case: by_tfds(case, case["exported"]))
    lines = printed.getvalue().splitlines()
    print("\n".join(line for line in lines if line.startswith('{"dataset"')))
