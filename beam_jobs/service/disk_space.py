"""Room on the disks of this machine: what a run needs there, and what is free.

A run without an end in sight is refused before it begins, one that may fit is not: what
a look at parts of the input tells is an estimate, of which only a share is sure.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.schemas.errors import InputError, OutputError
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import human_bytes
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.estimate import Estimate, estimate_run
from recordmill.transforms.tasks.workspace import Workspace

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

# A run whose disks have this many times the bytes of all records is not looked into:
# scratch and shards are twice as much.
_AMPLE = 4
_SMALL_CHANGE = 64 << 20


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes that a run needs on one disk, and what is free there.

    Attributes:
      folder: on that disk.
      needed: as estimated.
      sure: of these, what is needed even if the estimate is too high.
      free: what others leave; what an earlier try of this run finished counts too.
    """

    folder: str
    needed: int
    sure: int
    free: int

    @property
    def is_short(self) -> bool:
        return self.sure > self.free


def require_space(
    context: RunContext,
    ranges: Sequence[InputRange],
    inputs: Inputs,
    options: PipelineOptions,
    free_bytes: int | None,
) -> None:
    """Refuses a run that surely does not fit on the disks it writes to.

    Args:
      context: the prepared run.
      ranges: its input ranges.
      inputs: the inventory.
      options: of the pipeline; runs that go to other machines need no room here.
      free_bytes: what the output's store has left, None if it does not say.

    Raises:
      OutputError: which disk, what is needed and free, and what to do.
    """
    from recordmill.beam_jobs.runners.embedded import embedded_workers

    workers = embedded_workers(options)
    if not workers:
        return
    files = [*inputs.files, *inputs.side_files]
    most = context.source.estimated_bytes(inputs.files)
    most += sum(file.size for file in inputs.side_files)
    folders = (context.workspace.root, context.workspace.scratch_root)
    rooms = [shutil.disk_usage(_existing(Path(folder))).free for folder in folders]
    if free_bytes is not None:
        rooms.append(free_bytes)
    if min(rooms) > _AMPLE * most + _SMALL_CHANGE:
        return
    with suppress(InputError):  # the run tells better what is wrong with it
        made = estimate_run(context, files, ranges)
        if reason := first_short(space_of(context.workspace, made, workers)):
            raise OutputError(reason)


def space_of(workspace: Workspace, made: Estimate, workers: int) -> tuple[Space, ...]:
    """What is needed on each disk; output and scratch may lie on one.

    Args:
      workspace: the folders of the run.
      made: what it makes.
      workers: how many shards are written at the same time.
    """
    here = made.bytes
    if not isinstance(workspace.store, LocalStore):
        # Each shard leaves for the store when it is whole.
        here = min(here, workers * made.bytes // max(1, made.shards))
    parts = (
        (workspace.root, here, workspace.local_path("staging")),
        (workspace.scratch_root, made.scratch_bytes, workspace.local_path("runs")),
    )
    disks: dict[int, Space] = {}
    for folder, needed, finished in parts:
        place = _existing(Path(folder))
        free = shutil.disk_usage(place).free
        disk = disks.get(place.stat().st_dev, Space(str(place), 0, 0, free))
        disks[place.stat().st_dev] = Space(
            disk.folder,
            disk.needed + needed,
            disk.sure + int(needed * made.least),
            disk.free + _held(finished),
        )
    return tuple(disks.values())


def first_short(space: Sequence[Space]) -> str:
    """Why a run does not fit, and what to do; "" if it may."""
    for disk in space:
        if disk.is_short:
            return (
                f"{disk.folder}: about {human_bytes(disk.needed)} are needed beside "
                f"what lies there, {human_bytes(disk.free)} are free; make room, or "
                "choose another folder with --scratch or OUTPUT"
            )
    return ""


def _held(folder: Path) -> int:
    """Bytes of what an earlier try finished there."""
    held = 0
    for file in folder.glob("[!.]*"):
        with suppress(OSError):
            held += file.stat().st_size
    return held


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
