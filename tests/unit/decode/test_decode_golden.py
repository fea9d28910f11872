"""What TensorFlow wrote, decoded without it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from decode_cases import decode_batch, plain, stored
from frames import records_of

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.proto.tensor_pb2 import TensorProto
from recordmill.transforms.decode import examples as module
from recordmill.transforms.decode.examples import decode_records
from recordmill.transforms.encode.tensors import DATA_TYPES

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def test_a_tensor_whose_values_stand_one_by_one_is_refused() -> None:
    """What tf.make_tensor_proto gives for one value; tf.io.serialize_tensor does not."""
    proto = TensorProto(dtype=DATA_TYPES["float32"], float_val=[1.5])
    record = stored(f=(Kind.BYTES, [proto.SerializeToString()]))
    feature = FeatureSpec("f", Kind.BYTES, dtype="float32", content=Content.TENSOR)
    decoded = decode_records(pa.array([record], pa.binary()), Schema((feature,)))
    ((_, reason),) = decoded.row_errors
    assert "it has 0 bytes in tensor_content, but shape [] of float32 needs 4" in reason


def golden_records(name: str) -> list[bytes]:
    return records_of((GOLDEN / name).read_bytes())


def test_golden_zoo() -> None:
    """Edge values as TensorFlow wrote them; their values as JSON."""
    entries = json.loads((GOLDEN / "zoo.json").read_text())
    for data, entry in zip(golden_records("zoo.tfrecord"), entries, strict=True):
        schema = Schema(
            tuple(
                FeatureSpec(
                    name,
                    Kind(facts["kind"]),
                    dtype="string" if facts["kind"] == "bytes_list" else "",
                    shape=(None,),
                )
                for name, facts in entry["features"].items()
            )
        )
        (row,) = decode_batch(pa.array([data], pa.binary()), schema).to_pylist()
        for name, facts in entry["features"].items():
            wanted = facts["value"]
            if facts["kind"] == "float_list":
                wanted = [float(np.float32(value)) for value in wanted]
            assert plain(row[name]) == plain(wanted)


def test_golden_tutorial() -> None:
    schema = Schema(
        (
            FeatureSpec("feature0", Kind.INT64, dtype="bool"),
            FeatureSpec("feature1", Kind.INT64),
            FeatureSpec("feature2", Kind.BYTES, dtype="string"),
            FeatureSpec("feature3", Kind.FLOAT),
        )
    )
    records = pa.array(golden_records("tutorial.tfrecord"), pa.binary())
    rows = decode_batch(records, schema).to_pylist()
    with (GOLDEN / "tutorial.csv").open(newline="") as file:
        wanted = list(csv.DictReader(file))
    assert len(rows) == len(wanted) == 1000
    for row, texts in zip(rows, wanted, strict=True):
        assert row == {
            "feature0": texts["feature0"] == "True",
            "feature1": int(texts["feature1"]),
            "feature2": texts["feature2"],
            "feature3": float(np.float32(texts["feature3"])),
        }


def golden_tensors() -> list[Any]:
    entries: list[Any] = json.loads((GOLDEN / "tensors.json").read_text())
    return entries


@pytest.mark.parametrize(
    "entry", golden_tensors(), ids=lambda entry: f"{entry['dtype']}{entry['shape']}"
)
def test_golden_tensors(entry: dict[str, Any]) -> None:
    """What tf.io.serialize_tensor wrote."""
    record = stored(f=(Kind.BYTES, [bytes.fromhex(entry["serialized_hex"])]))
    records = pa.array([record] * 2, pa.binary())
    shape = tuple(entry["shape"])
    unknown = (None, *shape[1:]) if shape else ()
    wanted = entry["values"] if shape else entry["values"][0]
    for declared in {shape, unknown}:
        feature = FeatureSpec(
            "f",
            Kind.BYTES,
            dtype=entry["dtype"],
            shape=declared,
            content=Content.TENSOR,
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "rewrite_example", None)
            found = decode_batch(records, Schema((feature,)))["f"].to_pylist()
        assert found == [wanted, wanted]
