"""Prepares a run: samples the input, chooses the exchange, cuts the input ranges.

Only reads: nothing is made or changed here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.beam_jobs.service.label_split import (
    add_label_split,
    find_exact_limits,
    has_label_split,
    is_exact,
    schema_of_table,
    told_of,
)
from recordmill.beam_jobs.service.resolve import AppendPlan, ResolvedRun
from recordmill.schemas.errors import InputError, SchemaError, UsageError
from recordmill.schemas.feature_spec import Schema, differences
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.commit.name_limits import check_names
from recordmill.transforms.dataset.expected import require_schema
from recordmill.transforms.exchange.plan import bucket_bits
from recordmill.transforms.sources.base import FRAMED, Append, RowSource
from recordmill.transforms.sources.listing import describe_archives, input_root
from recordmill.transforms.sources.map import map_rows
from recordmill.transforms.sources.registry import describe_inputs, make_source
from recordmill.transforms.tasks.context import (
    Publishing,
    RunContext,
    choose_exchange,
    split_names,
)


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that can start."""

    context: RunContext  # what every task needs to know
    ranges: list[InputRange]  # the input ranges, one task each
    inputs: Inputs  # the inventory that they were cut from
    understood: InputSummary  # what the source took the input for

    @property
    def exchange_reason(self) -> str:
        """Returns why the exchange is not the usual one of this format, or ""."""
        context = self.context
        return context.source.sizes_unknown if context.exchange == "scratch" else ""


def prepare_run(run: ResolvedRun) -> PreparedRun:
    """Looks at the input, and gives the run's context and its input ranges.

    Raises:
      RecordmillError: the input is not what the job says.
    """
    job, options, inputs = run.job, run.options, run.inputs
    source, fixed_schema = _prepare(run)
    ranges = source.input.cut(inputs.files)
    workers = options.workers or os.cpu_count() or 1
    if has_label_split(job):
        source = add_label_split(job, source, ranges, fixed_schema, workers)
    if run.append_plan is not None:
        if fixed_schema is not None:  # one that is declared stays the same by itself
            _require_same_schema(run.append_plan, source)
    _check_schema(job, source, run.expected)
    if not ranges and run.append_plan is None:
        raise InputError("the input files are empty: there is nothing to convert")
    estimate = source.estimated_bytes(inputs.files)
    estimate += sum(file.size for file in inputs.side_files)
    names = split_names(job, ranges, source.own_splits())
    check_names(job, run.store, names)
    understood = describe_archives(inputs.files).updated(InputSummary(inputs.facts))
    understood = understood.updated(source.understood())
    limits = None
    if is_exact(job):
        if job.map is not None and job.stratify_by and source.infers_types:
            raise UsageError(
                f"`stratify_by` with `map` needs an input whose columns have types; those "
                f"of {job.source} are found while its rows are read. Leave out one of "
                "them, or convert the table to Parquet"
            )
        own = {*names} - {split.name for split in job.splits}
        divided = [each for each in ranges if each.split not in own]
        limits = find_exact_limits(job, source, divided, workers)
        understood = understood.updated(told_of(job, limits))
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
        expected_schema=run.expected,
        part=run.append_plan.part if run.append_plan else 0,
        limits=limits,
        publishing=Publishing(
            overwrite=options.overwrite,
            grace=options.grace,
            base=run.base_fingerprint,
            verify=options.verify,
            duplicates=options.duplicates,
            inputs=(*options.inputs, *inputs.apart),
            input_root=input_root(inputs.files),
            reading=describe_inputs(job, inputs.files) if inputs.files else "",
        ),
    )
    return PreparedRun(context, ranges, inputs, understood)


def _prepare(run: ResolvedRun) -> tuple[RowSource, Schema | None]:
    """Returns the rows of the input, and the schema that they have to have."""
    job, files, plan = run.job, run.inputs.files, run.append_plan
    source = make_source(job, run.options.storage.input)

    def made(
        append: Append | None = None, fixed_schema: Schema | None = None
    ) -> RowSource:
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

    if plan is None:
        return made(), None
    fixed_schema = asked = None if job.declared else plan.schema
    if fixed_schema is not None and has_label_split(job):
        asked = schema_of_table(job, source, made, fixed_schema)
    before = asked  # the features before the function
    if job.map is not None:
        before = Schema(plan.base.map.features) if plan.base.map is not None else None
    return made(Append(plan.kept, before), asked), fixed_schema


def _require_same_schema(append_plan: AppendPlan, source: RowSource) -> None:
    """Checks that records of the new files are as those that are there."""
    found = source.schema()
    stored = tuple(feature.as_stored() for feature in found.features)
    changes = differences(append_plan.schema, found)
    if changes or stored != append_plan.base.features:
        changes = changes or differences(found, append_plan.schema)
        raise SchemaError(
            "the new files cannot be appended, because records would differ from those "
            "of the dataset:\n"
            + "\n".join(f"  {change}" for change in changes)
            + "\nConvert all inputs again without `append`"
        )


def _check_schema(job: JobSpec, source: RowSource, expected: Schema | None) -> None:
    """Refuses before the run what can never fit: columns, types, the payload."""
    # Only here: they import all that casts and encodes, which "nothing to do" need not.
    from recordmill.transforms.cast.cast_batch import check_columns
    from recordmill.transforms.encode.column_types import check_types
    from recordmill.transforms.encode.payloads import check_payload

    if source.columns().names == [FRAMED]:  # whole records: nothing is cast or encoded
        schema = job.declared.to_schema() if job.declared else source.schema()
        _require_no_bounds(expected)
    elif job.declared is not None:
        check_columns(source.columns(), job.declared)
        schema = job.declared.to_schema()
    elif source.infers_types:
        return  # known only after all rows were read
    else:
        schema = source.schema()
        check_types(source.columns(), schema)
    check_payload(schema, job.payload)
    require_schema(expected, schema)


def _require_no_bounds(expected: Schema | None) -> None:
    """Refuses bounds of values that are not read."""
    for feature in expected.features if expected else ():
        if feature.minimum is not None or feature.maximum is not None:
            raise SchemaError(
                f"`expect_schema`: feature {feature.name!r} has bounds, but records that "
                "are kept as they are are not read: use `records=decode`"
            )
