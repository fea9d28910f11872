"""Estimates the disk space that a run needs on this machine, and compares what is free.

A run that surely does not fit is refused before it begins, one that may fit is not: a
sample of the input gives an estimate, of which only a share is sure.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recordmill.beam_jobs.service.prepare import PreparedRun
from recordmill.schemas.errors import InputError, NoRoomError
from recordmill.schemas.text import human_bytes
from recordmill.transforms.exchange.held_runs import NO_BUDGET, HoldBudget
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.local import nearest_folder
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.memory import memory_budget
from recordmill.transforms.tasks.workspace import Workspace

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from recordmill.transforms.tasks.estimate import Estimate

# A run whose disks have this many times the bytes of all records is not estimated:
# scratch and shards together are twice as much.
_AMPLE = 4
_NEGLIGIBLE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Space:
    """The space that a run needs on one disk, in bytes.

    Attributes:
      folder: a folder on that disk.
      needed: the estimate.
      sure: the part of it that is needed even if the estimate is too high.
      free: free space, with what an earlier try of this run finished there.
    """

    folder: str
    needed: int
    sure: int
    free: int

    @property
    def is_short(self) -> bool:
        """Tests whether the run surely does not fit."""
        return self.sure > self.free


def require_space(
    prepared: PreparedRun, options: PipelineOptions, memory: str, free_bytes: int | None
) -> None:
    """Refuses a run that surely does not fit on the disks it writes to.

    Args:
      prepared: the run.
      options: of the pipeline; runs that go to other machines need no space here.
      memory: what sorted records may take of it (see `RunOptions`).
      free_bytes: what the output's store has left, None if it does not say.

    Raises:
      OutputError: which disk, what is needed and free, and what to do.
    """
    from recordmill.beam_jobs.runners.embedded import embedded_workers, works_in_threads

    workers = embedded_workers(options)
    if not workers:
        return
    context, inputs = prepared.context, prepared.inputs
    most = context.source.estimated_bytes(inputs.files)
    most += sum(file.size for file in inputs.side_files)
    folders = (context.workspace.root, context.workspace.scratch_root)
    free = [shutil.disk_usage(nearest_folder(Path(folder))).free for folder in folders]
    if free_bytes is not None:
        free.append(free_bytes)
    if min(free) > _AMPLE * most + _NEGLIGIBLE_BYTES:
        return
    with suppress(InputError):  # the run explains better what is wrong with the input
        # Only here: it imports all that reads and encodes rows.
        from recordmill.transforms.tasks.estimate import estimate_run

        estimate = estimate_run(context, inputs.all_files, prepared.ranges)
        budget = run_budget(context, memory, in_threads=works_in_threads(options))
        space = space_of(context.workspace, estimate, workers, budget.num_bytes)
        if reason := first_short(space):
            raise NoRoomError(reason)


def run_budget(context: RunContext, memory: str, *, in_threads: bool) -> HoldBudget:
    """Returns what the sorted runs of a run may hold in memory.

    Args:
      context: the run.
      memory: as asked for (see `RunOptions`).
      in_threads: whether all workers are threads of one process.
    """
    # References are small, and a run that resumes needs those of all its ranges.
    if context.exchange != "scratch" or not in_threads:
        return NO_BUDGET
    return memory_budget(memory)


def space_of(
    workspace: Workspace, estimate: Estimate, workers: int, held_bytes: int = 0
) -> tuple[Space, ...]:
    """Computes what is needed on each disk; output and scratch may share one.

    Args:
      workspace: the folders of the run.
      estimate: what the run writes.
      workers: how many shards are written at the same time.
      held_bytes: of the sorted runs, that may stay in memory.
    """
    shards_here = estimate.bytes
    if not isinstance(workspace.store, LocalStore):
        # Each shard leaves for the store as soon as it is whole.
        shards_here = min(
            shards_here, workers * estimate.bytes // max(1, estimate.shards)
        )
    needs = (
        (workspace.root, shards_here, 0, workspace.local_path("staging")),
        (
            workspace.scratch_root,
            estimate.scratch_bytes,
            held_bytes,
            workspace.local_path("runs"),
        ),
    )
    disks: dict[int, Space] = {}
    for folder, written, held, finished in needs:
        existing = nearest_folder(Path(folder))
        device, free = existing.stat().st_dev, shutil.disk_usage(existing).free
        disk = disks.get(device, Space(str(existing), 0, 0, free))
        disks[device] = Space(
            disk.folder,
            disk.needed + max(0, written - held),
            disk.sure + max(0, int(written * estimate.certain_share) - held),
            disk.free + _finished_bytes(finished),
        )
    return tuple(disks.values())


def first_short(space: Sequence[Space]) -> str:
    """Returns why a run does not fit and what to do, or "" if it may fit."""
    for disk in space:
        if disk.is_short:
            return (
                f"{disk.folder}: about {human_bytes(disk.needed)} are needed, "
                f"{human_bytes(disk.free)} are free; make room, or choose another "
                "folder with `scratch` or `output`"
            )
    return ""


def _finished_bytes(folder: Path) -> int:
    """Sums the bytes of what an earlier try finished there."""
    total = 0
    for file in folder.glob("[!.]*"):
        with suppress(OSError):
            total += file.stat().st_size
    return total
