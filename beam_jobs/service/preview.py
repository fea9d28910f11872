"""Plans a run without running it: only reads, makes nothing and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recordmill.beam_jobs.service.prepare import PreparedRun, prepare_run
from recordmill.beam_jobs.service.resolve import ResolvedRun, find_published, resolve
from recordmill.schemas.errors import (
    NO_ROOM,
    InputError,
    NoRoomError,
    OutputError,
    kind_of,
)
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.schemas.text import count, human_bytes
from recordmill.transforms.commit.commit import is_staged
from recordmill.transforms.exchange.held_runs import NO_BUDGET, HoldBudget
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.local import nearest_folder
from recordmill.transforms.tasks.checkpoints import CHECKPOINTS
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.memory import memory_budget
from recordmill.transforms.tasks.workspace import Workspace

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

    from recordmill.transforms.tasks.estimate import Estimate


# A run that surely does not fit is refused before it begins, one that may fit is not: a
# sample of the input gives an estimate, of which only a share is sure.

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
        space = _space_of(context.workspace, estimate, workers, budget.num_bytes)
        if reason := _first_short(space):
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


def _space_of(
    workspace: Workspace, estimate: Estimate, workers: int, held_bytes: int = 0
) -> tuple[Space, ...]:
    """Computes what is needed on each disk; output and scratch may share one."""
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
            disk.sure + max(0, int(written * estimate.sure_share) - held),
            disk.free + _finished_bytes(finished),
        )
    return tuple(disks.values())


def _first_short(space: Sequence[Space]) -> str:
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


Verdict = Literal[
    "convert", "append", "resume", "publish", "replace", "unchanged", "refused"
]


@dataclass(frozen=True, slots=True)
class Forecast:
    """An estimate of what a run takes.

    Attributes:
      estimate: what would be written.
      finished_ranges: input ranges that a killed run finished.
      scratch_bytes: of sorted runs, in files, if memory holds as many as it may. It
        holds fewer where each takes long to make: 30 s of work in all, by default.
      space: for each disk concerned.
      workers: threads of the embedded runner; 0 on another runner.
      seconds: by measured rates; None on another runner.
    """

    estimate: Estimate
    finished_ranges: int
    scratch_bytes: int
    space: tuple[Space, ...]
    workers: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run would do.

    Attributes:
      run: the job with its inputs and its output.
      verdict: whether it would convert afresh, append to the dataset that is there,
        resume a killed run, only publish what one had finished, replace another
        dataset, find nothing to do, or be refused.
      reason: why it would be refused, else "".
      kind: what that reason is about, else "" (schemas/errors.py).
      warnings: what may go wrong.
      prepared: the run, prepared; None if nothing would be converted.
      understood: what the source takes the input for.
      forecast: what the run takes; None if nothing would be converted.
    """

    run: ResolvedRun
    verdict: Verdict
    reason: str = ""
    kind: str = ""
    warnings: tuple[str, ...] = ()
    prepared: PreparedRun | None = None
    understood: Understood = NOTHING
    forecast: Forecast | None = None

    @property
    def removed(self) -> tuple[str, ...]:
        """Returns the unfinished versions that are removed before the run."""
        versions = self.run.version_plan
        return tuple(map(versions.store.uri_of, versions.stale)) if versions else ()


def plan_run(job: JobSpec, options: RunOptions) -> RunPlan:
    """Finds out what a run would do.

    Raises:
      RecordmillError: the job or its options are put wrongly, or the input cannot be
        read; the run would say the same.
    """
    run = resolve(job, options)
    verdict, refusal = _verdict(run)
    plan = RunPlan(run, verdict, warnings=run.inputs.warnings)
    if refusal is not None:
        plan = replace(plan, reason=str(refusal), kind=kind_of(refusal))
    if verdict in ("unchanged", "publish"):
        return plan
    prepared = prepare_run(run)
    if not prepared.ranges:  # new files without a row, which the manifest is to know of
        return plan
    forecast = _forecast(run, prepared, options)
    understood, estimate = prepared.understood, forecast.estimate
    if estimate.rejected:
        understood = understood.of_input()
    warnings = (
        *plan.warnings,
        *understood.warnings,
        *_warnings(run.job, estimate, forecast.space),
    )
    if verdict in ("convert", "append") and forecast.finished_ranges:
        plan = replace(plan, verdict="resume")
    if verdict != "refused" and (short := _first_short(forecast.space)):
        plan = replace(plan, verdict="refused", reason=short, kind=NO_ROOM)
    return replace(
        plan,
        warnings=warnings,
        prepared=prepared,
        understood=understood,
        forecast=forecast,
    )


def _forecast(run: ResolvedRun, prepared: PreparedRun, options: RunOptions) -> Forecast:
    # Only here: a run that has room, or nothing to do, does without.
    from recordmill.transforms.tasks.estimate import estimate_run, estimate_seconds

    context, ranges = prepared.context, prepared.ranges
    workers, in_threads = _workers(options)
    held = run_budget(context, options.memory, in_threads=in_threads).num_bytes
    estimate = estimate_run(context, prepared.inputs.all_files, ranges)
    seconds = None
    if workers:
        seconds = estimate_seconds(
            context.source,
            context.exchange,
            run.inputs.num_bytes,
            len(ranges),
            estimate,
            workers,
        )
    tasks = context.workspace.names(CHECKPOINTS)
    return Forecast(
        estimate=estimate,
        finished_ranges=sum(t.startswith(f"range-{context.exchange}-") for t in tasks),
        scratch_bytes=max(0, estimate.scratch_bytes - held),
        space=_space_of(context.workspace, estimate, workers or 1, held),
        workers=workers,
        seconds=seconds,
    )


def _verdict(run: ResolvedRun) -> tuple[Verdict, OutputError | None]:
    """Decides what the run would do, and why it would be refused if it would."""
    try:
        manifest = find_published(run, run.store)
    except OutputError as error:
        return "refused", error
    if manifest is not None:
        return "unchanged", None
    if is_staged(run.workspace):
        return "publish", None
    if run.append_plan is not None:
        return "append", None
    replaces = run.store.size(MANIFEST_NAME) is not None
    return ("replace" if replaces else "convert"), None


def _workers(options: RunOptions) -> tuple[int, bool]:
    """Counts the workers of the embedded runner, and tells whether they are threads.

    There are none if the job goes to another runner.
    """
    in_threads = True
    if options.beam_args:
        # Beam takes half a second to import: only where its options are to be checked.
        from recordmill.beam_jobs.runners.embedded import (
            is_embedded,
            pipeline_options,
            works_in_threads,
        )

        parsed = pipeline_options(options.beam_args, options.workers)
        if not is_embedded(parsed):
            return 0, False
        in_threads = works_in_threads(parsed)
    cores = os.cpu_count() or 1
    return min(options.workers or cores, cores), in_threads


def _warnings(job: JobSpec, estimate: Estimate, space: tuple[Space, ...]) -> list[str]:
    """Lists what may go wrong."""
    warnings = []
    if estimate.rejected > job.max_rejects.allowed(estimate.rows):
        rows = count(estimate.rejected, "row")
        warnings.append(
            f"about {rows} would be rejected (limit {job.max_rejects.text}): "
            f"{estimate.reason}"
        )
    empty = [split.name for split in estimate.splits if not split.records]
    if empty:
        warnings.append(f"no row would fall into {', '.join(empty)}")
    warnings += [
        f"{disk.folder}: about {human_bytes(disk.needed)} are needed, "
        f"{human_bytes(disk.free)} are free: it may not fit"
        for disk in space
        if disk.needed > disk.free and not disk.is_short
    ]
    return warnings
