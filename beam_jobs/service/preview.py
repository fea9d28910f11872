"""What a run would do, found out by looking alone: nothing is made, nothing changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from recordmill.beam_jobs.service.append import (
    AppendPlan,
    plan_append,
    require_append_alone,
)
from recordmill.beam_jobs.service.disk_space import Space, first_short, space_of
from recordmill.beam_jobs.service.inputs import list_all_inputs
from recordmill.beam_jobs.service.prepare import (
    check_published,
    output_store,
    prepare_run,
    workspace_of,
)
from recordmill.beam_jobs.service.run_versioned import choose_version, versions_store
from recordmill.schemas.dataset.manifest import MANIFEST_NAME
from recordmill.schemas.errors import OutputError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec, RunOptions
from recordmill.schemas.text import human_bytes
from recordmill.transforms.commit.commit import check_output, is_staged
from recordmill.transforms.dataset.expected import load_expected
from recordmill.transforms.storage import Store
from recordmill.transforms.tasks.estimate import (
    Estimate,
    estimate_run,
    estimate_seconds,
)
from recordmill.transforms.tasks.workspace import Workspace

Verdict = Literal[
    "convert", "append", "resume", "publish", "replace", "unchanged", "refused"
]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run would do.

    Attributes:
      verdict: whether it would convert afresh, append to the dataset that is there,
        go on where a killed run was, only publish what one had finished, replace
        another dataset, find nothing to do, or be refused.
      reason: why it would be refused, else "".
      job: with the version that it would publish.
      output: folder of the dataset.
      fingerprint: of job and inventory.
      files, input_bytes: what may be read, files that cells name too; what is new if
        inputs are appended.
      kept_files: inputs that the dataset has already, if inputs are appended.
      ranges: what is read by one task each.
      finished_ranges: those that a killed run finished.
      removed: unfinished versions that go before the run.
      exchange: how rows reach their shards.
      estimate: None if nothing would be converted.
      space: for each disk concerned.
      workers: threads of the embedded runner; 0 on another runner.
      seconds: by measured rates; None on another runner.
      warnings: what may go wrong.
    """

    verdict: Verdict
    reason: str
    job: JobSpec
    output: str
    fingerprint: str
    files: int
    input_bytes: int
    ranges: int = 0
    finished_ranges: int = 0
    removed: tuple[str, ...] = ()
    exchange: str = ""
    estimate: Estimate | None = None
    space: tuple[Space, ...] = ()
    workers: int = 0
    seconds: float | None = None
    warnings: tuple[str, ...] = ()
    kept_files: int = 0


def plan_run(job: JobSpec, options: RunOptions) -> RunPlan:
    """Finds out what a run would do.

    Raises:
      RecordmillError: the job or its options are put wrongly, or the input is none;
        the run would say the same.
    """
    require_append_alone(options)
    workers = _workers(options)
    removed: tuple[str, ...] = ()
    if options.auto_version:
        chosen = choose_version(job, options)
        versions = versions_store(options)
        removed = tuple(map(versions.uri_of, chosen.stale))
        job, options, inputs = chosen.job, chosen.options, chosen.inputs
    else:
        inputs = list_all_inputs(job, options)
    store = output_store(options)
    output = store.uri
    append_plan = plan_append(job, store, inputs) if options.append else None
    if append_plan is not None:
        inputs = append_plan.inputs
    fingerprint = append_plan.fingerprint if append_plan else inputs.fingerprint(job)
    kept_files = len(append_plan.kept) if append_plan else 0
    expected = None
    if options.expect_schema:
        expected = load_expected(options.expect_schema, options.storage.output)
    verdict, reason = _verdict(job, store, fingerprint, options, expected, append_plan)
    files = [*inputs.files, *inputs.side_files]
    input_bytes = sum(file.size for file in files)
    if verdict in ("unchanged", "publish"):
        return RunPlan(
            verdict,
            "",
            job,
            output,
            fingerprint,
            len(files),
            input_bytes,
            kept_files=kept_files,
        )
    context, ranges = prepare_run(job, options, store, inputs, expected, append_plan)
    if not ranges:  # new files without a row, which the manifest is to know of
        return RunPlan(
            verdict,
            reason,
            job,
            output,
            fingerprint,
            len(files),
            input_bytes,
            kept_files=kept_files,
        )
    finished = _finished(context.workspace, context.exchange)
    if verdict in ("convert", "append") and finished:
        verdict = "resume"
    made = estimate_run(context, files, ranges)
    seconds = None
    if workers:
        seconds = estimate_seconds(
            job.source, context.exchange, input_bytes, len(ranges), made, workers
        )
    space = space_of(context.workspace, made, workers or 1)
    short = first_short(space)
    if short and verdict != "refused":
        verdict, reason = "refused", short
    return RunPlan(
        verdict=verdict,
        reason=reason,
        job=job,
        output=output,
        fingerprint=fingerprint,
        files=len(files),
        input_bytes=input_bytes,
        ranges=len(ranges),
        finished_ranges=finished,
        removed=removed,
        exchange=context.exchange,
        estimate=made,
        space=space,
        workers=workers,
        seconds=seconds,
        warnings=tuple(_warnings(job, made, space)),
        kept_files=kept_files,
    )


def _verdict(
    job: JobSpec,
    store: Store,
    fingerprint: str,
    options: RunOptions,
    expected: Schema | None,
    append_plan: AppendPlan | None,
) -> tuple[Verdict, str]:
    try:
        base = append_plan.base.fingerprint if append_plan else ""
        manifest = check_output(
            store, fingerprint, overwrite=options.overwrite, base=base
        )
    except OutputError as error:
        return "refused", str(error)
    if manifest is not None:
        check_published(job, store, manifest, expected)
        return "unchanged", ""
    workspace = workspace_of(store, fingerprint, options)
    if is_staged(workspace):
        return "publish", ""
    if append_plan is not None:
        return "append", ""
    replaces = store.size(MANIFEST_NAME) is not None
    return ("replace" if replaces else "convert"), ""


def _finished(workspace: Workspace, exchange: str) -> int:
    names = workspace.names("facts")
    return sum(name.startswith(f"range-{exchange}-") for name in names)


def _workers(options: RunOptions) -> int:
    """Threads of the embedded runner; 0 if the job goes to another."""
    if options.beam_args:
        # Beam takes half a second to import: only where its options are to be checked.
        from recordmill.beam_jobs.runners.embedded import is_embedded, pipeline_options

        if not is_embedded(pipeline_options(options.beam_args, options.workers)):
            return 0
    cores = os.cpu_count() or 1
    return min(options.workers or cores, cores)


def _warnings(job: JobSpec, made: Estimate, space: tuple[Space, ...]) -> list[str]:
    warnings = []
    if made.rejected > job.max_rejects.allowed(made.rows):
        warnings.append(
            f"about {made.rejected:,} rows would be rejected, allowed are "
            f"{job.max_rejects.text}: {made.reason}"
        )
    empty = [split.name for split in made.splits if not split.records]
    if empty:
        warnings.append(f"no row would fall into {', '.join(empty)}")
    warnings += [
        f"{disk.folder}: about {human_bytes(disk.needed)} are needed, "
        f"{human_bytes(disk.free)} are free: it may not fit"
        for disk in space
        if disk.needed > disk.free and not disk.is_short
    ]
    return warnings
