"""A killed run publishes nothing or all; the next one goes on from what is finished."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from job_inputs import MixedInput
from job_tools import (
    HANG_SECONDS,
    IRIS,
    Argument,
    assert_whole,
    contents,
    convert,
    ended,
    kill,
    recordmill,
    started,
)
from same_dataset import assert_readable

from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tfrecord import crc32c

NUM_KILLS = 3
OPTIONS: list[Argument] = ["--shards", 12, "--workers", 2, "--name", "mixed"]
# Finished ranges are files then, which a killed run leaves.
ON_DISK: list[Argument] = ["--memory", "0"]


@pytest.fixture(scope="module")
def undisturbed(
    mixed: MixedInput, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, float]:
    """The dataset of a run that nothing disturbed, and the seconds that it took."""
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    start = time.monotonic()
    with started("convert", "csv", *mixed.files, output, *OPTIONS) as process:
        ran = ended(process)
    seconds = time.monotonic() - start
    assert ran.status == 0, ran.err
    return output, seconds


def facts_in(output: Path) -> dict[str, int]:
    """The facts that a killed run left, with their times of change."""
    return {
        fact.name: fact.stat().st_mtime_ns
        for fact in output.glob(".recordmill/*/facts/*.json")
        if not fact.name.startswith(".")
    }


def has_fact(output: Path, kind: str) -> bool:
    """Tells whether a run that is at work has left such a fact."""
    try:
        return any(
            fact.name.startswith(kind)
            for fact in output.glob(".recordmill/*/facts/*.json")
        )
    except FileNotFoundError:  # of a folder that went while it was listed
        return False


def goes_on(
    output: Path, mixed: MixedInput, monkeypatch: pytest.MonkeyPatch, *more: Argument
) -> dict[str, int]:
    """Runs the killed command to its end; returns the facts that were found true."""
    before = facts_in(output)
    if not more:  # ranges were in memory
        before = {name: at for name, at in before.items() if name.startswith("shard-")}
    with monkeypatch.context() as patch:
        patch.setattr(
            "recordmill.transforms.tasks.workspace.Workspace.remove",
            lambda workspace: None,
        )
        convert("csv", *mixed.files, output, *OPTIONS, *more)
    after = facts_in(output)
    assert before.items() <= after.items()
    shutil.rmtree(output / ".recordmill", ignore_errors=True)
    return before


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_killed_at_any_moment(
    tmp_path: Path,
    mixed: MixedInput,
    undisturbed: tuple[Path, float],
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    model, seconds = undisturbed
    output = tmp_path / "out"
    # One moment in each third of the run, its start-up left out; the tests below kill
    # when the first of a kind is finished.
    moment = 0.4 + 0.6 * (number + random.Random(number).random()) / NUM_KILLS
    memory = [] if number == 1 else ON_DISK
    with started("convert", "csv", *mixed.files, output, *OPTIONS, *memory) as process:
        time.sleep(moment * seconds)
        kill(process)
    if (output / "manifest.json").exists():
        assert_readable(output)  # the files beside the shards come right behind it
        convert("csv", *mixed.files, output, *OPTIONS)
    else:
        goes_on(output, mixed, monkeypatch, *memory)
    assert_whole(output)
    assert contents(output) == contents(model)


@pytest.mark.parametrize("finished", ["range-", "shard-"])
def test_finished_work_is_not_done_again(
    tmp_path: Path,
    mixed: MixedInput,
    undisturbed: tuple[Path, float],
    monkeypatch: pytest.MonkeyPatch,
    finished: str,
) -> None:
    """Killed as soon as the first fact of a kind is there."""
    output = tmp_path / "out"
    with started("convert", "csv", *mixed.files, output, *OPTIONS, *ON_DISK) as process:
        deadline = time.monotonic() + HANG_SECONDS
        while not has_fact(output, finished):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        kill(process)
    assert not (output / "manifest.json").exists()
    kept = goes_on(output, mixed, monkeypatch, *ON_DISK)
    assert any(name.startswith(finished) for name in kept)
    assert_whole(output)
    assert contents(output) == contents(undisturbed[0])


def disk_is_full(*arguments: object) -> None:
    raise OSError("disk is full")


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run that failed in its last step, all shards written."""
    output = tmp_path_factory.mktemp("failed") / "iris"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", disk_is_full)
        ran = recordmill("convert", "csv", IRIS, output, "--shards", 2, *ON_DISK)
    assert ran.status == 1
    assert "Error: disk is full" in ran.err
    return output


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("facts/range-*.json", "cut"),  # the machine went down, not the process
        ("facts/shard-train-00001.json", "cut"),
        ("facts/shard-train-00001.json", "missing"),
        ("runs/range-*.records", "flip"),
        ("runs/range-*.index", "flip"),
        ("runs/range-*.index", "missing"),
        ("staging/iris-train.tfrecord-00001-of-00002", "flip"),
        ("staging/iris-train.tfrecord-00001-of-00002", "cut"),
        ("staging/iris-train.tfrecord-00001-of-00002", "missing"),
    ],
)
def test_damaged_scratch_is_made_again(
    tmp_path: Path, failed_run: Path, iris: Path, file: str, damage: str
) -> None:
    output = shutil.copytree(failed_run, tmp_path / "iris")
    (path,) = output.glob(f".recordmill/*/{file}")
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    convert("csv", IRIS, output, "--shards", 2, *ON_DISK)
    assert_whole(output)
    assert contents(output) == contents(iris)


def test_a_damaged_run_is_found_when_it_is_gathered(
    tmp_path: Path, failed_run: Path, iris: Path
) -> None:
    """Its records' own checksums tell; the range is converted again, in the same run."""
    output = shutil.copytree(failed_run, tmp_path / "iris")
    (records,) = output.glob(".recordmill/*/runs/range-*.records")
    data = bytearray(records.read_bytes())
    data[len(data) // 2] ^= 1
    records.write_bytes(data)
    for fact in output.glob(".recordmill/*/facts/shard-*"):
        fact.unlink()
    convert("csv", IRIS, output, "--shards", 2, *ON_DISK)
    assert_whole(output)
    assert contents(output) == contents(iris)


def test_a_shard_that_nobody_touched_is_not_read_again(
    tmp_path: Path, mixed: MixedInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that somebody wrote to is, though size and time may be the same."""
    output = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", disk_is_full)
        assert recordmill("convert", "csv", *mixed.files, output, *OPTIONS).status == 1
    needs_reencode = next(output.glob(".recordmill/*/staging/*-00003-of-*"))
    before = needs_reencode.stat()
    data = bytearray(needs_reencode.read_bytes())
    data[len(data) // 2] ^= 1
    with needs_reencode.open("r+b") as file:
        file.write(data)
    os.utime(needs_reencode, ns=(before.st_atime_ns, before.st_mtime_ns))
    written: list[str] = []

    def noted(path: Path, *arguments: Any) -> Any:
        written.append(path.name)
        return write_records(path, *arguments)

    read: list[bytes] = []
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.transforms.tasks.write_shard.write_records", noted)
        patch.setattr(
            "recordmill.transforms.tasks.write_shard.crc32c",
            lambda block, crc: read.append(block) or crc32c(block, crc),
        )
        convert("csv", *mixed.files, output, *OPTIONS)
    assert written == [needs_reencode.name]
    assert sum(map(len, read)) == len(data)
    assert_whole(output)
