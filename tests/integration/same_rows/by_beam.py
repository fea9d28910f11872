"""Read datasets with Beam's ReadFromTFRecord and tf.train.Example.

    python tests/integration/same_rows/by_beam.py CASES

Run by the interop environment's python. It never imports recordmill.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow as tf
from kept_records import FOUND, keep
from row_digest import Json, Row, cases_of_tfrecord, from_stored, told


def stored_values(record: bytes) -> dict[str, list[Any]]:
    """Parse an example with protobuf."""
    features = tf.train.Example.FromString(record).features.feature
    return {
        key: list(getattr(features[key], features[key].WhichOneof("kind")).value)
        for key in features
    }


def tensor_of(data: bytes, dtype: str) -> np.ndarray:
    """Parse a TensorProto."""
    value: np.ndarray = tf.io.parse_tensor(data, dtype).numpy()
    return value


def rows_of(case: Json) -> Iterator[Row]:
    """Yield the rows of the records that were kept."""
    for record in FOUND[case["name"]]:
        yield from_stored(stored_values(record), case["features"], tensor_of)


with beam.Pipeline("FnApiRunner") as pipeline:
    for case in cases_of_tfrecord():
        files = [file for files in case["files"].values() for file in files]
        for number, file in enumerate(files):
            label = f"{case['name']} {number}"
            records = pipeline | label >> beam.io.ReadFromTFRecord(file)
            _ = records | f"keep {label}" >> beam.Map(keep, case["name"])

for case in cases_of_tfrecord():
    told(case, "beam", lambda: rows_of(case))  # noqa: B023
