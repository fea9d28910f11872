"""Before a run: the inventory, the output's store, and the run that follows from them.

Nothing is made or changed here.
"""

from __future__ import annotations

from recordmill.beam_jobs.service.append import AppendPlan
from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.schemas.dataset.manifest import Manifest, schema_of
from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.errors import InputError, SchemaError, UsageError
from recordmill.schemas.features.compare import differences
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec, RunOptions
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.cast.cast_batch import check_columns
from recordmill.transforms.commit.commit import require_stored
from recordmill.transforms.commit.staging import check_reject_limit
from recordmill.transforms.dataset.expected import require_schema
from recordmill.transforms.dataset.files import class_names
from recordmill.transforms.encode.arrow_types import check_types
from recordmill.transforms.encode.payloads import check_payload
from recordmill.transforms.exchange.plan import bucket_bits
from recordmill.transforms.sources import make_source
from recordmill.transforms.sources.base import Source
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.storage.reading import is_local
from recordmill.transforms.tasks.context import (
    RunContext,
    choose_exchange,
    split_names,
)
from recordmill.transforms.tasks.workspace import Workspace


def output_store(options: RunOptions) -> Store:
    """The store of the output folder; touches no storage.

    Raises:
      UsageError: the scratch folder is not local, or an url carries a secret.
    """
    if not is_local(options.scratch):
        raise UsageError(f"--scratch {options.scratch}: expected a local folder")
    return open_store(options.output, options.storage.output)


def workspace_of(store: Store, fingerprint: str, options: RunOptions) -> Workspace:
    """Where the run with that fingerprint works; makes nothing."""
    remote = not options.is_embedded
    return Workspace.of(store, fingerprint, options.scratch, remote=remote)


def check_published(
    job: JobSpec, store: Store, manifest: Manifest, expected: Schema | None
) -> None:
    """Makes sure that a dataset that is there already is what the job asks for.

    Raises:
      OutputError: a shard is missing or has another size.
      RejectLimitError: more rows were rejected than the job now allows.
      SchemaError: it differs from the schema expected.
    """
    require_stored(store, manifest)
    check_reject_limit(
        job.max_rejects,
        manifest.rows_read,
        manifest.rows_rejected,
        store.uri_of(REJECTS_NAME),
    )
    require_schema(expected, schema_of(manifest, class_names(store, manifest)))


def prepare_run(
    job: JobSpec,
    options: RunOptions,
    store: Store,
    inputs: Inputs,
    expected: Schema | None,
    append_plan: AppendPlan | None = None,
) -> tuple[RunContext, list[InputRange]]:
    """Looks at the input; gives the run and its input ranges. Makes nothing.

    Args:
      job: what is converted and how.
      options: how it is run.
      store: of the output.
      inputs: what is converted; of an addition, what is new.
      expected: a schema that the dataset must keep to, or None.
      append_plan: what is appended to which dataset, or None.

    Raises:
      RecordmillError: the input is not what the job says.
    """
    source = make_source(job, options.storage.input)
    if append_plan is None:
        fingerprint = inputs.fingerprint(job)
        source = source.prepare(inputs.files)
    else:
        fingerprint = append_plan.fingerprint
        settled = None if job.declared else append_plan.schema
        source = source.prepare_append(append_plan.kept, inputs.files, settled)
        _require_same_schema(append_plan, source if settled else None)
    _check_schema(job, source, expected)
    ranges = source.cut(inputs.files)
    if not ranges and append_plan is None:
        raise InputError("the input files are empty: there is nothing to convert")
    estimate = source.estimated_bytes(inputs.files)
    estimate += sum(file.size for file in inputs.side_files)
    context = RunContext(
        job=job,
        source=source,
        split_names=split_names(job, ranges),
        bucket_bits=bucket_bits(job.sharding, estimate),
        exchange=choose_exchange(
            options.exchange, job, source, inputs.files, embedded=options.is_embedded
        ),
        fingerprint=fingerprint,
        output=store.uri,
        workspace=workspace_of(store, fingerprint, options),
        expected=expected,
        overwrite=options.overwrite,
        part=append_plan.part if append_plan else 0,
        base=append_plan.base.fingerprint if append_plan else "",
        verify=options.verify,
    )
    return context, ranges


def _require_same_schema(append_plan: AppendPlan, source: Source | None) -> None:
    """Makes sure that records of the new files are as those that are there.

    Raises:
      SchemaError: says what would differ.
    """
    if source is None:
        return  # the job declares it, and the job is the same
    found = source.schema()
    stored = tuple(feature.as_stored() for feature in found.features)
    changes = differences(append_plan.schema, found)
    if changes or stored != append_plan.base.features:
        changes = changes or differences(found, append_plan.schema)
        raise SchemaError(
            "the new files cannot be appended, because records would differ from those "
            "of the dataset:\n"
            + "\n".join(f"  {change}" for change in changes)
            + "\nConvert everything again without appending"
        )


def _check_schema(job: JobSpec, source: Source, expected: Schema | None) -> None:
    """Finds out before the run what can never fit: columns, types, the payload.

    Raises:
      SchemaError: says what does not fit.
    """
    if job.declared is not None:
        check_columns(source.columns(), job.declared)
        schema = job.declared.to_schema()
    elif source.infers_types:
        return  # known only after all rows were looked at
    else:
        schema = source.schema()
        check_types(source.columns(), schema)
    check_payload(schema, job.payload)
    require_schema(expected, schema)
