"""A run that was killed, whose files are damaged, or whose machine lost power."""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from disk_log import LOSSES, Disk, Edit, Event, Mark, Names, Synced, Written
from example_counts import steps_to_kill_at
from job_inputs import MixedInput
from job_tools import (
    IRIS,
    Argument,
    assert_unpublished,
    assert_whole,
    contents,
    convert,
    ended,
    kill,
    manifest_of,
    recordmill,
    started,
    states,
    wait_until,
)
from killed_runs import failing, run_until, staged, workspaces_kept
from power_loss import (
    Recording,
    append_and_overwrite,
    check_dataset,
    check_rerun,
    make_tables,
    moments,
    record,
    state_at,
)
from same_dataset import assert_readable, dataset_of

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.commit import commit as commit_module
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
    with workspaces_kept():
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


def test_a_killed_sample_goes_on(
    tmp_path: Path, mixed: MixedInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept was counted by the killed run, and is counted again."""
    output, more = tmp_path / "out", [*ON_DISK, "--limit", 3000, "--sample", "50%"]
    job: list[Argument] = ["csv", *mixed.files, output, *OPTIONS, *more]
    with started("convert", *job) as process:
        wait_until(lambda: has_fact(output, "range-"), process)
        kill(process)
    assert any(
        name.startswith("range-") for name in goes_on(output, mixed, monkeypatch, *more)
    )
    convert("csv", *mixed.files, tmp_path / "model", *OPTIONS, *more)
    assert manifest_of(output)["splits"]["train"]["records"] == 3000
    assert contents(output) == contents(tmp_path / "model")


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
        wait_until(lambda: has_fact(output, finished), process)
        kill(process)
    assert not (output / "manifest.json").exists()
    kept = goes_on(output, mixed, monkeypatch, *ON_DISK)
    assert any(name.startswith(finished) for name in kept)
    assert_whole(output)
    assert contents(output) == contents(undisturbed[0])


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output folder of a run that failed in its last step, all shards written."""
    output = tmp_path_factory.mktemp("failed") / "iris"
    with failing("stage"):
        ran = recordmill("convert", "csv", IRIS, output, "--shards", 2, *ON_DISK)
    assert ran.status == 1
    assert "Error: the power went" in ran.err
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
    with failing("stage"):
        assert recordmill("convert", "csv", *mixed.files, output, *OPTIONS).status == 1
    needs_reencode = next(output.glob(".recordmill/*/staging/*-00003-of-*"))
    before = needs_reencode.stat()
    data = bytearray(needs_reencode.read_bytes())
    data[len(data) // 2] ^= 1
    with needs_reencode.open("r+b") as file:
        file.write(data)
    os.utime(needs_reencode, ns=(before.st_atime_ns, before.st_mtime_ns))
    written: list[str] = []

    def noted(path: Path, *arguments: Any, **options: Any) -> Any:
        written.append(path.name)
        return write_records(path, *arguments, **options)

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


@pytest.mark.parametrize("overwrite", [False, True])
def test_switch_killed_at_every_step(
    tmp_path: Path, iris: Path, overwrite: bool
) -> None:
    """Killed at any step, the same command brings the whole dataset and only it."""
    model = tmp_path / "model" / "iris"
    options: list[Argument] = ["--shards", 3, "--max-rejects", 1]
    if overwrite:
        shutil.copytree(iris, model)
        options.append("--overwrite")
    staged(IRIS, model, *options)
    convert("csv", IRIS, tmp_path / "fresh" / "iris", *options)
    expected = dataset_of(tmp_path / "fresh" / "iris")
    before = dataset_of(iris)
    splits = manifest_of(tmp_path / "fresh" / "iris")["splits"]
    for step in steps_to_kill_at(100):
        folder = shutil.copytree(model, tmp_path / str(step) / "iris")
        finished = run_until(step, IRIS, folder, *options)
        if (folder / "manifest.json").exists():
            assert_readable(folder)
            assert overwrite or manifest_of(folder)["splits"] == splits, step
        convert("csv", IRIS, folder, *options)
        assert dataset_of(folder) == expected, step
        assert_whole(folder)
        if finished:
            break
    assert before != expected
    assert step > 6  # three shards, two files for TFDS, run.json, the manifest
    assert finished


def test_half_switched_by_another_job(tmp_path: Path) -> None:
    """What another job left half published is replaced wholly, and only if asked."""
    folder = tmp_path / "iris"
    staged(IRIS, folder, "--shards", 3)
    for step in range(1, 100):
        if list(folder.glob("iris-train*")):
            break
        assert not run_until(step, IRIS, folder, "--shards", 3)
    before = states(folder)
    ran = recordmill("convert", "csv", IRIS, folder, "--shards", 2)
    assert ran.status == 73
    assert "another job was killed while it published its dataset here" in ran.err
    assert states(folder) == before
    convert("csv", IRIS, folder, "--shards", 2, "--overwrite")
    assert_whole(folder)


def test_scratch_goes_although_killed_before(tmp_path: Path) -> None:
    """A run killed right behind its manifest leaves scratch to the next one."""
    folder = tmp_path / "iris"
    with workspaces_kept():
        convert("csv", IRIS, folder)
    assert (folder / ".recordmill").is_dir()
    convert("csv", IRIS, folder)
    assert_whole(folder)


def test_nothing_is_left_of_an_earlier_try(tmp_path: Path) -> None:
    """A job that failed leaves its rejects; one that then succeeds takes them away."""
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n3\n")
    output = tmp_path / "out"
    assert recordmill("convert", "csv", wrong, output).status == 65
    assert_unpublished(output)
    convert("csv", wrong, output, "--max-rejects", "50%")
    assert_whole(output)


@pytest.mark.parametrize("way", ["clean", "convert"])
def test_killed_right_behind_the_swap(
    tmp_path: Path, iris: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The dataset is there; what is beside it is not damaged, but waits."""
    folder = shutil.copytree(iris, tmp_path / "iris")
    job: list[Argument] = ["csv", IRIS, folder, "--shards", 3, "--overwrite"]
    finish = commit_module.finish_commit

    def killed(store: Any, **grace: bool) -> Any:
        """Stands for the step behind the swap, not for that before the run."""
        return finish(store, **grace) if grace else 1 / 0

    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "finish_commit", killed)
        assert recordmill("convert", *job).status == 1
    ran = recordmill("verify", folder)
    assert ran.status == 1
    assert "not in place yet" in ran.out
    assert "--overwrite" not in ran.out
    advice = ran.out.partition("`recordmill ")[2].partition("`")[0].split()
    assert recordmill(*(advice if way == "clean" else ["convert", *job])).status == 0
    assert recordmill("verify", folder).status == 0
    assert_whole(folder)


MOMENTS = 63  # each loss at three moments of each command
RERUN_EVERY = 22  # so that each command is among them


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("power")
    return record(append_and_overwrite(make_tables(folder)), folder)


@pytest.mark.slow
def test_a_whole_dataset_or_none_is_there(recording: Recording, tmp_path: Path) -> None:
    for number, moment in enumerate(moments(recording, MOMENTS)):
        index = state_at(recording, moment, tmp_path)
        check_dataset(recording, moment, tmp_path, index)
        if number % RERUN_EVERY == 0:
            check_rerun(recording, tmp_path, index)


@pytest.mark.slow
@pytest.mark.parametrize("folders", [True, False])
def test_without_fsync_a_dataset_is_lost(
    recording: Recording, tmp_path: Path, folders: bool
) -> None:
    """So the test above would find an fsync that is missing."""
    made = {
        event.edits[0].inode
        for event in recording.events
        if isinstance(event, Names) and event.folder
    }

    def forgotten(event: Event) -> Event:
        lost = isinstance(event, Synced) and (event.inode in {0, *made}) == folders
        return Mark("not synced") if lost else event

    careless = replace(recording, events=[*map(forgotten, recording.events)])
    wrong = 0
    for moment in moments(careless, MOMENTS // 3):
        index = state_at(careless, moment, tmp_path)
        try:
            check_dataset(careless, moment, tmp_path, index)
        except (AssertionError, OSError, RecordmillError):
            wrong += 1
    assert wrong > MOMENTS // 20


def test_what_a_disk_may_keep_of_a_rename() -> None:
    """New content under a temporary name, which then replaces another file."""
    events: list[Event] = [
        Names((Edit(0, "m", 1),)),
        Written(1, b"old"),
        Synced(1),
        Synced(0),
        Names((Edit(0, "t", 2),)),
        Written(2, b"new"),
        Names((Edit(0, "m", 2), Edit(0, "t", None))),
    ]

    def states(events: list[Event]) -> set[frozenset[tuple[str, bytes | None]]]:
        disk = Disk(events)
        return {
            frozenset(disk.after_loss(loss, random.Random(seed)).items())
            for loss in LOSSES
            for seed in range(50)
        }

    def names(found: set[frozenset[tuple[str, bytes | None]]]) -> set[str]:
        return {"".join(sorted(n for n, _ in state)) for state in found}

    found = states(events)
    assert names(found) == {"m", "mt"}
    held = {dict(state)["m"] for state in found}
    assert {b"old", b"new", b"", b"n", bytes(3)} <= held
    assert {dict(s)["m"] for s in states([*events, Synced(2)])} == {b"old", b"new"}
    assert states([*events, Synced(2), Synced(0)]) == {frozenset({("m", b"new")})}
