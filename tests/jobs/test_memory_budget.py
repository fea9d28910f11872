"""Records wait for their shard in memory, up to the budget; the bytes stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job_tools import convert
from same_dataset import dataset_of

from recordmill.transforms.encode.waiting_rows import has_values
from recordmill.transforms.exchange.sorted_runs import HeldRuns, SortedRows
from recordmill.transforms.tasks import convert_range

SAMPLES = Path(__file__).parents[1] / "samples"
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

    hold = HeldRuns.hold

    def note(
        self: HeldRuns, folder: str, stem: str, run: SortedRows, *rest: Any
    ) -> bool:
        is_held = hold(self, folder, stem, run, *rest)
        held.append(is_held and has_values(run.rows))
        return is_held

    monkeypatch.setattr(HeldRuns, "hold", note)
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
    for more, limit in zip(most, (7, os.cpu_count() or 1), strict=True):
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
