"""What is kept with a dataset for those who read it, beside the shards."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from job_tools import IRIS, SAMPLES, assert_whole, convert, manifest_of, python
from small_dataset import SCHEMA

from recordmill.schemas.feature_spec import differences
from recordmill.schemas.job import JobSpec
from recordmill.schemas.names import staged_file_name
from recordmill.schemas.options import Compression, Payload
from recordmill.schemas.ranges import ShardResult
from recordmill.schemas.tfmd import load_pbtxt
from recordmill.transforms.commit.staging import description_files
from recordmill.transforms.dataset.files import load_expected
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire

SHARD = ShardResult("train", 0, "", 1, 116, 100, 0)
ALWAYS = {"schema.pbtxt", "image.class.label.labels.txt"}
OF_TFDS = {"dataset_info.json", "features.json"}


@pytest.mark.parametrize("payload", get_args(Payload))
@pytest.mark.parametrize("compression", get_args(Compression))
def test_tfds_files_only_where_tfds_can_read(
    payload: Payload, compression: Compression
) -> None:
    job = JobSpec(source="csv", name="zoo", payload=payload, compression=compression)
    files = description_files(job, SCHEMA, [SHARD])
    readable = payload == "example" and compression == "none"
    assert set(files) == ALWAYS | (OF_TFDS if readable else set())


@pytest.mark.parametrize(
    ("source", "path"),
    [("images", SAMPLES / "images"), ("cifar", SAMPLES / "cifar"), ("csv", IRIS)],
)
def test_schema_pbtxt_is_the_schema_of_the_dataset(
    tmp_path: Path, source: str, path: Path
) -> None:
    output = tmp_path / "out"
    convert(source, path, output, "--compression", "gzip")
    assert_whole(output)
    assert manifest_of(output)["payload"] == "example"
    data = (output / "schema.pbtxt").read_bytes()
    declared = load_pbtxt(data, "schema.pbtxt")
    assert declared.to_schema() == load_expected(str(output))
    assert differences(load_expected(str(output / "schema.pbtxt")), load_expected(str(output))) == []  # fmt: skip


def test_overwriting_leaves_one_schema(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("cifar", SAMPLES / "cifar", output)
    convert("csv", IRIS, output, "--overwrite", "--grace", "0")
    assert sorted(
        staged_file_name(file.name) for file in output.iterdir() if file.is_file()
    ) == [
        "dataset_info.json",
        "features.json",
        "inputs.jsonl.gz",
        "inventory.jsonl.gz",
        "manifest.json",
        "out-train.tfrecord-00000-of-00001",
        "run.json",
        "schema.pbtxt",
    ]
    features = load_pbtxt((output / "schema.pbtxt").read_bytes(), "").features
    assert "species" in features


LEFT_BY_THE_DEAD = """
import os, sys
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire
acquire(LocalStore(sys.argv[1]))
os._exit(1)
"""


def test_a_run_killed_after_its_last_step_leaves_nothing_for_long(
    tmp_path: Path,
) -> None:
    """Its dataset stands; the next run finds it unchanged, and the dead one's lock."""
    output = tmp_path / "out"
    convert("csv", IRIS, output)
    python(LEFT_BY_THE_DEAD, output)
    assert list(output.glob(".recordmill/lock/*"))
    ran = convert("csv", IRIS, output)
    assert "is already there" in ran.err
    assert_whole(output)


def test_the_lock_of_a_living_run_stays(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output)
    with acquire(LocalStore(str(output))):
        locks = list(output.glob(".recordmill/lock/*"))
        convert("csv", IRIS, output)
        assert list(output.glob(".recordmill/lock/*")) == locks != []
