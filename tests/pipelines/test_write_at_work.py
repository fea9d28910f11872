"""WriteDataset at work, and what others do in its output meanwhile.

The pipeline is held at one of its steps until the others have ended.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from example_counts import thinned
from job_tools import (
    HANG_SECONDS,
    IRIS,
    Ran,
    assert_unpublished,
    assert_whole,
    contents,
    convert,
    ended,
    kill,
    recordmill,
    wait_until,
)
from rows_tools import error_of, pipeline

from recordmill.beam_jobs.pipelines import write_dataset
from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset

CHANGED = (
    "the dataset changed since this run began, because another run published here. It "
    "was not changed, and this run published nothing"
)
ENDED = (
    "alive.json: no longer exists, so another run or `recordmill clean` ended this "
    "pipeline, or treated it as dead. Nothing was published; run the pipeline again"
)
SCHEMA = {"number": "int64"}


class Holding:
    """A step that waits, once, until it may go on."""

    def __init__(self) -> None:
        self.reached, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.may_go_on.wait(HANG_SECONDS)


# Threads of this process: nothing that holds a lock is pickled into the pipeline.
_holding: list[Holding] = []


def row(number: int) -> dict[str, int]:
    if number == 3000:  # of 4,000, which are one bundle
        _holding[-1]()
    return {"number": number}


def plain_row(number: int) -> dict[str, int]:
    return {"number": number}


def write(output: Path, make_row: Callable[[int], dict[str, int]]) -> None:
    with pipeline() as p:
        rows = p | beam.Create(list(range(4000)), reshuffle=False) | beam.Map(make_row)
        rows | WriteDataset(output, SCHEMA, overwrite=True, shards=2)


def write_around(
    output: Path, step: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]
) -> str:
    """Writes the rows, and acts while the pipeline is held; returns its error, or ""."""
    holding, errors = Holding(), list[str]()
    monkeypatch.setattr(sys.modules[__name__], "_holding", [holding])
    write_shard = write_dataset.write_shard

    def held_write(*arguments: Any, **options: Any) -> Any:
        if step == "shards" and not holding.reached.is_set():
            holding()
        return write_shard(*arguments, **options)

    monkeypatch.setattr(write_dataset, "write_shard", held_write)

    def work() -> None:
        make_row = row if step == "rows" else plain_row
        try:
            write(output, make_row)
        except Exception as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert holding.reached.wait(HANG_SECONDS)
        act()
    finally:
        holding.may_go_on.set()
        thread.join(HANG_SECONDS)
    assert not thread.is_alive()
    return "".join(errors)


def workspaces(output: Path) -> set[str]:
    return {path.name for path in output.glob(".recordmill/*-*")} | {
        path.name for path in output.glob(".recordmill/" + "[0-9a-f]" * 16)
    }


@pytest.mark.parametrize("step", ["rows", "shards"])
def test_clean_leaves_it_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    output = tmp_path / "out"

    def clean() -> None:
        before = contents(output)
        assert len(workspaces(output)) == {"rows": 1, "shards": 2}[step]
        for options in (["--dry-run"], []):
            ran = recordmill("clean", output, *options)
            assert ran.status == 0
            assert ": 0 files" in ran.err
            assert "a pipeline is running and keeps its files: .recordmill/" in ran.err
        assert contents(output) == before

    assert write_around(output, step, monkeypatch, clean) == ""
    assert_whole(output)


@pytest.mark.parametrize("step", thinned(["shards", "rows"]))
def test_a_dataset_that_came_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Also with overwrite, which is about what was there when the pipeline began."""
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--seed", 2)

    def publish() -> None:
        before = workspaces(output)
        ran = convert("csv", IRIS, output, "--overwrite", "--grace", 0)
        assert "a pipeline is also running here: .recordmill/rows-" in ran.err
        assert workspaces(output) == before

    assert CHANGED in write_around(output, step, monkeypatch, publish)
    # It is over, so its files are nobody's; and the way out of the message works.
    assert "at work" not in recordmill("clean", output).err
    assert_whole(output)
    monkeypatch.undo()
    write(output, plain_row)
    assert_whole(output)


@pytest.mark.parametrize("step", thinned(["shards", "rows"]))
def test_one_that_was_ended_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    output = tmp_path / "out"

    def end() -> None:
        assert recordmill("clean", output, "--detached").status == 0
        assert workspaces(output) == set()

    assert ENDED in write_around(output, step, monkeypatch, end)
    assert_unpublished(output)
    monkeypatch.undo()
    assert recordmill("clean", output).status == 0
    write(output, plain_row)
    assert_whole(output)


def test_of_two_with_the_same_rows_both_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    second = lambda: write(output, plain_row)  # noqa: E731
    assert write_around(output, "rows", monkeypatch, second) == ""
    assert_whole(output)


def test_version_auto_waits_for_a_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = ("convert", "csv", IRIS, tmp_path, "--dataset-version", "auto")

    def convert_beside() -> None:
        ran = recordmill(*auto)
        assert ran.status == 75
        assert "a pipeline is running here: .recordmill/rows-" in ran.err

    output = tmp_path / "1.0.0"
    assert write_around(output, "rows", monkeypatch, convert_beside) == ""
    assert_whole(output)


def test_a_pipeline_that_fails_leaves_nothing_that_is_at_work(tmp_path: Path) -> None:
    def write_wrong() -> None:
        with pipeline() as p:
            p | beam.Create([{"number": "one"}]) | WriteDataset(tmp_path, SCHEMA)

    assert "1 rows or more rejected" in error_of(write_wrong)
    ran = recordmill("clean", tmp_path)
    assert (ran.status, "at work" in ran.err) == (0, False)
    assert workspaces(tmp_path) == set()


# In a process of its own: held in the middle of its rows.
PROCESS = """
import sys, time
from pathlib import Path
import apache_beam as beam
from recordmill import WriteDataset

output, reached, may_go_on = map(Path, sys.argv[1:])

def row(number):
    if number == 3000:
        reached.touch()
        while not may_go_on.exists():
            time.sleep(0.01)
    return {"number": number}

runner = "apache_beam.runners.portability.fn_api_runner.fn_runner.FnApiRunner"
with beam.Pipeline(runner) as p:
    rows = p | beam.Create(list(range(4000)), reshuffle=False) | beam.Map(row)
    rows | WriteDataset(output, {"number": "int64"}, overwrite=True)
"""


@pytest.mark.parametrize("end", thinned(["fails", "publishes", "is killed"]))
def test_a_process_that_is_held_in_the_middle(tmp_path: Path, end: str) -> None:
    output, reached, may_go_on = (tmp_path / name for name in ("out", "at", "go"))
    line = [sys.executable, "-c", PROCESS, output, reached, may_go_on]
    with subprocess.Popen(
        list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(reached.exists, process)
        (workspace,) = workspaces(output)
        cleaned = recordmill("clean", output)
        if end == "fails":
            convert("csv", IRIS, output, "--overwrite")
        assert workspaces(output) == {workspace}
        ran = Ran(0, "", "")
        if end == "is killed":
            kill(process)
        else:
            may_go_on.touch()
            ran = ended(process)
    assert f"keeps its files: .recordmill/{workspace} (begun" in cleaned.err
    if end == "fails":
        assert CHANGED in ran.err
    if end == "is killed":  # its process is gone, so its files are nobody's at once
        assert_unpublished(output)
        assert "at work" not in recordmill("clean", output).err
        assert workspaces(output) == set()
        return
    assert (ran.status == 0) == (end == "publishes"), ran.err
    recordmill("clean", output)
    assert_whole(output)
