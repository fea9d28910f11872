"""What is said of another dataset in the output: how it differs, and the ways out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from job_tools import Argument, assert_whole, convert, recordmill, states

OTHER_OPTIONS: list[tuple[list[Argument], str]] = [
    (["--seed", 1], "--seed 0, now --seed 1"),
    (["--no-shuffle"], "--shuffle, now --no-shuffle"),
    (["--compression", "gzip"], "--compression none, now --compression gzip"),
    (["--name", "x"], "--name out, now --name x"),
    (
        ["--dataset-version", "1.0.1"],
        "--dataset-version 1.0.0, now --dataset-version 1.0.1",
    ),
    (["--shards", 2], "--shard-size 134217728, now --shards 2"),
    (["--split-by", "a"], "no --split-by, now --split-by a"),
    (
        ["--split", "a=0.5", "--split", "b=0.5"],
        "--split train=1, now --split a=0.5,b=0.5",
    ),
]


@pytest.fixture
def job(tmp_path: Path) -> list[Argument]:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.csv", "b.csv", "c.csv"):
        (folder / name).write_text("a,b\n1,2\n3,4\n")
    arguments: list[Argument] = ["csv", folder, tmp_path / "out"]
    convert(*map(str, arguments))
    return arguments


def refused(*arguments: Argument) -> list[str]:
    """The lines between the first, which names the dataset, and the ways out."""
    ran = recordmill("convert", *arguments)
    assert ran.status == 73
    first, *lines, last = ran.err.splitlines()
    assert "holds another dataset (out 1.0.0). It differs in:" in first
    assert "replace it with --overwrite, or choose another folder" in last
    return [line.removeprefix("  ") for line in lines]


@pytest.mark.parametrize(("options", "line"), OTHER_OPTIONS)
def test_options(job: list[Argument], options: list[Argument], line: str) -> None:
    before = states(Path(job[2]))
    assert refused(*job, *options) == [line]
    assert states(Path(job[2])) == before


def test_a_job_file_spells_them_its_own_way(
    job: list[Argument], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"source: csv\ninputs: [{job[1]}]\noutput: {job[2]}\nseed: 7\nshuffle: false\n"
    )
    ran = recordmill("run", file)
    assert ran.status == 73
    assert "\n  seed: 0, now seed: 7\n  shuffle: true, now shuffle: false\n" in ran.err


def test_inputs(job: list[Argument]) -> None:
    folder = Path(job[1])
    (folder / "a.csv").unlink()
    (folder / "b.csv").write_text("a,b\n1,2\n")
    os.utime(folder / "c.csv", (1, 1))
    for number in range(5):
        (folder / f"d{number}.csv").write_text("a,b\n5,6\n")
    assert refused(*job) == [
        "input files: 5 new (d0.csv, d1.csv, d2.csv and 2 more), 1 gone (a.csv), "
        "1 changed (b.csv), 1 written again with the same size (c.csv)"
    ]


def test_options_and_inputs_of_an_appended_dataset(job: list[Argument]) -> None:
    folder = Path(job[1])
    (folder / "d.csv").write_text("a,b\n5,6\n")
    convert(*map(str, job), "--append")
    assert refused(*job) == ["rows that 1 append added"]
    (folder / "e.csv").write_text("a,b\n5,6\n")
    assert refused(*job, "--seed", 3) == [
        "--seed 0, now --seed 3",
        "input files: 1 new (e.csv)",
    ]


def test_a_declared_schema(job: list[Argument], tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("features:\n  a: {dtype: int64}\n  b: {dtype: int64}\n")
    assert refused(*job, "--schema", schema) == ["the declared schema"]


@pytest.mark.parametrize("damage", [None, b"junk"])
def test_without_its_inventory(job: list[Argument], damage: bytes | None) -> None:
    inventory = Path(job[2]) / "inputs.jsonl.gz"
    if damage is None:
        inventory.unlink()
    else:
        inventory.write_bytes(damage)
    ran = recordmill("convert", *job, "--seed", 1)
    assert "made from other inputs or with other options); replace it with" in ran.err
    convert(*map(str, job), "--seed", "1", "--overwrite")
    assert_whole(Path(job[2]))


def test_the_ways_out(job: list[Argument], tmp_path: Path) -> None:
    assert refused(*job, "--seed", 1)
    convert(*map(str, job[:2]), tmp_path / "other", "--seed", "1")
    convert(*map(str, job), "--seed", "1", "--overwrite")
    assert_whole(tmp_path / "out")
