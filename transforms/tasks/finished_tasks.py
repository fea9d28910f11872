"""Reads how far a run is: from the checkpoints of its tasks, and their live counts.

A look costs the more the more tasks there are. So the next one waits until a hundred
times as long has passed: however large the run, looking takes a hundredth of it.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from recordmill.schemas.ranges import InputRange
from recordmill.schemas.shards import ShardPlan
from recordmill.transforms.tasks.checkpoints import CHECKPOINTS
from recordmill.transforms.tasks.live_counts import (
    FOLDER,
    Counts,
    read_live_counts,
)
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tfrecord import FRAME_BYTES

SECONDS_BETWEEN_LOOKS = 0.25
SECONDS_BETWEEN_LISTS = 2.0  # of a store, where each costs a request
_LOOK_SHARE = 100
_PLAN = f"{FOLDER}/plan.json"
_NOTHING = Counts()
_READ = re.compile(rb'"rows_read":(\d+),"rows_rejected":(\d+)')


@dataclass(frozen=True, slots=True)
class PlannedTotals:
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
    workspace.put(_PLAN, json.dumps(asdict(totals)).encode())


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
            self._plan = PlannedTotals(**json.loads(data))
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
      all_read: whether no range is left to be read.
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
    all_read: bool
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
    num_read = sum(name.startswith("range-") for name in names)
    return Position(
        surveyed=sum(name.startswith("survey-") for name in names),
        read=Counts(first.positions + last.positions, *rows),
        total_positions=readings * sum(each.num_positions for each in ranges),
        readings=readings,
        written=written,
        ranges=num_read,
        shards=sum(name.startswith("shard-") for name in names),
        planned=finished.planned(),
        working=tuple(sorted(live)),
        again=len(live.keys() & {*names}),
        all_read=num_read >= len(ranges) * readings,
        knows_rows=not finished.in_store,
        checked=sum(live[name].bytes for name in live if name.startswith("publish")),
    )
