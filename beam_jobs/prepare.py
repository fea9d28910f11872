"""Before a run: the inventory, the output's store, and the run that follows from them.

Nothing is made or changed here.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import InputError, UsageError
from schemas.features import Schema
from schemas.job import JobSpec, RunOptions
from schemas.manifest import Manifest, schema_of
from schemas.ranges import InputFile, InputRange
from transforms.conform.batches import check_columns
from transforms.dataset.expected import require_schema
from transforms.dataset.files import class_names
from transforms.encode.arrow_types import check_types
from transforms.encode.payloads import check_payload
from transforms.listing import list_inputs
from transforms.plan import bucket_bits
from transforms.run.context import (
    RunContext,
    choose_exchange,
    fingerprint_of,
    split_names,
)
from transforms.run.publish import REJECTS_NAME, check_reject_limit, require_stored
from transforms.run.scratch import Scratch
from transforms.sources import make_source
from transforms.sources.base import Source
from transforms.storage import is_local, local_path
from transforms.stores import Store, open_store


def output_store(options: RunOptions) -> Store:
    """The store of the output folder; touches no storage.

    Raises:
      UsageError: the scratch folder is not local, or an url carries a secret.
    """
    if not is_local(options.scratch):
        raise UsageError(f"--scratch {options.scratch}: expected a local folder")
    return open_store(options.output, options.storage.output)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inventory of a run.

    Attributes:
      files: what is converted.
      side_files: what cells of it may name, if the job pulls any in.
    """

    files: list[InputFile]
    side_files: list[InputFile]

    def fingerprint(self, job: JobSpec) -> str:
        """Names what fixes the dataset's bytes."""
        return fingerprint_of(job, self.files, self.side_files)


def list_all_inputs(job: JobSpec, options: RunOptions) -> Inputs:
    """All input files, and those that cells may name: all below the input root.

    Raises:
      InputError: an input that is not there or cannot be listed.
      UsageError: one of the files lies in the output folder.
    """
    storage = options.storage.input
    root, files = list_inputs(options.inputs, storage)
    output = _place(options.output)
    inside = [file.uri for file in files if _is_below(file.uri, output)]
    if inside:
        raise UsageError(
            f"{inside[0]} is input, but lies inside the output folder {output}"
        )
    declared = job.declared.features.values() if job.declared else ()
    if not any(feature.bytes_from for feature in declared):
        return Inputs(files, [])
    _, below = list_inputs([root], storage)
    return Inputs(files, [file for file in below if not _is_below(file.uri, output)])


def _place(uri: str) -> str:
    return str(local_path(uri).absolute()) if is_local(uri) else uri.rstrip("/")


def _is_below(uri: str, folder: str) -> bool:
    return uri.startswith(f"{folder}/")


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
) -> tuple[RunContext, list[InputRange]]:
    """Looks at the input; gives the run and its input ranges. Makes nothing.

    Raises:
      RecordmillError: the input is not what the job says.
    """
    fingerprint = inputs.fingerprint(job)
    source = make_source(job, options.storage.input).prepare(inputs.files)
    _check_schema(job, source, expected)
    ranges = source.cut(inputs.files)
    if not ranges:
        raise InputError("the input files are empty: there is nothing to convert")
    estimate = source.estimated_bytes(inputs.files)
    estimate += sum(file.size for file in inputs.side_files)
    context = RunContext(
        job=job,
        source=source,
        split_names=split_names(job, ranges),
        bits=bucket_bits(job.sharding, estimate),
        exchange=choose_exchange(options.exchange, job, source, inputs.files),
        fingerprint=fingerprint,
        output=store.uri,
        scratch=Scratch.of(store, fingerprint, options.scratch),
        expected=expected,
        verify=options.verify,
    )
    return context, ranges


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
