"""Prepares a run (exchange, input ranges, types), or plans it without running it.

This module only reads: it creates and changes no files.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.beam_jobs.service.label_split import (
    add_label_split,
    exact_splits_report,
    find_exact_limits,
    has_label_or_split_column,
    is_exact,
    schema_of_table,
)
from recordmill.beam_jobs.service.resolve import (
    AppendPlan,
    ResolvedRun,
    find_published,
    resolve_run,
)
from recordmill.schemas.dataset_text import parse_run_metadata
from recordmill.schemas.errors import (
    InputError,
    OutputError,
    SchemaError,
    UsageError,
    error_kind,
)
from recordmill.schemas.feature_spec import Schema, compare_schemas
from recordmill.schemas.input_summary import EMPTY_REPORT, InputReport, InputWarning
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.schemas.names import run_metadata_name
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.text import format_bytes, format_count
from recordmill.transforms.commit.check_output import check_names
from recordmill.transforms.commit.commit import is_staged
from recordmill.transforms.dataset.files import require_schema
from recordmill.transforms.exchange.plan import bucket_bits
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.machine import available_memory
from recordmill.transforms.sources.base import FRAMED, Append, RowSource
from recordmill.transforms.sources.listing import input_root, report_archives
from recordmill.transforms.sources.map import map_rows
from recordmill.transforms.sources.other_format import report_other_format
from recordmill.transforms.sources.registry import (
    describe_inputs,
    folder_keys,
    make_source,
)
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.local_folder import nearest_folder
from recordmill.transforms.tasks.context import (
    PublicationSettings,
    RunContext,
    choose_exchange,
    split_names,
)
from recordmill.transforms.tasks.memory import memory_budget
from recordmill.transforms.tasks.workspace import CHECKPOINT_FOLDER

if TYPE_CHECKING:
    from recordmill.transforms.tasks.estimate import Estimate


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to start."""

    context: RunContext  # the context for all tasks
    ranges: list[InputRange]  # the input ranges, one task each
    inputs: Inputs  # the inventory that the ranges were cut from
    input_report: InputReport  # report on the interpretation of the input
    # number of processes for the tasks; 0 if threads execute them
    num_processes: int = 0


def prepare_run(run: ResolvedRun) -> PreparedRun:
    """Inspects the input; returns the run's context and its input ranges."""
    job, options, inputs = run.job, run.options, run.inputs
    source, fixed_schema = _prepare_source(run)
    ranges = source.input_source.cut_ranges(inputs.files)
    workers = options.workers
    if has_label_or_split_column(job):
        source = add_label_split(job, source, ranges, fixed_schema, workers)
    if job.is_sampled:  # otherwise the module is not imported
        from recordmill.beam_jobs.service.sampling import add_copies, add_sampling

        source = add_sampling(job, source, ranges, workers)
    if run.append_plan is not None:
        if fixed_schema is not None:  # a declared schema cannot change
            _require_same_schema(run.append_plan, source)
    _check_schema(job, source, run.expected_schema, inputs.files)
    if not ranges and run.append_plan is None:
        raise InputError("the input files are empty: nothing to convert")
    estimate = source.estimated_bytes(inputs.files)
    estimate += inputs.sidecar_files.num_bytes
    names = split_names(job, ranges, source.input_splits())
    check_names(job, run.store, names)
    input_report = report_archives(inputs.files).merged_with(inputs.input_report)
    input_report = input_report.merged_with(source.input_report())
    if keys := folder_keys(job, inputs.files, unread_by=source.input_source):
        folder_fact = (
            "folder names not read as columns",
            ", ".join(f"{key}=..." for key in keys),
        )
        input_report = input_report.merged_with(InputReport((folder_fact,)))
    limits = None
    if is_exact(job):
        if job.map is not None and job.stratify_by and source.infers_types:
            raise UsageError(
                "`stratify_by` with `map` needs an input whose columns have types; the "
                f"types of {job.source} are only known after reading its rows. Leave "
                "out one of them, or convert the table to Parquet"
            )
        input_splits = {*names} - {split.name for split in job.splits}
        divided = [
            input_range
            for input_range in ranges
            if input_range.split not in input_splits
        ]
        limits = find_exact_limits(job, source, divided, workers)
        input_report = input_report.merged_with(exact_splits_report(job, limits))
    context = RunContext(
        job=job,
        source=source,
        split_names=names,
        bucket_bits=bucket_bits(job.sharding, estimate),
        exchange=choose_exchange(
            options.exchange, job, source, inputs.files, embedded=options.is_embedded
        ),
        run_key=run.run_key,
        workspace=run.workspace,
        expected_schema=run.expected_schema,
        part=run.append_plan.part if run.append_plan else 0,
        split_limits=limits,
        publishing=PublicationSettings(
            overwrite=options.overwrite,
            grace=options.grace,
            base_fingerprint=run.base_fingerprint,
            verify=options.verify,
            duplicates=options.duplicates,
            strict=options.strict,
            inputs=(*options.inputs, *inputs.option_files),
            input_root=input_root(inputs.files),
            input_roots=run.input_roots,
            inventory_description=describe_inputs(
                job, inputs.files, options.storage.input
            )
            if inputs.files
            else "",
            description=run.merge_description(run.base),
        ),
    )
    if job.copies_rows:
        context, copies_report = add_copies(context, ranges, workers)
        input_report = input_report.merged_with(copies_report)
    processes = _choose_num_processes(
        options, context.exchange, ranges, inputs.num_bytes
    )
    return PreparedRun(context, ranges, inputs, input_report, processes)


# The start of a process takes half a second of a core. For less input than
# PROCESS_BYTES, threads are as fast. Two threads are as fast for more input, because
# they seldom wait for each other: the limit is SHARED_PROCESS_BYTES divided by the number
# of workers.
PROCESS_BYTES, SHARED_PROCESS_BYTES = 256 << 20, 1 << 30
PROCESS_MEMORY = 512 << 20  # free memory required per process


def _choose_num_processes(
    options: RunOptions, exchange: str, ranges: list[InputRange], num_bytes: int
) -> int:
    """Returns the number of processes for the tasks of a run; 0 if threads execute them.

    Beam's option --direct_running_mode takes precedence.
    """
    if not options.is_embedded or exchange == "engine" or len(ranges) < 2:
        return 0
    requested_workers = options.beam_option("--direct_num_workers") or ""
    workers = (
        int(requested_workers) if requested_workers.isdecimal() else 0
    ) or options.workers
    mode = options.beam_option("--direct_running_mode")
    least = max(PROCESS_BYTES, SHARED_PROCESS_BYTES // workers)
    if mode is None and (workers < 2 or num_bytes < least):
        return 0
    if mode == "multi_processing":
        return min(workers, len(ranges))
    most = available_memory() // PROCESS_MEMORY or workers
    number = min(workers, len(ranges), most)
    return number if mode is None and number > 1 else 0


def _prepare_source(run: ResolvedRun) -> tuple[RowSource, Schema | None]:
    """Returns the rows of the input, and the schema that an append requires, or None."""
    job, files, plan = run.job, run.inputs.files, run.append_plan
    source = make_source(job, run.options.storage.input, run.inputs.constants)

    def prepare_rows(
        append: Append | None = None, fixed_schema: Schema | None = None
    ) -> RowSource:
        storage, is_append = run.options.storage.input, append is not None
        with report_other_format(job.source, files, storage, is_append=is_append):
            prepared = source.prepare(files, append)
        if job.map is None:
            return prepared
        return map_rows(
            prepared,
            files,
            job.map,
            as_declared=job.declared is not None,
            is_appended=append is not None and append.schema is not None,
            fixed_schema=fixed_schema,
        )

    if plan is None:  # in an append, the dataset's splits override a README.md
        run.inputs.require_documented_splits(job)
        return prepare_rows(), None
    fixed_schema = row_schema = None if job.declared else plan.schema
    if fixed_schema is not None and has_label_or_split_column(job):
        row_schema = schema_of_table(job, source, prepare_rows, fixed_schema)
    schema_before_map = row_schema  # the features before the function
    if job.map is not None:
        schema_before_map = (
            Schema(plan.base.map.features) if plan.base.map is not None else None
        )
    return prepare_rows(
        Append(plan.existing_inventory, schema_before_map), row_schema
    ), fixed_schema


def _require_same_schema(append_plan: AppendPlan, source: RowSource) -> None:
    """Checks that records of the new files have the same schema as the dataset."""
    new_schema = source.schema()
    stored = tuple(feature.as_stored() for feature in new_schema.features)
    changes = compare_schemas(append_plan.schema, new_schema)
    if changes or stored != append_plan.base.features:
        changes = changes or compare_schemas(new_schema, append_plan.schema)
        raise SchemaError(
            "the new files cannot be appended, because their records would differ from "
            "the dataset:\n"
            + "\n".join(f"  {change}" for change in changes)
            + "\nConvert all inputs again without `append`"
        )


def _check_schema(
    job: JobSpec, source: RowSource, expected: Schema | None, files: Inventory
) -> None:
    """Checks, before the run, that columns, types and payload fit the schema."""
    # Imported late: a run with nothing to do needs neither casts nor encoders.
    from recordmill.transforms.cast.cast_batch import check_columns
    from recordmill.transforms.encode.columns import check_types
    from recordmill.transforms.encode.payloads import check_payload

    if source.columns().names == [FRAMED]:  # whole records, without cast or encoding
        schema = job.declared.to_schema() if job.declared else source.schema()
        for feature in expected.features if expected else ():
            if feature.minimum is not None or feature.maximum is not None:
                raise SchemaError(
                    f"`expect_schema`: feature {feature.name!r} has bounds, but "
                    "unchanged records are not decoded: use `records=decode`"
                )
    elif job.declared is not None:
        check_columns(source.columns(), job.declared)
        schema = job.declared.to_schema()
    elif source.infers_types:
        return  # the schema is known only after all rows were read
    else:
        schema = source.schema()
        check_types(source.columns(), schema)
    try:
        check_payload(schema, job.payload)
    except SchemaError as error:
        keys = folder_keys(job, files)
        if job.payload != "raw" or not {*keys} & {*source.columns().names}:
            raise
        raise SchemaError(f"{error}, or use `partitions=none`") from error
    require_schema(expected, schema, job)


def _disk_warnings(
    context: RunContext, estimate: Estimate, memory: str
) -> Iterator[InputWarning]:
    """Yields a warning for each local disk with less free space than the run needs."""
    workspace, needed = context.workspace, Counter[str]()
    memory_bytes = memory_budget(memory).num_bytes
    needed[workspace.scratch_root] += max(0, estimate.scratch_bytes - memory_bytes)
    if isinstance(workspace.store, LocalStore):  # otherwise shards are uploaded
        needed[workspace.root] += estimate.bytes
    for name, num_bytes in needed.items():
        folder = nearest_folder(Path(name))
        free = shutil.disk_usage(folder).free
        if num_bytes > free:
            message = (
                f"{folder}: needs about {format_bytes(num_bytes)}, but "
                f"{format_bytes(free)} are free; free some space, or choose another "
                "folder with `scratch` or `output`"
            )
            yield InputWarning("full-disk", message)


Verdict = Literal[
    "convert",
    "append",
    "resume",
    "publish",
    "replace",
    "describe",
    "unchanged",
    "refused",
]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The plan of a run: its verdict, its input report and an estimate of its output."""

    run: ResolvedRun  # the job with its inputs and its output
    verdict: Verdict  # "publish": a killed run has finished everything but the commit
    reason: str = ""  # the reason of a refusal, or ""
    kind: str = ""  # the kind of that error (schemas/errors.py), or ""
    # the prepared run; None if nothing would be converted
    prepared: PreparedRun | None = None
    # report on the interpretation of the input, with warnings about the run
    input_report: InputReport = EMPTY_REPORT
    # estimate of the output; None if nothing would be converted
    estimate: Estimate | None = None
    finished_ranges: int = 0  # input ranges that a killed run finished

    @property
    def removed_versions(self) -> tuple[str, ...]:
        """Returns the unfinished versions that are removed before the run."""
        versions = self.run.version_plan
        return (
            tuple(map(versions.store.uri_of, versions.stale_versions))
            if versions
            else ()
        )


def plan_run(job: JobSpec, options: RunOptions) -> RunPlan:
    """Returns the plan of a run; raises the errors that the run would raise early."""
    plan = _plan_resolved_run(resolve_run(job, options))
    if options.strict and plan.verdict not in ("describe", "unchanged", "refused"):
        try:
            plan.input_report.require_no_warnings()
        except InputError as error:
            return replace(
                plan, verdict="refused", reason=str(error), kind=error_kind(error)
            )
    return plan


def _plan_resolved_run(run: ResolvedRun) -> RunPlan:
    """Returns the plan of a run, without regard to warnings."""
    options = run.options
    verdict, refusal = _decide_verdict(run)
    plan = RunPlan(run, verdict, input_report=run.inputs.input_report)
    if refusal is not None:
        plan = replace(plan, reason=str(refusal), kind=error_kind(refusal))
    if verdict == "publish":
        return replace(plan, input_report=load_staged_report(run))
    if verdict in ("describe", "unchanged"):
        return plan
    prepared = prepare_run(run)
    if not prepared.ranges:  # new files without rows; only the manifest changes
        return plan
    # Imported late: a run with nothing to do does not need it.
    from recordmill.transforms.tasks.estimate import estimate_run

    context, input_report = prepared.context, prepared.input_report
    estimate = estimate_run(context, prepared.inputs.num_bytes, prepared.ranges)
    tasks = context.workspace.list_names(CHECKPOINT_FOLDER)
    finished = sum(t.startswith(f"range-{context.exchange}-") for t in tasks)
    if estimate.range_findings is not None:
        input_report = input_report.merged_with(
            context.source.input_report(estimate.range_findings)
        )
    if estimate.num_rejects:
        input_report = input_report.with_input_counts()
    warnings = []
    if estimate.num_rejects > run.job.max_rejects.max_rejects(estimate.rows):
        message = (
            f"about {format_count(estimate.num_rejects, 'row')} would be rejected (limit "
            f"{run.job.max_rejects.text}): {estimate.reason}"
        )
        warnings.append(InputWarning("reject-limit", message))
    warnings += context.warn_empty(
        {split.name: split.records for split in estimate.splits}
    )
    if finished and verdict in ("convert", "append"):
        verdict = "resume"  # results of some ranges are already on disk
    elif options.is_embedded:
        warnings += _disk_warnings(context, estimate, options.memory)
    if options.beam_args:
        # The import of Beam takes half a second, so it runs only for Beam options.
        from recordmill.beam_jobs.runners.embedded import pipeline_options

        pipeline_options(options.beam_args, options.workers)
    return replace(
        plan,
        verdict=verdict,
        prepared=prepared,
        input_report=input_report.with_warnings(warnings),
        estimate=estimate,
        finished_ranges=finished,
    )


def load_staged_report(run: ResolvedRun) -> InputReport:
    """Returns the input report of a killed run, which lacks only the commit."""
    part = run.append_plan.part if run.append_plan else 0
    name = run.workspace.store_name(f"staging/{run_metadata_name(part)}")
    metadata = parse_run_metadata(run.store.read(name), run.store.uri_of(name))
    return metadata.input_report


def _decide_verdict(run: ResolvedRun) -> tuple[Verdict, OutputError | None]:
    """Returns the verdict on a run, and the error of a refusal or None."""
    try:
        manifest = find_published(run, run.store)
    except OutputError as error:
        return "refused", error
    if manifest is not None:
        is_same = manifest.description == run.merge_description(manifest)
        return ("unchanged" if is_same else "describe"), None
    if is_staged(run.workspace):
        return "publish", None
    if run.append_plan is not None:
        return "append", None
    replaces = run.store.size(MANIFEST_NAME) is not None
    return ("replace" if replaces else "convert"), None
