"""Runs whose tasks are executed by processes: their bytes, errors, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from job_inputs import MixedInput
from job_tools import (
    SAMPLES,
    Argument,
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
    wait_until,
)

from recordmill.beam_jobs.service import prepare

CIFAR = SAMPLES / "cifar"  # two ranges: 492 and 123 kB
PROCESSES = ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
THREADS = ["--", "--direct_running_mode=in_memory", "--direct_num_workers=2"]

# Waits in a worker, while a file is there; also looks at what a worker has imported.
WAITING = """
import sys, time
from pathlib import Path

HERE = Path({folder!r})
IS_WORKER = sys.argv[0] == "-c"

def wait(batch):
    if IS_WORKER:
        assert "apache_beam" not in sys.modules
        (HERE / "begun").touch()
    while IS_WORKER and (HERE / "waits").exists():
        time.sleep(0.01)
    return batch
"""


@pytest.mark.parametrize("memory", ["20MB", "0"])
def test_processes_give_the_same_bytes(
    tmp_path: Path, mixed: MixedInput, memory: str
) -> None:
    """With some runs in memory, and all in files."""
    options: list[Argument] = ["--shards", 3]
    convert("csv", *mixed.files, tmp_path / "threads" / "mixed", *options)
    output = tmp_path / "processes" / "mixed"
    options += ["--memory", memory, *PROCESSES]
    ran = command("convert", "csv", *mixed.files, output, *options)
    assert ran.status == 0, ran.err
    assert_whole(output)
    assert contents(output) == contents(tmp_path / "threads" / "mixed")
    assert "embedded (2 processes)" in (output / "run.json").read_text()


def test_small_inputs_have_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of more bytes have processes, as the plan says; Beam's option decides."""
    job = ["convert", "cifar", CIFAR, tmp_path / "out", "--workers"]
    for least, workers, options, expected in (
        (1 << 40, 2, [], 0),
        (1, 1, [], 0),
        (1, 2, [], 2),
        (1, 64, [], 2),  # there are two ranges
        (1, 2, THREADS, 0),
        (1 << 40, 1, PROCESSES, 2),
    ):
        monkeypatch.setattr(prepare, "PROCESS_BYTES", least)
        monkeypatch.setattr(prepare, "BYTES_BY_WORKERS", least)
        ran = recordmill(*job, workers, "--plan", "--json", *options)
        assert json.loads(ran.out)["processes"] == expected
        text = recordmill(*job, workers, "--plan", *options).out
        assert (f"workers  {expected} processes" in text) == (expected > 0)


def test_threads_import_nothing_more(tmp_path: Path) -> None:
    code = """
import atexit, sys
from recordmill.beam_jobs.cli.main import run
assert run(sys.argv[1:]) == 0
assert "recordmill.transforms.tasks.processes" not in sys.modules
"""
    ran = python(code, "convert", "cifar", CIFAR, tmp_path / "out", *THREADS)
    assert ran.status == 0, ran.err


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    name = b"recordmill.transforms.tasks.processes"
    return [
        child
        for child in children(process.pid)
        if name in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


@contextmanager
def working(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A run in the middle of its work, and its two workers."""
    (folder / "waiting.py").write_text(WAITING.format(folder=str(folder)))
    (folder / "waits").touch()
    with started(*job_of(folder), *PROCESSES) as process:
        wait_until((folder / "begun").exists, process)
        workers = workers_of(process)
        assert len(workers) == 2
        yield process, workers
    (folder / "waits").unlink()


def job_of(folder: Path) -> list[Argument]:
    map_option = ["--map", f"{folder / 'waiting.py'}:wait"]
    return ["convert", "cifar", CIFAR, folder / "out", *map_option]


def assert_ends_and_resumes(folder: Path, workers: list[int]) -> None:
    """Makes sure that no worker is left, and that the same command ends well."""
    output = folder / "out"
    wait_until(lambda: not any(map(is_alive, workers)))
    assert_unpublished(output)
    ran = command(*job_of(folder), *PROCESSES)
    assert ran.status == 0, ran.err
    assert_whole(output)
    assert not list(output.glob(".recordmill/*/*"))


def test_a_worker_is_killed(tmp_path: Path) -> None:
    with working(tmp_path) as (process, workers):
        os.kill(workers[0], signal.SIGKILL)
        ran = ended(process)
        assert (ran.status, ran.out) == (1, "")
        died = f"Error: a worker died: process {workers[0]} ended by SIGKILL. "
        assert died in ran.err
        assert "Run the same command again to resume" in ran.err
        wait_until(lambda: not any(map(is_alive, workers)))
    assert_ends_and_resumes(tmp_path, workers)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_launcher_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    """Its workers end by themselves, though they wait in the middle of a task."""
    with working(tmp_path) as (process, workers):
        process.send_signal(number)
        ran = ended(process)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert ran.status == expected
        wait_until(lambda: not any(map(is_alive, workers)))
    assert_ends_and_resumes(tmp_path, workers)


def test_a_task_that_fails(tmp_path: Path) -> None:
    """The error has its kind and its message, as of a thread."""
    output = tmp_path / "out"
    options = ["--split-by", "colour", *PROCESSES]
    ran = command("convert", "cifar", CIFAR, output, *options)
    assert (ran.status, ran.out) == (2, "")
    assert "Error: --split-by colour: no such column" in ran.err
    assert_unpublished(output)


def test_a_script_is_not_run_by_workers(tmp_path: Path) -> None:
    """Nor a notebook: workers import nothing of the program that runs the job."""
    script = tmp_path / "script.py"
    script.write_text(
        f"""
from pathlib import Path
with Path({str(tmp_path / "times")!r}).open("a") as file:
    file.write("once")
from recordmill.beam_jobs.cli.main import run
assert run({[*map(str, ["convert", "cifar", CIFAR, tmp_path / "out"]), *PROCESSES]!r}) == 0
"""
    )
    ran = python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert ran.status == 0, ran.err
    assert (tmp_path / "times").read_text() == "once"
    assert_whole(tmp_path / "out")


def test_more_runs_than_files_may_be_open(tmp_path: Path) -> None:
    """Each run in memory is an open file; the others are saved in scratch."""
    (tmp_path / "in").mkdir()
    for number in range(150):  # a range each
        row = json.dumps({"number": number})
        (tmp_path / f"in/{number}.jsonl").write_text(f"{row}\n")
    code = f"""
import resource, sys
from pathlib import Path
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
sys.path.append(Path({str(tmp_path)!r}))
from recordmill.beam_jobs.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
    ran = python(
        code, "convert", "jsonl", tmp_path / "in", tmp_path / "out", *PROCESSES
    )
    assert ran.status == 0, ran.err
    assert "150 records" in ran.err


def test_memory_limits_the_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = [
        "convert",
        "cifar",
        CIFAR,
        tmp_path / "out",
        "--workers",
        2,
        "--plan",
        "--json",
    ]
    monkeypatch.setattr(prepare, "PROCESS_BYTES", 1)
    monkeypatch.setattr(prepare, "BYTES_BY_WORKERS", 1)
    for memory, expected in ((0, 2), (1 << 40, 2), (prepare.PROCESS_MEMORY, 0)):
        monkeypatch.setattr(prepare, "available_memory", lambda memory=memory: memory)
        assert json.loads(recordmill(*job).out)["processes"] == expected
