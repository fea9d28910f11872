"""Names, number and compression of the shards that the options ask for."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    assert_whole,
    convert,
    ints,
    manifest_of,
    shards_of,
)
from same_dataset import shard_names


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("digits", "digits"),
        ("my photos-2024", "my_photos_2024"),
        ("2024", "dataset_2024"),
        ("größe", "gr_e"),
        ("写真", "dataset"),
        ("nested/deep/", "deep"),
    ],
)
def test_name_comes_from_the_output(tmp_path: Path, output: str, name: str) -> None:
    convert("csv", IRIS, f"{tmp_path}/{output}")
    (shard,) = shards_of(tmp_path / output)
    mark = manifest_of(tmp_path / output)["fingerprint"][:8]
    assert shard.name == f"{name}-train.{mark}.tfrecord-00000-of-00001"
    assert manifest_of(tmp_path / output)["name"] == name


def test_output_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flowers").mkdir()
    monkeypatch.chdir(tmp_path / "flowers")
    convert("csv", IRIS, ".")
    assert manifest_of(tmp_path / "flowers")["name"] == "flowers"
    assert_whole(tmp_path / "flowers")


def test_gzip(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    convert("csv", IRIS, output, "--compression", "gzip", "--shards", 2, "--no-shuffle")
    convert("csv", IRIS, tmp_path / "plain", "--no-shuffle", "--name", "iris")
    assert shard_names(output) == [
        "iris-train-00000-of-00002.tfrecord.gz",
        "iris-train-00001-of-00002.tfrecord.gz",
    ]
    both = b"".join(gzip.decompress(shard.read_bytes()) for shard in shards_of(output))
    (plain,) = shards_of(tmp_path / "plain")
    assert both == plain.read_bytes()
    for shard in shards_of(output):
        assert shard.read_bytes()[4:8] == bytes(4)  # mtime: no clock in a shard
    assert not (output / "dataset_info.json").exists()
    assert_whole(output)


@pytest.fixture(scope="module")
def plain_cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """33,000 records, 104,775,000 bytes when framed."""
    path = tmp_path_factory.mktemp("plain") / "cifar-10.bin"
    records = np.zeros((33_000, 3073), np.uint8)
    records[:, 0] = np.arange(33_000) % 10
    records.tofile(path)
    return path


@pytest.mark.parametrize(
    ("options", "shards"),
    [
        (["--shard-size", "50MiB"], 2),  # 52,428,800 bytes
        (["--shard-size", "104775000"], 1),
        (["--shard-size", "104774999"], 2),
        ([], 1),  # 128 MiB
        (["--readers", 2], 10),  # ten for each would be of 5 MB
    ],
)
def test_number_of_shards(
    tmp_path: Path, plain_cifar: Path, options: list[Argument], shards: int
) -> None:
    convert("cifar", plain_cifar, tmp_path / "out", *options)
    found = shards_of(tmp_path / "out")
    assert shard_names(tmp_path / "out") == [
        f"out-train.tfrecord-{index:05d}-of-{shards:05d}" for index in range(shards)
    ]
    assert sum(shard.stat().st_size for shard in found) == 104_775_000


def test_small_input_has_one_shard_per_reader_rule(tmp_path: Path) -> None:
    convert("cifar", SAMPLES / "cifar", tmp_path / "out", "--readers", 3)
    splits = manifest_of(tmp_path / "out")["splits"]
    assert {name: len(split["shards"]) for name, split in splits.items()} == {
        "train": 1,
        "test": 1,
    }


def test_no_more_shards_than_rows(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a\n1\n2\n3\n")
    convert("csv", tmp_path / "in.csv", tmp_path / "out", "--shards", 9)
    found = shards_of(tmp_path / "out")
    assert sorted(ints(tmp_path / "out", "a")) == [1, 2, 3]
    assert all(shard.stat().st_size for shard in found)
    assert 1 <= len(found) <= 3
