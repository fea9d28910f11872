"""Reads how far a run is: from the checkpoints of its tasks, and their live counts.

A look costs the more the more tasks there are. So the next one waits until a hundred
times as long has passed: however large the run, looking takes a hundredth of it.
"""

from __future__ import annotations

import json
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.shards import ShardPlan
from recordmill.transforms.encode.large_values import Window, window_bytes
from recordmill.transforms.tasks.checkpoints import CHECKPOINTS
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tfrecord import FRAME_BYTES

# A checkpoint tells of a task only when it is finished. Until then its counts are in a
# file of the workspace that the task writes anew some times a second, so that threads,
# processes and the launcher need share nothing but a folder. A task whose folder is not
# on this machine is counted only when it is finished.

FOLDER = "live"
SECONDS_BETWEEN_NOTES = 0.5
_FORM = struct.Struct("<4Q")


@dataclass(frozen=True, slots=True)
class Counts:
    """What a task, or several, have done.

    Attributes:
      positions: of the input, in the unit of the source (see `InputRange`).
      rows: that were read, rejects included; of a shard, records that were written.
      rejected: rows that become no record.
      bytes: of records that were written.
    """

    positions: int = 0
    rows: int = 0
    rejected: int = 0
    bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.positions + other.positions,
            self.rows + other.rows,
            self.rejected + other.rejected,
            self.bytes + other.bytes,
        )


class LiveCounts:
    """The counts of one unfinished task.

    Args:
      path: of its file; None keeps no counts.
      clock: gives seconds.
    """

    def __init__(
        self, path: Path | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self._next = clock() + SECONDS_BETWEEN_NOTES  # a short task needs no file
        self._written = Counts()

    def note(self, counts: Counts) -> None:
        """Writes the counts, unless it did so just before."""
        if self._path is None or (now := self._clock()) < self._next:
            return
        self._next = now + SECONDS_BETWEEN_NOTES
        try:
            # In place: one that was emptied first could be read empty.
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o666)
            try:
                os.pwrite(file, _FORM.pack(*astuple(counts)), 0)
            finally:
                os.close(file)
        except OSError:
            self._path = None  # no such folder here: progress is not worth an error

    def note_written(self, records: Window) -> None:
        """Adds records to those that were written."""
        self._written += Counts(rows=len(records), bytes=window_bytes(records))
        self.note(self._written)

    def note_bytes(self, size: int) -> None:
        """Adds bytes to those that were written, or checked."""
        self._written += Counts(bytes=size)
        self.note(self._written)

    def close(self) -> None:
        """Removes the file: the task has left its checkpoint, or failed."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


NO_COUNTS = LiveCounts(None)


@contextmanager
def counting(workspace: Workspace, task: str) -> Iterator[LiveCounts]:
    """Gives the counts of a task, kept where the launcher of the run looks for them."""
    path = None if workspace.shared else workspace.local_path(f"{FOLDER}/{task}")
    live = LiveCounts(path)
    try:
        yield live
    finally:
        live.close()


def counted(windows: Iterable[Window], live: LiveCounts) -> Iterator[Window]:
    """Yields windows of records, and counts those that were taken."""
    for window in windows:
        yield window
        live.note_written(window)


def read_live_counts(workspace: Workspace) -> dict[str, Counts]:
    """Returns the counts of the unfinished tasks, by name."""
    found: dict[str, Counts] = {}
    if workspace.shared:
        return found
    for path in workspace.local_path(FOLDER).glob("*"):
        with suppress(OSError, struct.error):  # finished, or being written just now
            found[path.name] = Counts(*_FORM.unpack(path.read_bytes()))
    return found


SECONDS_BETWEEN_LOOKS = 0.25
SECONDS_BETWEEN_LISTS = 2.0  # of a store, where each costs a request
_LOOK_SHARE = 100
_PLAN = f"{FOLDER}/plan.json"
_NOTHING = Counts()
_READ = re.compile(rb'"rows_read":(\d+),"rows_rejected":(\d+)')


class PlannedTotals(NamedTuple):
    """What the shard plan says of all shards together."""

    shards: int
    records: int
    bytes: int


def save_plan_totals(workspace: Workspace, plan: ShardPlan) -> None:
    """Saves the totals of the plan for reports on progress."""
    totals = PlannedTotals(
        plan.num_shards,
        sum(sum(split.shard_records) for split in plan.splits),
        sum(sum(split.shard_bytes) for split in plan.splits),
    )
    workspace.put(_PLAN, json.dumps(totals).encode())


class FinishedTasks:
    """The finished tasks of a run, for reports on its progress.

    Args:
      workspace: of the run.
      clock: gives seconds.

    Attributes:
      at_work: counts of the tasks that were not finished at the last look, by name.
    """

    def __init__(
        self, workspace: Workspace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workspace = workspace
        self._clock = clock
        self._next_look = self._looked = clock()
        self._first_seen: dict[str, float] = {}
        self._counts: dict[str, Counts] = {}
        self._plan: PlannedTotals | None = None
        self.at_work: dict[str, Counts] = {}

    @property
    def in_store(self) -> bool:
        """Tells whether each look costs a request of a store."""
        return self._workspace.shared

    def look(self, *, now: bool = False) -> bool:
        """Looks at the tasks again, unless it did so just before.

        Args:
          now: do it in any case, as the run is over.

        Returns:
          Whether it did.
        """
        began = self._clock()
        if began < self._next_look and not now:
            return False
        # First those at work: one that ends meanwhile is listed below.
        self.at_work = read_live_counts(self._workspace)
        for name in self._list():
            if name not in self._first_seen:
                self._first_seen[name] = time.time()
        self._looked = began
        self.rest()
        return True

    def rest(self) -> None:
        """Puts off the next look by what this one, with all that follows, has taken."""
        took = self._clock() - self._looked
        least = SECONDS_BETWEEN_LISTS if self.in_store else SECONDS_BETWEEN_LOOKS
        self._next_look = self._looked + max(least, _LOOK_SHARE * took)

    def _list(self) -> list[str]:
        if self.in_store:
            found = self._workspace.names(CHECKPOINTS)
        else:
            try:
                found = os.listdir(self._workspace.local_path(CHECKPOINTS))  # noqa: PTH208
            except FileNotFoundError:  # the run is over, and cleans up
                return []
        return [
            name.removesuffix(".json")
            for name in found
            if name.endswith(".json") and not name.startswith(".")
        ]

    def times(self) -> dict[str, float]:
        """Returns when each task finished, in Unix seconds, by the name of the task.

        In a store it is when the checkpoint was first listed, a few seconds later.
        """
        if self.in_store:
            return dict(self._first_seen)
        seen = {}
        for name in self._list():
            with suppress(FileNotFoundError):
                path = self._workspace.local_path(f"{CHECKPOINTS}/{name}.json")
                seen[name] = path.stat().st_mtime
        return seen

    def names(self) -> Sequence[str]:
        """Returns the tasks that were finished at the last look."""
        return list(self._first_seen)

    def counts(self) -> tuple[int, int]:
        """Counts the ranges that were read and the shards that were written."""
        ranges = sum(name.startswith("range-") for name in self._first_seen)
        return ranges, sum(name.startswith("shard-") for name in self._first_seen)

    def rows_rejected(self) -> int | None:
        """Counts the rows that finished tasks rejected; None in a store."""
        if self.in_store:
            return None
        # The first reading of a range that is read twice is not counted.
        return sum(
            counts.rejected
            for name, counts in self.by_task().items()
            if not name.startswith("range-measured-")
        )

    def by_task(self) -> dict[str, Counts]:
        """Returns rows, rejects and bytes of the finished tasks; nothing in a store.

        Reads each checkpoint once. In a store that would cost a request for each.
        """
        if self.in_store:
            return {}
        for name in self._first_seen:
            if name not in self._counts and name.startswith(("range-", "shard-")):
                data = self._workspace.get(f"{CHECKPOINTS}/{name}.json")
                if data is not None:
                    self._counts[name] = _counts_in(name, data)
        return self._counts

    def planned(self) -> PlannedTotals | None:
        """Returns what the plan says, once it is made."""
        if self._plan is None and (data := self._workspace.get(_PLAN)) is not None:
            self._plan = PlannedTotals(*json.loads(data))
        return self._plan


def _counts_in(name: str, data: bytes) -> Counts:
    """Returns what the checkpoint of a range or a shard says."""
    # Not the whole of it: of 20,000 columns there is much, and of files there may be
    # as many.
    if name.startswith("range-") and (found := _READ.search(data)):
        return Counts(rows=int(found[1]), rejected=int(found[2]))
    facts: dict[str, Any] = json.loads(data)
    facts = facts.get("result", facts)
    records = int(facts.get("records", 0))
    # As the plan and the live counts have them: framed, and before compression.
    framed = int(facts.get("example_bytes", 0)) + FRAME_BYTES * records
    return Counts(0, records, int(facts.get("rows_rejected", 0)), framed)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a run is.

    Attributes:
      surveyed: ranges whose survey is finished.
      read: positions, rows and rejects of the ranges, finished or not.
      total_positions: of all readings.
      readings: how many times each range is read.
      written: records and bytes of the shards, finished or not.
      ranges: that were read.
      shards: that were written.
      planned: what the plan says; None before it is made.
      working: names of the tasks that are at work.
      again: how many of them read a range again, with wider types.
      knows_rows: whether finished tasks tell how many rows they had.
      checked: bytes of shards that were verified before they are published.
    """

    surveyed: int
    read: Counts
    total_positions: int
    readings: int
    written: Counts
    ranges: int
    shards: int
    planned: PlannedTotals | None
    working: tuple[str, ...]
    again: int
    knows_rows: bool
    checked: int = 0


def find_position(
    finished: FinishedTasks,
    ranges: Sequence[InputRange],
    readings: int,
) -> Position:
    """Adds up finished tasks, as last looked at, and those at work.

    Args:
      finished: the finished ones.
      ranges: all input ranges.
      readings: how many times each is read.
    """
    live = finished.at_work
    done = finished.by_task()
    names = finished.names()
    first, last, written = Counts(), Counts(), Counts()
    for name, counts in {**live, **dict.fromkeys(names, _NOTHING), **done}.items():
        if name.startswith("range-"):
            if name in done or counts is _NOTHING:
                positions = ranges[int(name.rpartition("-")[2])].num_positions
                counts = replace(counts, positions=positions)
            if name.startswith("range-measured-"):
                first += counts
            else:
                last += counts
        elif name.startswith("shard-"):
            written += counts
    # The second reading finds the same rows once more.
    rows = (last.rows or first.rows, max(first.rejected, last.rejected))
    return Position(
        surveyed=sum(name.startswith("survey-") for name in names),
        read=Counts(first.positions + last.positions, *rows),
        total_positions=readings * sum(each.num_positions for each in ranges),
        readings=readings,
        written=written,
        ranges=sum(name.startswith("range-") for name in names),
        shards=sum(name.startswith("shard-") for name in names),
        planned=finished.planned(),
        working=tuple(sorted(live)),
        again=len(live.keys() & {*names}),
        knows_rows=not finished.in_store,
        checked=sum(live[name].bytes for name in live if name.startswith("publish")),
    )


class Reporter:
    """A reporter on a run's progress; this one shows nothing, and times the stages.

    The checkpoints of finished tasks show when the last range was read and the last shard
    written; `end` comes before they are removed.

    Attributes:
      seconds: how long each stage took that is over.
    """

    def __init__(self) -> None:
        self._started = self._begun = time.time()
        self._finished: FinishedTasks | None = None
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def doing(self, stage: str, what: str) -> None:
        """Shows what goes on where no task tells it."""

    def tell(self, understood: InputSummary) -> None:
        """Shows what the input was taken for, and the warnings."""

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        """Starts to follow the tasks of a run."""
        self._begun = time.time()
        self._finished = FinishedTasks(context.workspace)
        self.seconds["prepare"] = self._begun - self._started

    def poll(self) -> None:
        """Looks at the tasks, now and then while they run."""
        # On this machine the files themselves tell when they were written.
        if self._finished is not None and self._finished.in_store:
            self._finished.look()

    def end(self) -> None:
        """Ends: the tasks are finished, or failed."""
        if self._finished is None:
            return
        before = self._begun
        self._finished.look(now=True)
        finished = self._finished.times()
        # What an earlier try finished took none of this run's time.
        for stage, prefix in (("read", "range"), ("write", "shard")):
            times = [at for name, at in finished.items() if name.startswith(prefix)]
            done = max([before, *times])
            self.seconds[stage] = done - before
            before = done
        self.seconds["publish"] = max(0.0, time.time() - before)
