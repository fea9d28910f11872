"""Ctrl-C, SIGTERM, SIGHUP and lost leases: a run ends in order and can be resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job_tools import (
    HANG_SECONDS,
    IRIS,
    Argument,
    Ran,
    assert_unpublished,
    assert_whole,
    children,
    contents,
    convert,
    ended,
    kill,
    recordmill,
    wait_until,
)

from recordmill.beam_jobs.pipelines import convert as pipeline
from recordmill.beam_jobs.service import run as run_job
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import LEASE_NAME, Holder, Lease, acquire

# Runs the command with a task that says when it has begun, and then waits for ever.
WAITING = """
import sys, time
from pathlib import Path
from recordmill.beam_jobs.cli import main as cli
from recordmill.beam_jobs.cli import signals
from recordmill.beam_jobs.pipelines import convert
from recordmill.beam_jobs.report import progress

def wait(*arguments, **options):
    Path(sys.argv[1]).touch()
    while True:
        time.sleep(3600)

convert.{task} = wait
{more}
cli.main(sys.argv[2:])
"""

# The main thread is in a call that no signal ends.
STUCK = """
import hashlib
from recordmill.beam_jobs.report.monitoring import LogLines
LogLines.poll = lambda self: hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)
signals.DEADLINE_SECONDS = 0.1
"""

SIGNALS = [
    (signal.SIGINT, 130, "Ctrl-C"),
    (signal.SIGTERM, 143, "SIGTERM"),
    (signal.SIGHUP, 129, "SIGHUP"),
]


@contextmanager
def waiting(
    folder: Path,
    *options: Argument,
    task: str = "write_shard",
    more: str = "",
    own: Sequence[str] = (),
) -> Iterator[subprocess.Popen[str]]:
    """A run of iris in a process of its own, in the middle of its work.

    Args:
      own: what starts that process, if it is not this one.
    """
    begun = folder / "begun"
    code = WAITING.format(task=task, more=more)
    line = [*own, sys.executable, "-c", code, begun, *command_line(folder, *options)]
    process = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(begun.exists, process)
        yield process
    finally:
        for pid in children(process.pid) if process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        if process.poll() is None:
            kill(process)
        process.communicate()


def command_line(folder: Path, *options: Argument) -> list[str]:
    metrics = ["--metrics-file", folder / "iris.prom"]
    return [
        str(a) for a in ("convert", "csv", IRIS, folder / "iris", *metrics, *options)
    ]


def assert_stopped(ran: Ran, folder: Path, status: int, name: str) -> None:
    """Makes sure that an interrupted run said so everywhere, and holds nothing."""
    assert ran.status == status, ran.err
    assert f"nterrupted by {name}: nothing was published. Run the same " in ran.err
    assert_unpublished(folder / "iris")
    metrics = (folder / "iris.prom").read_text()
    assert 'recordmill_last_run_success{dataset="iris"} 0\n' in metrics


def assert_resumes(folder: Path) -> None:
    """Runs the same command again, as the message says, and compares with a run alone."""
    assert not list((folder / "iris").glob(".recordmill/lock/*"))
    convert(*command_line(folder)[1:])
    assert_whole(folder / "iris")
    (folder / "alone").mkdir()
    convert("csv", IRIS, folder / "alone" / "iris")
    assert contents(folder / "iris") == contents(folder / "alone" / "iris")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of TMPDIR for processes that are started."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize(("number", "status", "name"), SIGNALS)
def test_a_run_ends_in_order(
    tmp_path: Path, temporary: Path, number: signal.Signals, status: int, name: str
) -> None:
    with waiting(tmp_path) as process:
        process.send_signal(number)
        ran = ended(process)
    assert_stopped(ran, tmp_path, status, name)
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert [*temporary.iterdir()] == []
    assert_resumes(tmp_path)


def test_a_killed_run_leaves_nothing_outside_its_output(
    tmp_path: Path, temporary: Path
) -> None:
    """It is killed while Beam's temporary folder exists."""
    more = """
from recordmill.beam_jobs.runners import new_pipeline
from types import SimpleNamespace
new_pipeline.shutil = SimpleNamespace(rmtree=wait)
"""
    with waiting(tmp_path, task="nothing", more=more) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(HANG_SECONDS)
    assert [*temporary.iterdir()] == []
    assert [*(tmp_path / "iris").rglob("beam-pipeline-temp*")]
    assert recordmill("clean", tmp_path / "iris").status == 0
    assert not [*tmp_path.rglob("beam-pipeline-temp*")]


def test_programs_are_told(tmp_path: Path) -> None:
    with waiting(tmp_path, "--json", "--log-format", "json") as process:
        process.send_signal(signal.SIGTERM)
        ran = ended(process)
    assert_stopped(ran, tmp_path, 143, "SIGTERM")
    shown = json.loads(ran.out)
    assert (shown["status"], shown["kind"]) == ("failed", "interrupted")
    last = json.loads(ran.err.splitlines()[-1])
    assert (last["event"], last["kind"]) == ("run_failed", "interrupted")
    assert last["exit_status"] == 143
    assert last["message"] == shown["message"]


def test_a_second_signal_changes_nothing(tmp_path: Path) -> None:
    """systemd can send SIGHUP right behind SIGTERM."""
    with waiting(tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        ran = ended(process)
    assert ran.status in (143, 129)  # the kernel may deliver them in either order
    assert_resumes(tmp_path)


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """nohup: a terminal that is closed does not end the run."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with waiting(tmp_path) as process:
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            ran = ended(process)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert_stopped(ran, tmp_path, 143, "SIGTERM")


def test_a_terminal_that_is_gone(tmp_path: Path) -> None:
    with waiting(tmp_path, "--log-format", "text") as process:
        assert process.stderr is not None
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(HANG_SECONDS) == 129
        process.stderr = None
    assert_resumes(tmp_path)


def test_a_main_thread_that_does_not_return(tmp_path: Path) -> None:
    with waiting(tmp_path, "--log-format", "json", more=STUCK) as process:
        process.send_signal(signal.SIGTERM)
        ran = ended(process)
    assert_stopped(ran, tmp_path, 143, "SIGTERM")
    last = json.loads(ran.err.splitlines()[-1])
    assert (last["event"], last["exit_status"]) == ("run_failed", 143)
    # Its lease is a dead process's on this machine, which the next run takes over.
    convert(*command_line(tmp_path)[1:])
    assert_whole(tmp_path / "iris")


def test_process_1_of_a_container(tmp_path: Path) -> None:
    """The kernel gives process 1 no signal that it does not handle."""
    own = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    with waiting(tmp_path, own=own) as process:
        (child,) = children(process.pid)
        os.kill(child, signal.SIGTERM)
        ran = ended(process)
    assert_stopped(ran, tmp_path, 143, "SIGTERM")
    assert_resumes(tmp_path)


def test_interrupted_after_it_published(tmp_path: Path) -> None:
    """What is said then is true, too."""
    more = """
from recordmill.transforms.tasks.workspace import Workspace
Workspace.remove = wait
"""
    with waiting(tmp_path, task="nothing", more=more) as process:
        process.send_signal(signal.SIGTERM)
        ran = ended(process)
    assert ran.status == 143
    assert "Interrupted by SIGTERM: the dataset was already published. " in ran.err
    assert "Run the same command again to clean up" in ran.err
    convert(*command_line(tmp_path)[1:])
    assert_whole(tmp_path / "iris")


THEIRS = ".recordmill/0123456789abcdef/run.log"


def taken_over(store: Store) -> None:
    """Another run, elsewhere, has the lease and is at work."""
    holder = replace(Holder.this_process(60.0), host="elsewhere", pid=7)
    store.put_bytes(holder.to_bytes(), LEASE_NAME)
    store.put_bytes(b"at work", THEIRS)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> list[Lease]:
    found: list[Lease] = []

    def acquire_noted(*args: Any, **options: Any) -> Lease:
        found.append(acquire(*args, **options))
        return found[-1]

    monkeypatch.setattr(run_job, "acquire", acquire_noted)
    return found


def test_it_stops_while_it_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leases: list[Lease]
) -> None:
    store = LocalStore(str(tmp_path / "out"))
    ended, waited = threading.Event(), []

    def stage(*_: Any) -> None:
        taken_over(store)
        assert not leases[0].is_held()  # as its next renewal finds out
        waited.append(ended.wait(600))
        raise OSError("the process has ended")

    monkeypatch.setattr(pipeline, "stage", stage)
    ran = recordmill("convert", "csv", IRIS, store.root)
    ended.set()
    assert ran.status == 75, ran.err
    assert "this run lost its lease on the output" in ran.err
    assert waited in ([], [True])
    assert store.size("manifest.json") is None
    assert store.read(THEIRS) == b"at work"


def test_it_removes_nothing_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path / "out"))
    real = pipeline.commit

    def commit(*args: Any) -> object:
        manifest = real(*args)
        taken_over(store)
        return manifest

    monkeypatch.setattr(pipeline, "commit", commit)
    ran = recordmill("convert", "csv", IRIS, store.root)
    assert ran.status == 0, ran.err
    assert store.read(THEIRS) == b"at work"
    assert len(LocalStore(str(tmp_path / "out/.recordmill")).list_level().folders) == 3
