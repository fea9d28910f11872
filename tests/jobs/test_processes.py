"""Runs whose tasks are executed by processes: their bytes, errors, and ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from archive_tools import ARCHIVES, files_in
from case_jobs import BY_PROCESS, offer, run_case
from job_inputs import MixedInput
from job_tools import (
    COMMAND,
    HANG_SECONDS,
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
from store_servers import Place
from store_tools import local_files, options_of

from recordmill.beam_jobs.service import prepare
from recordmill.schemas.errors import UsageError
from recordmill.schemas.ranges import RangeResult
from recordmill.transforms.sources.arrays.fixed_records import CifarSource

CIFAR = SAMPLES / "cifar"  # two ranges: 492 and 123 kB
PROCESSES = ["--", "--direct_running_mode=multi_processing", "--direct_num_workers=2"]
THREADS = ["--", "--direct_running_mode=in_memory", "--direct_num_workers=2"]

# Waits in a worker, while a file is there; also looks at what a worker has imported, and
# starts a process as a person's function may.
WAITING = """
import subprocess, sys, time
from pathlib import Path

HERE = Path({folder!r})
IS_WORKER = sys.argv[0] == "-c"

def wait(batch):
    if IS_WORKER:
        assert "apache_beam" not in sys.modules
        if (HERE / "waits").exists():
            subprocess.Popen(["sleep", "600"])
        (HERE / "begun").touch()
    while IS_WORKER and (HERE / "waits").exists():
        time.sleep(0.01)
    return batch
"""


def test_processes_give_the_same_bytes(tmp_path: Path, mixed: MixedInput) -> None:
    """With some runs in memory, and all in files."""
    options: list[Argument] = ["--shards", 3, "--memory"]
    convert("csv", *mixed.files, tmp_path / "threads" / "mixed", *options, "20MB")
    for memory in ("20MB", "0"):
        output = tmp_path / memory / "mixed"
        convert("csv", *mixed.files, output, *options, memory, *PROCESSES)
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
        monkeypatch.setattr(prepare, "SHARED_PROCESS_BYTES", least)
        ran = recordmill(*job, workers, "--plan", "--json", *options)
        assert json.loads(ran.out)["processes"] == expected
        text = recordmill(*job, workers, "--plan", *options).out
        assert (f"workers  {expected} processes" in text) == (expected > 0)


def test_the_launcher_passes_on_what_workers_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads results for the plan, the list of runs and the manifest, not between."""
    unpack, read = RangeResult.unpack, list[int]()

    def noted(packed: Iterable[bytes]) -> list[RangeResult]:
        found = unpack(packed)
        read.append(len(found))
        return found

    monkeypatch.setattr(RangeResult, "unpack", noted)
    convert("cifar", CIFAR, tmp_path / "out", *PROCESSES)
    assert read == [2, 2, 2]


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
    """A run in the middle of its work, its two workers, and what these started."""
    (folder / "waiting.py").write_text(WAITING.format(folder=str(folder)))
    (folder / "waits").touch()
    with started(*job_of(folder), *PROCESSES) as process:
        wait_until((folder / "begun").exists, process)
        workers = workers_of(process)
        assert len(workers) == 2
        started_there = [child for worker in workers for child in children(worker)]
        assert started_there
        yield process, workers + started_there
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
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
    ran = recordmill("convert", "cifar", CIFAR, output, *options)
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


@pytest.mark.on_disk
def test_all_processes_together_hold_what_memory_allows(tmp_path: Path) -> None:
    """In files that take no room of /dev/shm; what is more goes to the disk."""
    (tmp_path / "in").mkdir()
    for number in range(30):  # a range each
        rows = [json.dumps({"number": number, "text": "x" * 1000})] * 300
        (tmp_path / f"in/{number:02d}.jsonl").write_text("\n".join(rows))
    (tmp_path / "waiting.py").write_text(
        WAITING.format(folder=str(tmp_path)).replace(
            ".exists():\n        time",
            ".exists() and batch['number'][0].as_py() == 29:\n        time",
        )
    )
    (tmp_path / "waits").touch()
    job = ["convert", "jsonl", tmp_path / "in", tmp_path / "out", "--memory", "4MB"]
    options = ["--map", f"{tmp_path / 'waiting.py'}:wait", *PROCESSES]
    with started(*job, *options) as process:
        work = tmp_path / "out/.recordmill"
        ranges = "*/facts/range-scratch-*.json"
        wait_until(lambda: len(list(work.glob(ranges))) == 29, process)
        held, mapped = 0, ""
        for worker in workers_of(process):
            for file in Path(f"/proc/{worker}/fd").iterdir():
                if "memfd:recordmill" in str(file.readlink()):
                    held += file.stat().st_size
            mapped += Path(f"/proc/{worker}/maps").read_text()
        assert 3_000_000 < held < 4_100_000  # with the heads of the files
        assert "/dev/shm" not in mapped
        assert len(list(work.glob("*/runs/*.records"))) > 10
        (tmp_path / "waits").unlink()
        assert ended(process).status == 0
    assert_whole(tmp_path / "out")


def test_a_job_that_workers_cannot_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Says so, and names a way out that works."""
    module = ModuleType("only_here")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    own = type("Own", (CifarSource,), {"__module__": module.__name__})
    monkeypatch.setattr(module, "Own", own, raising=False)
    offer(own(range_bytes=100_000), monkeypatch)
    with pytest.raises(UsageError, match="No module named 'only_here'") as raised:
        run_case(CIFAR, tmp_path / "out", "scratch", beam_args=BY_PROCESS)
    assert "`-- --direct_running_mode=in_memory`" in str(raised.value)
    assert_unpublished(tmp_path / "out")
    in_memory = ("--direct_running_mode=in_memory",)
    run_case(CIFAR, tmp_path / "out", "scratch", beam_args=in_memory)
    assert_whole(tmp_path / "out")


def test_a_function_of_main(tmp_path: Path) -> None:
    """A job names functions by their module, which workers import: `__main__` is none."""
    code = """
import sys
def same(batch):
    return batch
from recordmill.beam_jobs.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
    job = ["convert", "cifar", CIFAR, tmp_path / "out", "--map"]
    ran = python(code, *job, "__main__:same", *PROCESSES)
    assert ran.status == 2, ran.err
    assert "--map" in ran.err
    assert_unpublished(tmp_path / "out")


@pytest.mark.parametrize("form", ["-", "zip", "tar.gz"])
def test_standard_input_and_archives(tmp_path: Path, form: str) -> None:
    """Give the bytes that they give by threads."""
    if form == "-":
        job: list[Argument] = ["convert", "csv", "-"]
        rows = (b"%d,row %0400d\n" % (n, n) for n in range(50_000))  # two ranges
        sent = b"id,text\n" + b"".join(rows)
    else:
        archive = tmp_path / f"in.{form}"
        archive.write_bytes(ARCHIVES[archive.name](files_in(CIFAR)))
        job = ["convert", "cifar", archive]
    found = []
    for way, options in (("processes", PROCESSES), ("threads", THREADS)):
        output = tmp_path / way / "same"
        if form == "-":
            ran = subprocess.run(
                [str(COMMAND), *map(str, [*job, output, *options])],
                input=sent,
                capture_output=True,
                check=False,
                timeout=HANG_SECONDS,
            )
            assert ran.returncode == 0, ran.stderr
        else:
            assert recordmill(*job, output, *options).status == 0
        found.append(contents(output))
        assert ("2 processes" in (output / "run.json").read_text()) == (
            way == "processes"
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("store_place", ["s3"], indirect=True)
@pytest.mark.usefixtures("cache")
def test_a_bucket_is_read_and_written(store_place: Place, tmp_path: Path) -> None:
    for path, data in files_in(CIFAR).items():
        store_place.store.put_bytes(data, f"in/{path}")
    place, reach = store_place.root, options_of(store_place.options)
    reach += [each.replace("output:", "input:") for each in reach]
    job = ["convert", "cifar", f"{place}/in", f"{place}/same", *reach]
    ran = recordmill(*job, *PROCESSES)
    assert ran.status == 0, ran.err
    convert("cifar", CIFAR, tmp_path / "same", *THREADS)
    there = {
        name.removeprefix("same/"): store_place.store.read(name)
        for name in store_place.store.list()
        if name.startswith("same/cifar") or "tfrecord" in name
    }
    assert there
    assert there.items() <= local_files(tmp_path / "same").items()


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
    monkeypatch.setattr(prepare, "SHARED_PROCESS_BYTES", 1)
    for memory, expected in ((0, 2), (1 << 40, 2), (prepare.PROCESS_MEMORY, 0)):
        monkeypatch.setattr(prepare, "available_memory", lambda memory=memory: memory)
        assert json.loads(recordmill(*job).out)["processes"] == expected
