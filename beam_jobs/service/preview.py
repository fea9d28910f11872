"""Plans a run without running it: only reads, makes nothing and changes nothing."""

from __future__ import annotations

import shutil
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
from recordmill.schemas.input_summary import NOTHING, InputSummary
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.schemas.text import count, human_bytes
from recordmill.transforms.commit.commit import is_staged
from recordmill.transforms.exchange.sorted_runs import NO_BUDGET, HoldBudget
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.local import nearest_folder
from recordmill.transforms.tasks.checkpoints import CHECKPOINTS
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


def require_space(prepared: PreparedRun, options: PipelineOptions, memory: str) -> None:
    """Refuses a run that surely does not fit on the disks of this machine.

    Raises:
      NoRoomError: which folder, what is needed and free, and what to do.
    """
    from recordmill.beam_jobs.runners.embedded import embedded_workers, works_in_threads

    if not embedded_workers(options):
        return
    context, inputs = prepared.context, prepared.inputs
    most = context.source.estimated_bytes(inputs.files)
    most += sum(file.size for file in inputs.side_files)
    folders = (context.workspace.root, context.workspace.scratch_root)
    if min(map(_free_bytes, folders)) > _AMPLE * most + _NEGLIGIBLE_BYTES:
        return
    with suppress(InputError):  # the run explains better what is wrong with the input
        # Only here: it imports all that reads and encodes rows.
        from recordmill.transforms.tasks.estimate import estimate_run

        estimate = estimate_run(context, inputs.all_files, prepared.ranges)
        budget = run_budget(context, memory, in_threads=works_in_threads(options))
        if reason := _shortage(context.workspace, estimate, budget.num_bytes):
            raise NoRoomError(reason)


def _free_bytes(folder: str) -> int:
    return shutil.disk_usage(nearest_folder(Path(folder))).free


def run_budget(context: RunContext, memory: str, *, in_threads: bool) -> HoldBudget:
    """Returns what the sorted runs of a run may hold in memory, of threads of one process."""
    # References are small, and a run that resumes needs those of all its ranges.
    if context.exchange != "scratch" or not in_threads:
        return NO_BUDGET
    return memory_budget(memory)


def _shortage(workspace: Workspace, estimate: Estimate, held_bytes: int) -> str:
    """Returns why a run surely does not fit and what to do, or "" if it may fit."""
    if workspace.names(CHECKPOINTS):
        return ""  # it resumes: some of it is there
    needs = {workspace.scratch_root: (estimate.scratch_bytes, held_bytes)}
    if isinstance(workspace.store, LocalStore):  # else shards leave one by one
        scratch, held = needs.get(workspace.root, (0, 0))
        needs[workspace.root] = (scratch + estimate.bytes, held)
    for folder, (written, held) in needs.items():
        free, needed = _free_bytes(folder), max(0, written - held)
        if written * estimate.certain_share - held > free:
            return (
                f"{nearest_folder(Path(folder))}: about {human_bytes(needed)} are "
                f"needed, {human_bytes(free)} are free; make room, or choose another "
                "folder with `scratch` or `output`"
            )
    return ""


Verdict = Literal[
    "convert", "append", "resume", "publish", "replace", "unchanged", "refused"
]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run would do."""

    run: ResolvedRun  # the job with its inputs and its output
    # whether it would convert afresh, append to the dataset that is there, resume a
    # killed run, only publish what one had finished, replace another dataset, find
    # nothing to do, or be refused
    verdict: Verdict
    reason: str = ""  # why it would be refused, else ""
    kind: str = ""  # what that reason is about, else "" (schemas/errors.py)
    warnings: tuple[str, ...] = ()  # what may go wrong
    # the run, prepared; None if nothing would be converted
    prepared: PreparedRun | None = None
    understood: InputSummary = NOTHING  # what the source takes the input for
    # what it writes; None if nothing would be converted
    estimate: Estimate | None = None
    finished_ranges: int = 0  # input ranges that a killed run finished

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
    # Only here: a run that has nothing to do goes without.
    from recordmill.transforms.tasks.estimate import estimate_run

    context, understood = prepared.context, prepared.understood
    estimate = estimate_run(context, prepared.inputs.all_files, prepared.ranges)
    tasks = context.workspace.names(CHECKPOINTS)
    finished = sum(t.startswith(f"range-{context.exchange}-") for t in tasks)
    if estimate.rejected:
        understood = understood.of_input()
    found = (*understood.warnings, *_warnings(run.job, estimate))
    plan = replace(
        plan,
        warnings=plan.warnings + found,
        prepared=prepared,
        understood=understood,
        estimate=estimate,
        finished_ranges=finished,
    )
    if verdict in ("convert", "append") and finished:
        return replace(plan, verdict="resume")
    is_embedded, in_threads = _workers(options)
    if verdict != "refused" and is_embedded:
        held = run_budget(context, options.memory, in_threads=in_threads).num_bytes
        if short := _shortage(context.workspace, estimate, held):
            return replace(plan, verdict="refused", reason=short, kind=NO_ROOM)
    return plan


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


def _workers(options: RunOptions) -> tuple[bool, bool]:
    """Tells whether workers are on this machine, and whether they are its threads."""
    if not options.beam_args:
        return True, True
    # Beam takes half a second to import: only where its options are to be checked.
    from recordmill.beam_jobs.runners.embedded import (
        is_embedded,
        pipeline_options,
        works_in_threads,
    )

    parsed = pipeline_options(options.beam_args, options.workers)
    return is_embedded(parsed), works_in_threads(parsed)


def _warnings(job: JobSpec, estimate: Estimate) -> list[str]:
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
    return warnings
