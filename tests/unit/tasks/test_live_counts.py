"""Counts of unfinished tasks, and what they add up to with the finished ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from recordmill.schemas.ranges import InputRange, RangeResult
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.progress_reader import (
    LIVE,
    Counts,
    RunProgress,
    TaskMonitor,
    read_live_counts,
    run_progress,
)
from recordmill.transforms.tasks.workspace import (
    LiveCounts,
    Workspace,
    save_checkpoint,
    write_live_counts,
)

RANGES = [
    InputRange(at, "a", "a", 100 * at, 100 * at + 100, 100 * at, 300) for at in range(3)
]


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace.for_run(LocalStore(str(tmp_path)), "0123456789abcdef")
    made.create("scratch")
    return made


def live(workspace: Workspace, task: str, clock: Clock) -> LiveCounts:
    return LiveCounts(workspace.local_store(LIVE), task, clock)


def test_noted_twice_a_second(workspace: Workspace) -> None:
    clock = Clock()
    counts = live(workspace, "range-scratch-000000", clock)
    counts.write_counts(Counts(1))
    assert read_live_counts(workspace) == {}, "a short task needs no file"
    clock.now += 0.6
    counts.write_counts(Counts(10, 5, 1))
    counts.write_counts(Counts(20, 6, 1))
    assert read_live_counts(workspace) == {"range-scratch-000000": Counts(10, 5, 1)}
    counts.close()
    assert read_live_counts(workspace) == {}


def test_a_worker_without_the_folder_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    counts = LiveCounts(LocalStore(str(tmp_path / "elsewhere")), "task", clock)
    clock.now += 1
    counts.write_counts(Counts(1))
    clock.now += 1
    counts.write_counts(Counts(2))
    counts.close()


def test_half_a_file_is_no_count(workspace: Workspace) -> None:
    workspace.local_path(f"{LIVE}/shard-train-00000").write_bytes(b"\1\0")
    assert read_live_counts(workspace) == {}


def test_removed_if_the_task_fails(workspace: Workspace) -> None:
    path = workspace.local_path(f"{LIVE}/x")

    def fail() -> None:
        path.write_bytes(bytes(32))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), write_live_counts(workspace, "x"):
        fail()
    assert not path.exists()


def test_those_of_a_killed_run_are_removed(workspace: Workspace) -> None:
    workspace.local_path(f"{LIVE}/x").write_bytes(bytes(32))
    workspace.create("scratch")
    assert read_live_counts(workspace) == {}


def finish(workspace: Workspace, name: str, at: int, rows: int, rejected: int) -> None:
    save_checkpoint(workspace, name, RangeResult(RANGES[at], rows, rejected, ()))


def position(workspace: Workspace, readings: int = 1) -> RunProgress:
    finished = TaskMonitor(workspace)
    finished.poll(at_once=True)
    return run_progress(finished, RANGES, readings)


def note(workspace: Workspace, task: str, counts: Counts) -> None:
    clock = Clock()
    file = live(workspace, task, clock)
    clock.now += 1
    file.write_counts(counts)


def test_finished_and_unfinished_add_up(workspace: Workspace) -> None:
    finish(workspace, "range-scratch-000000", 0, 10, 2)
    note(workspace, "range-scratch-000000", Counts(50, 5, 1))  # it ended just now
    note(workspace, "range-scratch-000001", Counts(40, 4, 1))
    found = position(workspace)
    assert found.read_counts == Counts(140, 14, 3)
    assert (found.num_read_ranges, found.num_repeated_ranges) == (1, 1)


def test_a_second_reading_counts_its_rows_anew(workspace: Workspace) -> None:
    for at in range(3):
        finish(workspace, f"range-measured-{at:06d}", at, 10, 1)
    assert position(workspace, 2).read_counts == Counts(300, 30, 3)
    note(workspace, "range-engine-000002", Counts(30, 3, 0))
    found = position(workspace, 2)
    assert found.read_counts == Counts(330, 3, 3)
    assert found.total_positions == 600


def test_looks_take_a_hundredth_of_the_time(workspace: Workspace) -> None:
    """The more tasks there are, the longer a look takes, and the rarer it is."""
    clock = Clock()
    finished = TaskMonitor(workspace, clock)

    class Slow(set[str]):
        def update(self, *names: Iterable[str]) -> None:
            clock.now += 0.5
            super().update(*names)

    finish(workspace, "range-scratch-000000", 0, 10, 2)
    finished.names = Slow()
    assert finished.poll()
    clock.now += 10
    assert not finished.poll()
    clock.now += 40
    assert finished.poll()
