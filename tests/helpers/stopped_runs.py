"""Runs that are stopped or paused at a store operation, and what they say at their end.

`python stopped_runs.py FOLDER TRIES` shows a line for each try on local disk, `--root
s3://...` elsewhere. A run is ended by SIGTERM, or sleeps longer than its lease, at one of
its store operations from staging on; meanwhile another run may publish. Then its status
and its last sentence are compared with what the output held.

Tries are forked from a process that has loaded everything and started no thread.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# as the command does; here before it is loaded
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")

import recordmill.beam_jobs.cli.execute
import recordmill.beam_jobs.runners.embedded
import recordmill.transforms.statistics.class_counts  # noqa: F401
from recordmill.beam_jobs.cli import main as cli
from recordmill.beam_jobs.pipelines import convert as pipeline
from recordmill.beam_jobs.service import run as service
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage import LocalStore, RemoteStore, open_store
from recordmill.transforms.storage import lease as leases

LEASE_SECONDS = 0.8
HANG_SECONDS = 600.0
PUBLISHED = re.compile("the dataset was (already )?published")
OPERATIONS = (
    *("put_file", "put_bytes", "swap", "discard", "read", "read_range"),
    *("size", "modified", "all_files", "list_level", "delete", "remove_tree"),
    "move_all",
)
JOBS = ("first", "replacing", "staged", "version")
FAULTS = ("SIGTERM", "paused", "taken over", "taken by the same job")


@dataclass(frozen=True)
class Try:
    """One run that is disturbed.

    Attributes:
      job: what it does.
      fault: what happens to it.
      step: at which of its store operations, from staging on.
      after: whether that operation was done before.
      seconds: how long the thread of that operation then waits.
    """

    job: str
    fault: str
    step: int
    after: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Ended:
    """How a run ended, what it said, and whether its dataset was ever in the output."""

    status: int
    said: str
    published: bool
    operations: int = 0

    def wrong(self, fault: str) -> str:
        """Why what it said is wrong; "" if it is right."""
        said = self.said.lower()
        yes = self.status == 0 or bool(PUBLISHED.search(said))
        no = "nothing was published" in said or "this run published nothing" in said
        statuses = (0, 143) if fault == "SIGTERM" else (0, 75)
        for reason, is_wrong in (
            ("a traceback", "traceback" in said),
            ("it is unknown to it", "unknown whether" in said),
            ("both", yes and no),
            ("it said that nothing was published", self.published and no),
            ("it did not say that it published", self.published and not yes),
            ("it said that it published", not self.published and yes),
            (f"status {self.status}", self.status not in statuses),
            ("it advises to replace the dataset of the other", "--overwrite" in said),
            (
                "it does not say first that it lost its lease",
                self.status == 75
                and "lost its lease" not in said[said.find("error: ") :].split("\n")[0],
            ),
        ):
            if is_wrong:
                return reason
        return ""


class Output:
    """An output, and the inputs of the runs that write there."""

    def __init__(self, folder: Path, root: str, options: StorageOptions, job: str):
        folder.mkdir(parents=True)
        self.folder, self.root, self.options, self.job = folder, root, options, job
        for name in ("old", "own", "other"):
            rows = "".join(f"{number},{name}\n" for number in range(20))
            (folder / f"{name}.csv").write_text(f"number,word\n{rows}")

    def arguments(self, name: str) -> list[str]:
        """The command that converts one of the inputs."""
        line = ["convert", "csv", str(self.folder / f"{name}.csv"), self.root]
        line += ["--scratch", str(self.folder / "scratch"), "--name", "words"]
        for key, value in self.options.to_dict().items():
            line += ["--storage-option", f"{key}={value}"]
        if self.job == "version":
            return [*line, "--dataset-version", "auto"]
        return [
            *line,
            *(["--overwrite"] if name != "own" or self.job != "first" else []),
        ]

    def datasets(self) -> set[str]:
        """The fingerprints of the datasets in the output."""
        store = open_store(self.root, self.options)
        names = (
            "manifest.json",
            *(f"{n}/manifest.json" for n in store.list_level().folders),
        )
        manifests = [data for name in names if (data := store.read_if_exists(name))]
        return {json.loads(data)["fingerprint"] for data in manifests}


def _forked(act: Callable[[], object], out: Path) -> int:
    """Starts a child that does something and ends; its id. It writes to a file."""
    if pid := os.fork():
        return pid
    target = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(target, 1)
    os.dup2(target, 2)
    try:
        act()
    finally:
        os._exit(70)


def _wait(pid: int, at_stop: Callable[[], None] = lambda: None) -> int:
    """Waits for the end of a child; calls a function each time that it is stopped."""
    until = time.monotonic() + HANG_SECONDS
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if not found:
            time.sleep(0.005)
        elif os.WIFSTOPPED(status):
            at_stop()
            os.kill(pid, signal.SIGCONT)
        else:
            return os.waitstatus_to_exitcode(status)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError("a run does not end")


def _run(output: Output, name: str, log: str) -> int:
    def act() -> None:
        cli.main(output.arguments(name))

    return _wait(_forked(act, output.folder / log))


def _short_lease() -> None:
    defaults = leases.acquire.__kwdefaults__
    assert defaults is not None
    defaults["lease_seconds"] = LEASE_SECONDS


def _stage_only(output: Output) -> None:
    """A run of the own input that is killed before its commit."""

    def act() -> None:
        pipeline.commit = lambda *_, **__: os._exit(9)
        cli.main(output.arguments("own"))

    assert _wait(_forked(act, output.folder / "staging.log")) == 9
    store = open_store(output.root, output.options)
    store.delete([leases.LEASE_NAME])


def disturbed(given: Try, count: Path) -> None:
    """Runs the command of this process with a fault at a step."""
    # Beam's import gave it one; the command does not let it.
    logging.getLogger().handlers[:] = [logging.NullHandler()]
    steps, armed, guard = 0, threading.Event(), threading.Lock()
    file = os.open(count, os.O_CREAT | os.O_WRONLY)
    socket.gethostname = lambda: "elsewhere"  # so that only time tells who is dead
    if given.fault not in ("none", "SIGTERM"):
        _short_lease()

    def arming(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            armed.set()
            return function(*arguments, **options)

        return call

    def is_reached() -> bool:
        nonlocal steps
        if not armed.is_set() or threading.current_thread().name == "lease":
            return False
        with guard:
            steps += 1
            os.pwrite(file, f"{steps:6}".encode(), 0)
            return steps - 1 == given.step

    def disturb() -> None:
        number = signal.SIGTERM if given.fault == "SIGTERM" else signal.SIGSTOP
        os.kill(os.getpid(), number)
        time.sleep(given.seconds)

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            reached = is_reached()
            if reached and not given.after:
                disturb()
            done = operation(*arguments, **options)
            if reached and given.after:
                disturb()
            return done

        return call

    pipeline.stage = arming(pipeline.stage)
    service.commit = arming(service.commit)
    for store in (LocalStore, RemoteStore):
        for name in OPERATIONS:
            if name in vars(store):
                setattr(store, name, counted(getattr(store, name)))


def attempt(given: Try, output: Output) -> Ended:
    """Makes one try in an output of its own."""
    if output.job == "replacing":
        assert _run(output, "old", "old.log") == 0
    if output.job == "staged":
        _stage_only(output)
    before = output.datasets()
    seen, others = set[str](), set[str]()

    def at_stop() -> None:
        seen.update(output.datasets() - before)
        if given.fault == "paused":
            time.sleep(2 * LEASE_SECONDS)
        else:
            time.sleep(1.2 * LEASE_SECONDS)
            there = output.datasets()
            name = "other" if given.fault == "taken over" else "own"
            _run(output, name, "other.log")
            if name == "other":
                others.update(output.datasets() - there)

    def act() -> None:
        disturbed(given, output.folder / "steps")
        cli.main(output.arguments("own"))

    status = _wait(_forked(act, output.folder / "own.log"), at_stop)
    time.sleep(0.05)
    seen.update(output.datasets() - before)
    said = (output.folder / "own.log").read_text()
    steps = int((output.folder / "steps").read_text() or 0)
    return Ended(status, said, bool(seen - others), steps)


def tries(
    folder: Path, root: str, options: StorageOptions, number: int, seed: int
) -> list[tuple[Try, Ended, str]]:
    """Makes so many tries at random, of all jobs and faults alike."""
    drawn = random.Random(seed)
    steps = {}
    for job in JOBS:
        output = Output(folder / job, f"{root}/{job}", options, job)
        ended = attempt(Try(job, "none", -1), output)
        assert ended.status == 0, ended.said
        steps[job] = ended.operations
    made = []
    for index in range(number):
        job = JOBS[index % len(JOBS)]
        fault = FAULTS[0] if index // len(JOBS) % 2 else drawn.choice(FAULTS[1:])
        step, after = drawn.randrange(steps[job]), drawn.random() < 0.5
        seconds = drawn.choice((0.0, 0.1, 0.6)) if fault == "SIGTERM" else 0.0
        given = Try(job, fault, step, after, seconds)
        output = Output(folder / f"{index}", f"{root}/{index}", options, job)
        try:
            ended = attempt(given, output)
            wrong = ended.wrong(fault)
        except TimeoutError as error:
            ended, wrong = Ended(-1, "", published=False), str(error)
        made.append((given, ended, wrong))
        facts = asdict(given) | {"status": ended.status, "published": ended.published}
        said = ended.said if wrong else ""
        print(json.dumps(facts | {"wrong": wrong, "said": said}), flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tries", type=int)
    parser.add_argument("--root", default="")
    parser.add_argument("--endpoint", default="")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    options = {"endpoint_url": given.endpoint} if given.endpoint else {}
    root = given.root or str(given.folder / "out")
    made = tries(
        given.folder, root, StorageOptions.from_values(options), given.tries, given.seed
    )
    wrong = sum(bool(reason) for *_, reason in made)
    sys.stderr.write(f"{len(made)} tries, {wrong} wrong\n")


if __name__ == "__main__":
    main()
