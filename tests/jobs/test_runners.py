"""Threads and processes of the embedded runner, and what ends when one of them dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from job_inputs import MixedInput
from job_tools import (
    HANG_SECONDS,
    IRIS,
    Argument,
    Ran,
    assert_unpublished,
    assert_whole,
    children,
    command,
    contents,
    convert,
    ended,
    is_alive,
    python,
    recordmill,
    started,
)

from recordmill.beam_jobs.pipelines import convert as convert_pipeline

PROCESSES = ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]

# Runs the command with a task that ends otherwise than by an ordinary error.
BROKEN_TASK = """
import sys
from recordmill.beam_jobs.cli import main as cli
from recordmill.beam_jobs.pipelines import convert

def broken(*arguments, **options):
    raise {error}

assert hasattr(convert, "{task}")
convert.{task} = broken
sys.argv = ["recordmill", *sys.argv[1:]]
cli.main()
"""


def run_broken(task: str, error: str, *arguments: Argument) -> Ran:
    return python(BROKEN_TASK.format(task=task, error=error), *arguments)


def test_processes_give_the_same_bytes(tmp_path: Path, mixed: MixedInput) -> None:
    options: list[Argument] = ["--shards", 3]
    convert("csv", *mixed.files, tmp_path / "threads" / "mixed", *options)
    output = tmp_path / "processes" / "mixed"
    ran = command("convert", "csv", *mixed.files, output, *options, *PROCESSES)
    assert ran.status == 0, ran.err
    assert_whole(output)
    assert contents(output) == contents(tmp_path / "threads" / "mixed")


def test_worker_process_dies(tmp_path: Path, mixed: MixedInput) -> None:
    output = tmp_path / "mixed"
    arguments = ["convert", "csv", *mixed.files, output, *PROCESSES]
    with started(*arguments) as process:
        deadline = time.monotonic() + HANG_SECONDS
        # In mid-run: both workers are there, and a first range is being converted.
        while not list(output.glob(".recordmill/*/runs/*range*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        ran = ended(process)
    assert (ran.status, ran.out) == (1, "")
    assert "Error: a worker died: " in ran.err
    assert "Run the same command again to resume" in ran.err
    assert_unpublished(output)
    deadline = time.monotonic() + HANG_SECONDS
    while any(is_alive(pid) for pid in workers):  # the other one goes with the command
        assert time.monotonic() < deadline
        time.sleep(0.05)
    convert("csv", *mixed.files, output)
    assert_whole(output)


def workers_of(pid: int) -> list[int]:
    """The worker processes of a command; a shell may stand between."""
    found = []
    for child in children(pid):
        line = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"sdk_worker" in line:
            below = children(child)
            found += below or [child]
    return found


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        ("convert_range", SystemExit(0), "unexpected SystemExit: 0"),
        ("convert_range", KeyboardInterrupt(), "unexpected KeyboardInterrupt"),
        ("convert_range", MemoryError("no memory"), "no memory"),
        ("write_shard", SystemExit(3), "unexpected SystemExit: 3"),
        ("write_shard", MemoryError("no memory"), "no memory"),
        ("write_shard", ZeroDivisionError("oh"), "unexpected ZeroDivisionError: oh"),
        ("stage", SystemExit(), "unexpected SystemExit"),
        ("commit", OSError(28, "No space left"), "[Errno 28] No space left"),
    ],
)
def test_task_that_breaks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    error: BaseException,
    message: str,
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(convert_pipeline, task, broken)
    output = tmp_path / "iris"
    ran = recordmill("convert", "csv", IRIS, output)
    assert (ran.status, ran.out) == (74 if isinstance(error, OSError) else 1, "")
    [told] = [line for line in ran.err.splitlines() if line.startswith("Error: ")]
    if task == "commit":
        place, _, told = told.partition(": cannot be written: ")
        assert place.startswith(f"Error: {output}")
    assert message in told
    assert "Nothing was published" in ran.err
    assert_unpublished(output)


def test_a_process_ends_although_a_task_broke(tmp_path: Path) -> None:
    """No thread of the runner keeps it alive."""
    output = tmp_path / "iris"
    ran = run_broken("write_shard", "SystemExit(3)", "convert", "csv", IRIS, output)
    assert (ran.status, ran.out) == (1, "")
    assert "Error: unexpected SystemExit: 3" in ran.err
    assert_unpublished(output)


def test_broken_task_in_a_process(tmp_path: Path) -> None:
    """Workers import the code anew, so here the scratch folder breaks the task."""
    output = tmp_path / "iris"
    options = ["--split-by", "colour", *PROCESSES]
    with started("convert", "csv", IRIS, output, *options) as process:
        ran = ended(process)
    assert (ran.status, ran.out) == (2, "")
    assert "Error: --split-by colour: no such column" in ran.err
    assert_unpublished(output)


@pytest.mark.parametrize(
    "options",
    [
        ["--runner=DirectRunner"],
        ["--runner=FnApiRunner"],
        ["--runner", "apache_beam.runners.direct.DirectRunner"],
        ["--direct_num_workers=1"],
    ],
)
def test_embedded_runner(
    tmp_path: Path, iris: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """The bare DirectRunner, which may run another engine, is never asked."""

    def refused(*arguments: object) -> None:
        raise AssertionError("the bare DirectRunner was used")

    bare = "apache_beam.runners.direct.direct_runner.SwitchingDirectRunner"
    monkeypatch.setattr(f"{bare}.run_pipeline", refused)
    output = tmp_path / "iris"
    convert("csv", IRIS, output, "--shards", 2, "--", *options)
    assert contents(output) == contents(iris)
    assert '"runner": "embedded (' in (output / "run.json").read_text()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--wrokers=2", "Beam has no option --wrokers=2"),
        ("stray", "Beam has no option stray"),
        ("--direct_num_workers=many", "invalid int value: 'many'"),
        ("--direct_running_mode=magic", "invalid choice: 'magic'"),
    ],
)
def test_wrong_beam_option(tmp_path: Path, option: str, message: str) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--", option)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert not (tmp_path / "out").exists()


def test_workers_change_the_embedded_runner(tmp_path: Path) -> None:
    for workers, said in ((1, 1), (3, 3), (0, os.cpu_count())):
        output = tmp_path / str(workers)
        convert("csv", IRIS, output, "--workers", workers)
        assert f"embedded ({said} workers)" in (output / "run.json").read_text()
