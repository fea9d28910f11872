"""Reads the progress of a run from the checkpoints of its tasks and their live counts.

The cost of a look grows with the number of tasks. So the next look waits a hundred times
as long as the last one took: in a run of any size, looks take one percent of the time.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.ranges import InputRange, ShardPlan
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.workspace import (
    CHECKPOINT_FOLDER,
    LIVE,
    Counts,
    Workspace,
    read_live_counts,
)
from recordmill.transforms.tfrecord import FRAME_BYTES

SECONDS_BETWEEN_LOOKS = 0.25
SECONDS_BETWEEN_LISTS = 2.0  # for a remote store, where each listing costs a request
_LOOK_SHARE = 100
_PLAN = f"{LIVE}/plan.json"
_READ = re.compile(rb'"rows_read":(\d+),"rows_rejected":(\d+)')


class PlannedTotals(NamedTuple):
    """The totals of a shard plan."""

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
    workspace.write_file(_PLAN, json.dumps(totals).encode())


def save_stage_end(workspace: Workspace, stage: str) -> None:
    """Stores the end time of a stage of a run: "read" or "write"."""
    workspace.write_file(f"{LIVE}/end-of-{stage}", json.dumps(time.time()).encode())


class TaskMonitor:
    """The finished tasks of a run, for reports on its progress.

    `names` contains the tasks that were finished at the last look, and `at_work` the
    counts of the active tasks. `in_store` is whether each look costs a request to a
    store.
    """

    def __init__(
        self, workspace: Workspace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workspace = workspace
        self._clock = clock
        self._next_look = self._looked = clock()
        self._counts: dict[str, Counts] = {}
        self._plan: PlannedTotals | None = None
        self.names: set[str] = set()
        self.active_tasks: dict[str, Counts] = {}
        self.in_store = workspace.is_in_store

    def poll(self, *, at_once: bool = False) -> bool:
        """Reads the state of the tasks if it is time, or if `at_once`.

        Returns whether the state was read.
        """
        began = self._clock()
        if began < self._next_look and not at_once:
            return False
        # Active tasks first: a task that ends meanwhile is listed below.
        self.active_tasks = read_live_counts(self._workspace)
        self.names.update(self._list())
        self._looked = began
        self.schedule_next_look()
        return True

    def schedule_next_look(self) -> None:
        """Schedules the next look in proportion to the duration of this one."""
        took = self._clock() - self._looked
        least = SECONDS_BETWEEN_LISTS if self.in_store else SECONDS_BETWEEN_LOOKS
        self._next_look = self._looked + max(least, _LOOK_SHARE * took)

    def _list(self) -> list[str]:
        if self.in_store:
            file_names = self._workspace.list_names(CHECKPOINT_FOLDER)
        else:
            try:
                file_names = os.listdir(self._workspace.local_path(CHECKPOINT_FOLDER))  # noqa: PTH208
            except FileNotFoundError:  # the run has ended, and cleans up
                return []
        return [
            name.removesuffix(".json")
            for name in file_names
            if name.endswith(".json") and not name.startswith(".")
        ]

    def by_task(self) -> dict[str, Counts]:
        """Returns rows, rejects and bytes of the finished tasks, by task; {} in a store.

        Each checkpoint is read once. In a store, that would cost a request per
        checkpoint.
        """
        if self.in_store:
            return {}
        for name in self.names:
            if name not in self._counts and name.startswith(("range-", "shard-")):
                data = self._workspace.read_file(f"{CHECKPOINT_FOLDER}/{name}.json")
                if data is not None:
                    self._counts[name] = _counts_in(name, data)
        return self._counts

    def plan_totals(self) -> PlannedTotals | None:
        """Returns the totals of the shard plan, or None before it exists."""
        if (
            self._plan is None
            and (data := self._workspace.read_file(_PLAN)) is not None
        ):
            self._plan = PlannedTotals(*json.loads(data))
        return self._plan


def _counts_in(name: str, data: bytes) -> Counts:
    """Returns the counts in the checkpoint of a range or a shard."""
    # The checkpoint of a range is not parsed: with 20,000 columns it is large, and there
    # may be as many files.
    if name.startswith("range-") and (row_counts := _READ.search(data)):
        return Counts(rows=int(row_counts[1]), rejected=int(row_counts[2]))
    facts: dict[str, Any] = json.loads(data)
    facts = facts.get("result", facts)
    records = int(facts.get("records", 0))
    # Framed and before compression, as in the plan and the live counts.
    framed = int(facts.get("example_bytes", 0)) + FRAME_BYTES * records
    rejected = int(facts.get("rejects", {}).get("rows", 0))
    return Counts(0, records, rejected, framed)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The progress of a run."""

    num_scanned_ranges: int  # number of ranges whose boundary scan is finished
    read_counts: Counts  # positions, rows and rejects of the ranges, finished or not
    total_positions: int  # in all readings
    readings: int  # number of times that each range is read
    written_counts: Counts  # records and bytes of the shards, finished or not
    num_read_ranges: int  # number of ranges that were read
    num_written_shards: int  # number of shards that were written
    plan_totals: PlannedTotals | None  # totals of the shard plan; None before it exists
    active_tasks: tuple[str, ...]  # names of the active tasks
    # number of active tasks that read a range again, with wider types
    num_repeated_ranges: int
    knows_rows: bool  # whether the row counts of finished tasks are known
    verified_bytes: int = 0  # bytes of shards that were verified before publication

    @property
    def rejected(self) -> int:
        """Returns the number of rejects so far."""
        return self.read_counts.rejected + self.written_counts.rejected


def run_progress(
    finished: TaskMonitor, ranges: Sequence[InputRange], readings: int
) -> RunProgress:
    """Returns the progress of a run from its tasks at the last look."""
    live, done, names = finished.active_tasks, finished.by_task(), finished.names
    first, last, written = Counts(), Counts(), Counts()
    for name, counts in {**live, **dict.fromkeys(names, Counts()), **done}.items():
        if name.startswith("range-"):
            if name in names:
                positions = ranges[int(name.rpartition("-")[2])].num_positions
                counts = counts._replace(positions=positions)
            if name.startswith("range-measured-"):
                first = first.plus(counts)
            else:
                last = last.plus(counts)
        elif name.startswith("shard-"):
            written = written.plus(counts)
    # The second reading counts the same rows again.
    rows = (last.rows or first.rows, max(first.rejected, last.rejected))
    return RunProgress(
        num_scanned_ranges=sum(name.startswith("survey-") for name in names),
        read_counts=Counts(first.positions + last.positions, *rows),
        total_positions=readings
        * sum(input_range.num_positions for input_range in ranges),
        readings=readings,
        written_counts=written,
        num_read_ranges=sum(name.startswith("range-") for name in names),
        num_written_shards=sum(name.startswith("shard-") for name in names),
        plan_totals=finished.plan_totals(),
        active_tasks=tuple(sorted(live)),
        num_repeated_ranges=len(live.keys() & names),
        knows_rows=not finished.in_store,
        verified_bytes=sum(
            live[name].bytes for name in live if name.startswith("publish")
        ),
    )


class Reporter:
    """A reporter of a run's progress; this base class only measures the stages.

    `seconds` contains the duration of each finished stage. `on_begin` is called with the
    run's context and the size of its input in bytes when its tasks begin.
    """

    def __init__(self) -> None:
        self.on_begin: Callable[[RunContext, int], None] = lambda *_: None
        self._started = self._begun = time.time()
        self._workspace: Workspace | None = None
        self.seconds_by_stage: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show_activity(self, stage: str, activity: str) -> None:
        """Shows an activity outside of tasks."""

    def report_input(self, understood: InputReport) -> None:
        """Shows the input report and its warnings."""

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        """Starts to follow the tasks of a run."""
        self._begun = time.time()
        self._workspace = context.workspace
        self.seconds_by_stage["prepare"] = self._begun - self._started
        self.on_begin(context, input_bytes)

    def poll(self) -> None:
        """Shows the progress of the tasks, if it is time."""

    def end(self) -> None:
        """Ends the report, after the tasks have finished or failed."""
        if self._workspace is None:
            return
        stage_begin = self._begun
        for stage in ("read", "write"):
            stage_end = self._workspace.read_file(f"{LIVE}/end-of-{stage}")
            done = max(stage_begin, float(stage_end or stage_begin))
            self.seconds_by_stage[stage] = done - stage_begin
            stage_begin = done
        self.seconds_by_stage["publish"] = max(0.0, time.time() - stage_begin)
