"""Threads of the embedded runner, their memory, and the native extension."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    Ran,
    assert_unpublished,
    command,
    contents,
    convert,
    python,
    recordmill,
)
from same_dataset import dataset_of

from recordmill.beam_jobs.pipelines import convert as convert_pipeline
from recordmill.transforms import native
from recordmill.transforms.encode.waiting_rows import has_values
from recordmill.transforms.exchange.sorted_runs import RunsInMemory, SortedRows
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.tasks import convert_range

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
        ("commit", OSError(28, "No space left"), "No space left; the disk is full"),
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


def test_wrong_beam_option(tmp_path: Path) -> None:
    """By the run and its plan."""
    for option, message in {
        "--wrokers=2": "Beam has no option --wrokers=2",
        "stray": "Beam has no option stray",
        "--direct_num_workers=many": "invalid int value: 'many'",
        "--direct_running_mode=magic": "invalid choice: 'magic'",
    }.items():
        for plan in ([], ["--plan"]):
            job = [IRIS, tmp_path / "out", *plan, "--", option]
            ran = recordmill("convert", "csv", *job)
            assert (ran.status, ran.out) == (2, "")
            assert message in ran.err
            assert not (tmp_path / "out").exists()


def test_workers_change_the_embedded_runner(tmp_path: Path) -> None:
    for workers, said in ((1, 1), (3, 3), (0, usable_cores())):
        output = tmp_path / str(workers)
        convert("csv", IRIS, output, "--workers", workers)
        assert f"embedded ({said} workers)" in (output / "run.json").read_text()


@pytest.mark.parametrize(
    ("source", "files"), [("csv", IRIS), ("cifar", SAMPLES / "cifar")]
)
def test_same_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, files: Argument
) -> None:
    constants = {
        name: getattr(native.loops, name)
        for name in numpy_loops.IN_EXTENSION
        if name.isupper()
    }
    loops = Mock(wraps=native.loops, **constants)
    monkeypatch.setattr(native, "loops", loops)
    convert(source, files, tmp_path / "with" / "out", "--shards", 2)
    assert loops.write.called
    assert loops.seal.called
    assert loops.split_cells.called == (source == "csv")
    monkeypatch.setattr(native, "loops", numpy_loops)
    convert(source, files, tmp_path / "without" / "out", "--shards", 2)
    with_loops = dataset_of(tmp_path / "with" / "out")
    assert with_loops
    assert with_loops == dataset_of(tmp_path / "without" / "out")


def test_version_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ("yes (CRC-32C by instruction)", "yes (CRC-32C by table)")
    assert command("--version").out.splitlines()[1].partition(": ")[2] in ways
    monkeypatch.setenv("RECORDMILL_COMPILED", "no")
    assert command("--version").out.splitlines()[1] == (
        "native extension: no (RECORDMILL_COMPILED turns it off)"
    )


CIFAR = SAMPLES / "cifar"  # two ranges: 492 and 123 kB


def test_where_records_wait_for_their_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "recordmill.transforms.tasks.workspace.Workspace.remove", lambda workspace: None
    )
    shards = set()
    for memory, in_files in (("auto", 0), ("300kB", 1), ("0", 2)):
        output = tmp_path / memory / "digits"
        options = ["--exchange", "scratch", "--workers", "1", "--memory", memory]
        convert("cifar", CIFAR, output, *options)
        runs = [*output.glob(".recordmill/*/runs/*.records")]
        assert len(runs) == in_files, memory
        shards.add(
            tuple(path.read_bytes() for path in sorted(output.glob("*.tfrecord*")))
        )
    assert len(shards) == 1


def test_a_range_in_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a large compressed table, whose records are not held all at once."""
    monkeypatch.setattr(
        "recordmill.transforms.tasks.workspace.Workspace.remove", lambda workspace: None
    )
    table = SAMPLES / "iris" / "iris.csv"
    module = "recordmill.transforms.sources.csv.rows.BATCH_BYTES"
    monkeypatch.setattr(module, 1000)
    shards = []
    for run_bytes in (1 << 20, 1000):
        monkeypatch.setattr(convert_range, "RUN_BYTES", run_bytes)
        output = tmp_path / str(run_bytes) / "iris"
        convert("csv", table, output, "--memory", "0")
        runs = [*output.glob(".recordmill/*/runs/*.records")]
        assert (len(runs) > 1) == (run_bytes == 1000)
        shards.append([path.read_bytes() for path in output.glob("*.tfrecord*")])
    assert shards[0] == shards[1]


def test_rows_that_wait_as_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until their shard is written; here a column has its first value in later rows."""
    table = tmp_path / "table.csv"
    rows = (f"{n},{n if n > 600 else ''},{'' if n % 7 else 'text'}" for n in range(900))
    table.write_text("number,late,seldom\n" + "\n".join(rows) + "\n")
    monkeypatch.setattr("recordmill.transforms.sources.csv.rows.BATCH_BYTES", 2000)
    monkeypatch.setattr(convert_range, "RUN_BYTES", 20_000)
    held: list[bool] = []

    hold = RunsInMemory.hold

    def note(
        self: RunsInMemory, folder: str, stem: str, run: SortedRows, *rest: Any
    ) -> bool:
        is_held = hold(self, folder, stem, run, *rest)
        held.append(is_held and has_values(run.rows))
        return is_held

    monkeypatch.setattr(RunsInMemory, "hold", note)
    datasets = []
    for memory, in_memory in (("auto", True), ("30kB", True), ("0", False)):
        output = tmp_path / memory / "out"
        held.clear()
        splits = ["--split", "train=0.7", "--split", "test=0.3"]
        convert("csv", table, output, *splits, "--memory", memory)
        assert any(held) == in_memory, memory
        datasets.append(dataset_of(output))
    assert datasets[0] == datasets[1] == datasets[2]


_ARENAS = """
import ctypes, threading
from recordmill.transforms.tasks.memory import share_arenas
share_arenas()
malloc = ctypes.CDLL(None).malloc
malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
barrier, held = threading.Barrier(40), []
def hold():
    barrier.wait()
    held.append(malloc(1000) >> 26)  # arenas of threads begin at multiples of 64 MiB
    barrier.wait()
threads = [threading.Thread(target=hold) for _ in range(40)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(set(held)))
"""


def test_threads_share_the_arenas_of_the_c_library() -> None:
    """Forty threads have one for each core, or as many as the environment says."""
    most = {"MALLOC_ARENA_MAX": "7"}, {}
    others = {key: value for key, value in os.environ.items() if key not in most[0]}
    for more, limit in zip(most, (7, usable_cores()), strict=True):
        command = [sys.executable, "-c", _ARENAS]
        done = subprocess.run(
            command, env=others | more, capture_output=True, text=True, check=True
        )
        assert 1 <= int(done.stdout) <= limit + 1  # the main thread's is one more


_SHOWN_PAGES = """
import os
os._exit = lambda status: None  # how the command ends
from recordmill.beam_jobs.cli.main import main
main(["--version"])
import numpy, pyarrow
pyarrow.allocate_buffer(1 << 20)
print(numpy._core.multiarray._get_madvise_hugepage())
print(open("/proc/self/status").read().partition("THP_enabled:")[2].split()[0])
"""
_PAGES = ("NUMPY_MADVISE_HUGEPAGE", "MIMALLOC_ALLOW_THP")


@pytest.mark.parametrize(("asked", "shown"), [(None, "False 0"), ("1", "True 1")])
def test_the_command_asks_for_no_huge_pages(asked: str | None, shown: str) -> None:
    """Unless the environment does: on many virtual machines they cost six times more."""
    others = {key: value for key, value in os.environ.items() if key not in _PAGES}
    command = [sys.executable, "-c", _SHOWN_PAGES]
    environment = others | ({} if asked is None else dict.fromkeys(_PAGES, asked))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-2:] == shown.split()
