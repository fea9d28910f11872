"""ReadDataset: what was written, every byte verified, in bounded memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from job_tools import SAMPLES, convert, examples_of, manifest_of, python, shards_of
from row_keys import as_key, same_rows
from rows_tools import SCHEMA, error_of, make_rows, pipeline, read, read_back, write

from recordmill.beam_jobs.pipelines.read_dataset import ReadDataset
from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset
from recordmill.schemas.errors import UsageError
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.dataset import reader as stream

ROWS = make_rows(60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ROWS as a dataset of two splits. Copy it, never change it."""
    output = tmp_path_factory.mktemp("model") / "out"
    write(ROWS, output, splits={"train": 0.5, "test": 0.5}, shards=2, name="rows")
    return output


@pytest.fixture
def damaged(tmp_path: Path, model: Path) -> Path:
    shutil.copytree(model, tmp_path / "out")
    return tmp_path / "out"


def test_bytes_are_the_records(model: Path) -> None:
    expected = [
        e.SerializeToString(deterministic=True)
        for split in ("train", "test")
        for e in examples_of(model, split)
    ]
    assert sorted(read(model)) == sorted(expected)
    assert sorted(read(model / "manifest.json", runner="portable")) == sorted(expected)


def test_examples(model: Path) -> None:
    found = read(model, "train", as_="example")
    assert all(isinstance(example, Example) for example in found)
    expected = examples_of(model, "train")
    assert sorted(map(str, found)) == sorted(map(str, expected))


@pytest.mark.parametrize("window", [1, 7, 1 << 12])
def test_dicts_are_the_rows(
    model: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(stream, "WINDOW_RECORDS", window)
    found = read(model, as_="dict")
    assert same_rows(found, map(read_back, ROWS))
    assert {type(row["image"]) for row in found} == {np.ndarray}


def test_batches_have_a_column_for_each_feature(model: Path) -> None:
    batches = read(model, ["train", "test"], as_="batch")
    assert sum(batch.num_rows for batch in batches) == len(ROWS)
    assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
    assert {tuple(batch.schema.names) for batch in batches} == {tuple(sorted(SCHEMA))}


def test_a_split_alone(model: Path) -> None:
    both = [read(model, split) for split in ("train", "test")]
    sizes = [manifest_of(model)["splits"][s]["records"] for s in ("train", "test")]
    assert list(map(len, both)) == sizes
    assert sorted(both[0] + both[1]) == sorted(read(model, ["test", "train"]))


def test_gzip(tmp_path: Path) -> None:
    write(ROWS, tmp_path / "out", compression="gzip")
    assert same_rows(read(tmp_path / "out", as_="dict"), map(read_back, ROWS))


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ("csv", "iris/iris.csv"),
        ("cifar", "cifar"),
        ("images", "images"),
        ("parquet", "typed/iris.parquet"),
    ],
)
def test_what_the_command_wrote(tmp_path: Path, source: str, files: str) -> None:
    convert(source, SAMPLES / files, tmp_path / "out", "--seed", 3)
    records = sum(
        s["records"] for s in manifest_of(tmp_path / "out")["splits"].values()
    )
    for as_ in ("bytes", "example", "dict"):
        assert len(read(tmp_path / "out", as_=as_)) == records


def test_from_one_dataset_into_another(tmp_path: Path, model: Path) -> None:
    """Dicts that were read are rows that can be written, to the same bytes."""
    write(read(model, as_="dict"), tmp_path / "again")
    assert sorted(read(tmp_path / "again")) == sorted(read(model))


NESTED: dict[str, Any] = {
    "texts": {"dtype": "string", "shape": [2, None]},
    "ragged": {"dtype": "int64", "shape": [None, None]},
    "whole": {"dtype": "int16", "shape": [None, 2], "stored": "tensor"},
    "bits": {"dtype": "bool", "shape": [3]},
    "empty": {"dtype": "float32", "shape": [0]},
}


def test_lists_of_every_shape(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "texts": [["a", "b"], ["c", "d"]],
            "ragged": [[1], [], [2, 3]],
            "whole": np.array([[1, 2], [3, 4]], np.int16),
            "bits": np.array([True, False, True]),
            "empty": np.zeros(0, np.float32),
        },
        {
            "texts": [[], []],
            "ragged": [],
            "whole": np.zeros((0, 2), np.int16),
            "bits": np.array([False] * 3),
            "empty": np.zeros(0, np.float32),
        },
    ]
    write(rows, tmp_path / "out", NESTED)
    assert same_rows(read(tmp_path / "out", as_="dict"), rows)


def test_steps_of_a_sequence(tmp_path: Path) -> None:
    schema = {
        "id": "int64",
        "steps": {"dtype": "float32", "shape": [2], "sequence": True},
        "words": {"dtype": "string", "sequence": True},
    }
    rows: list[dict[str, Any]] = [
        {"id": 1, "steps": [[0.5, 1], [2, 3]], "words": ["a"]},
        {"id": 2, "steps": [], "words": []},
    ]
    write(rows, tmp_path / "out", schema, payload="sequence_example")
    found = sorted(read(tmp_path / "out", as_="dict"), key=lambda row: row["id"])
    assert [step.tolist() for step in found[0]["steps"]] == rows[0]["steps"]
    assert [row["words"] for row in found] == [["a"], []]
    assert found[1]["steps"] == []


def test_a_flipped_bit_is_named(damaged: Path) -> None:
    (shard, *_) = shards_of(damaged)
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    error = error_of(lambda: read(damaged))
    assert "CorruptRecordError" in error
    assert f"{shard}: record 0 at byte 0: the checksum of the record's" in error


def test_a_shard_of_another_size(damaged: Path) -> None:
    (shard, *_) = shards_of(damaged)
    whole = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-20])
    error = error_of(lambda: read(damaged))
    assert f"{shard}: has {whole - 20} bytes, the manifest records {whole}" in error
    shard.unlink()
    assert f"{shard}: is missing" in error_of(lambda: read(damaged))


def test_a_shard_of_whole_records_that_is_not_the_one(damaged: Path) -> None:
    """Two records of equal size change places: every checksum of a record holds."""
    output = damaged.parent / "equal"
    write([{"a": 1}, {"a": 2}], output, {"a": "int64"})
    (shard,) = shards_of(output)
    data = shard.read_bytes()
    half = len(data) // 2
    shard.write_bytes(data[half:] + data[:half])
    error = error_of(lambda: read(output))
    assert f"{shard}: 2 records and CRC-32C" in error
    assert "not the file that was written" in error


def test_a_record_that_does_not_fit_the_schema(damaged: Path) -> None:
    manifest = json.loads((damaged / "manifest.json").read_bytes())
    (label,) = (f for f in manifest["features"] if f["name"] == "label")
    label.update(kind="float_list", dtype="float32", num_classes=None)
    (damaged / "manifest.json").write_text(json.dumps(manifest))
    assert len(read(damaged)) == len(ROWS)  # as bytes they are whole
    error = error_of(lambda: read(damaged, as_="dict"))
    assert "record 0 does not fit the dataset's schema: feature 'label'" in error


def test_what_cannot_be_read(tmp_path: Path, model: Path) -> None:
    assert "no such folder" in error_of(lambda: read(tmp_path / "none"))
    error = error_of(lambda: read(model, "valid"))
    assert "no split 'valid'; the dataset has 'train', 'test'" in error
    write([b"x"], tmp_path / "raw", None, payload="raw")
    error = error_of(lambda: read(tmp_path / "raw", as_="example"))
    assert "its records have payload 'raw', which does not contain examples" in error
    with pytest.raises(
        UsageError, match="expected 'bytes', 'example', 'dict' or 'batch'"
    ):
        ReadDataset("out", as_="text")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="looks like a secret"):
        ReadDataset("out", storage={"password": "x"})


def test_constructing_touches_no_storage() -> None:
    ReadDataset("no such folder/manifest.json")
    ReadDataset("manifest.json")


READ = """
import resource, sys
import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from recordmill.beam_jobs.pipelines.read_dataset import ReadDataset

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with beam.Pipeline(runner=FnApiRunner()) as p:
    sizes = p | ReadDataset(sys.argv[1], as_=sys.argv[2]) | beam.Map(lambda one: 1)
    sizes | beam.CombineGlobally(sum) | beam.Map(print)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) // 1024)
"""


def large_row(number: int) -> dict[str, Any]:
    return {"number": number, "data": number.to_bytes() * (1 << 20)}


@pytest.mark.parametrize("as_", ["bytes", "batch"])
def test_a_large_shard_is_read_in_bounded_memory(tmp_path: Path, as_: str) -> None:
    """One shard of 200 MB."""
    schema = {"number": "int64", "data": "bytes"}
    with pipeline() as p:
        rows = p | beam.Create(range(200)) | beam.Map(large_row)
        rows | WriteDataset(tmp_path / "out", schema, shards=1)
    ran = python(READ, tmp_path / "out", as_)
    assert ran.status == 0, ran.err
    count, mebibytes = map(int, ran.out.split())
    assert count > 20 if as_ == "batch" else count == 200
    assert mebibytes < 120


def test_rows_compare_as_they_should() -> None:
    """Of the helper: it tells arrays, dtypes and shapes apart."""
    one = {"a": np.zeros((2, 1))}
    for other in (
        np.zeros((1, 2)),
        np.zeros((2, 1), np.float32),
        np.ones((2, 1)),
        None,
    ):
        assert as_key(one) != as_key({"a": other})
    assert as_key(one) == as_key({"a": np.zeros((2, 1))})
