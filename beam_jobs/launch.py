"""Launching a job: look at input and output, build the context, run, tell the outcome."""

from __future__ import annotations

import logging
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from schemas.errors import InputError, OutputError, RecordmillError, UsageError
from schemas.features import Schema
from schemas.job import JobSpec, RunOptions
from schemas.manifest import MANIFEST_NAME, Manifest, schema_of
from schemas.ranges import InputFile, InputRange
from transforms.arrow_types import check_types
from transforms.conform import check_columns
from transforms.dataset_files import class_names
from transforms.expected import load_expected, require_schema
from transforms.payloads import check_payload
from transforms.plan import bucket_bits
from transforms.publish import (
    REJECTS_NAME,
    check_reject_limit,
    is_staged,
    look_at_output,
    switch,
)
from transforms.run_context import (
    RunContext,
    choose_exchange,
    fingerprint_of,
    split_names,
)
from transforms.scratch import Scratch, read_errors
from transforms.sources import make_source
from transforms.sources.base import Source
from transforms.storage import is_local, list_inputs, local_path
from transforms.tfrecord import require_fast_crc

_log = logging.getLogger("recordmill")


class Reporter(Protocol):
    """Shows a run's progress to a person."""

    def begin(self, context: RunContext, ranges: Sequence[InputRange]) -> None: ...

    def poll(self) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
      status: "done", or "unchanged" if this very dataset was there already.
      output: folder of the dataset.
      manifest: of the dataset.
      seconds: wall time of the whole run.
      rejects: folder with the rejected rows, or "".
    """

    status: str
    output: str
    manifest: Manifest
    seconds: float
    rejects: str = ""


def run_job(
    job: JobSpec,
    options: RunOptions,
    reporter: Reporter,
    inputs: Inputs | None = None,
) -> Outcome:
    """Runs a job to its published dataset.

    Args:
      job: what is converted and how.
      options: how it is run.
      reporter: shows the progress.
      inputs: the inventory, if it is known already.

    Raises:
      UsageError: the job or its options are put wrongly.
      RecordmillError: anything else that a person can mend; nothing was published,
        and what was finished is kept for the next try.
    """
    started = time.time()
    require_fast_crc()
    output = output_folder(options)
    if inputs is None:
        inputs = list_all_inputs(job, options, output)
    fingerprint = inputs.fingerprint(job)
    expected = load_expected(options.expect_schema) if options.expect_schema else None
    manifest = look_at_output(output, fingerprint, options.overwrite)
    scratch = Scratch.of(output, fingerprint, options.scratch)
    if manifest is not None:
        check_published(job, output, manifest, expected)
        scratch.remove()  # left if the run that made it was killed at its very end
        return Outcome("unchanged", output, manifest, time.time() - started)
    if is_staged(scratch):
        manifest = switch(output, scratch)
    else:
        context, ranges = prepare_run(job, options, output, inputs, expected)
        manifest = _convert(context, ranges, options, reporter, started)
    rejects = str(Path(output) / REJECTS_NAME) if manifest.rows_rejected else ""
    scratch.remove()
    return Outcome("done", output, manifest, time.time() - started, rejects)


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


def list_all_inputs(job: JobSpec, options: RunOptions, output: str) -> Inputs:
    """All input files, and those that cells may name: all below the input root.

    Raises:
      InputError: an input that is not there or cannot be listed.
      UsageError: one of the files lies in the output folder.
    """
    root, files = list_inputs(options.inputs)
    inside = [file.uri for file in files if Path(output) in Path(file.uri).parents]
    if inside:
        raise UsageError(
            f"{inside[0]} is input, but lies inside the output folder {output}"
        )
    declared = job.declared.features.values() if job.declared else ()
    if not any(feature.bytes_from for feature in declared):
        return Inputs(files, [])
    _, below = list_inputs([root])
    outside = [file for file in below if Path(output) not in Path(file.uri).parents]
    return Inputs(files, outside)


def check_published(
    job: JobSpec, output: str, manifest: Manifest, expected: Schema | None
) -> None:
    """Makes sure that a dataset that is there already is what the job asks for.

    Raises:
      OutputError: a shard is missing or has another size.
      RejectLimitError: more rows were rejected than the job now allows.
      SchemaError: it differs from the schema expected.
    """
    _require_whole(output, manifest)
    check_reject_limit(
        job.max_rejects,
        manifest.rows_read,
        manifest.rows_rejected,
        Path(output) / REJECTS_NAME,
    )
    require_schema(expected, schema_of(manifest, class_names(output, manifest)))


def prepare_run(
    job: JobSpec,
    options: RunOptions,
    output: str,
    inputs: Inputs,
    expected: Schema | None,
) -> tuple[RunContext, list[InputRange]]:
    """Looks at the input; gives the run and its input ranges. Makes nothing.

    Raises:
      RecordmillError: the input is not what the job says.
    """
    fingerprint = inputs.fingerprint(job)
    source = make_source(job).prepare(inputs.files)
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
        output=output,
        scratch=Scratch.of(output, fingerprint, options.scratch),
        expected=expected,
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


def _convert(
    context: RunContext,
    ranges: Sequence[InputRange],
    options: RunOptions,
    reporter: Reporter,
    started: float,
) -> Manifest:
    """Runs the pipeline; errors noted by the workers become the error raised."""
    # Without a handler, Beam's import would set one up that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # Beam takes half a second to import: not before it is sure to be needed.
    from beam_jobs.convert import convert_dataset
    from beam_jobs.runners import (
        WorkerDiedError,
        pipeline_options,
        run_pipeline,
        runner_name,
    )

    beam_options = pipeline_options(options.beam_args, options.workers)
    scratch = context.scratch
    _make_folders(scratch, context.exchange)
    source = context.source.keep_inventory(Path(scratch.scratch_root))
    context = replace(context, source=source)
    run_facts: dict[str, object] = {
        "recordmill": version("recordmill"),
        "beam": version("apache-beam"),
        "python": platform.python_version(),
        "runner": runner_name(beam_options),
        "exchange": context.exchange,
        "started_unix": round(started, 3),
    }
    with _logging_to(scratch.log):
        _log.info("%s: %d input ranges", context.job, len(ranges))
        reporter.begin(context, ranges)
        try:
            run_pipeline(
                lambda p: convert_dataset(p, context, ranges, run_facts),
                beam_options,
                reporter.poll,
            )
        except WorkerDiedError as error:
            raise RecordmillError(f"{error}\n{_where(scratch)}") from error
        except Exception as error:
            _log.exception("the run failed")
            raise _explained(error, scratch) from error
        finally:
            reporter.end()
    path = Path(context.output) / MANIFEST_NAME
    return Manifest.from_bytes(path.read_bytes(), str(path))


def _explained(error: Exception, scratch: Scratch) -> RecordmillError:
    """The first error that a worker noted, instead of the runner's long account."""
    notes = read_errors(scratch)
    if not notes:
        return RecordmillError(
            f"the runner failed: {type(error).__name__}: {error}\n{_where(scratch)}"
        )
    note = notes[0]
    _log.error("%s", note["traceback"])
    message = str(note["message"])
    if not note["expected"]:
        message = f"unexpected {note['kind']}: {message}"
    if note["kind"] == "UsageError":
        return UsageError(message)
    return RecordmillError(f"{message}\n{_where(scratch)}")


def _where(scratch: Scratch) -> str:
    return (
        f"Nothing was published. Log and rejects are in {scratch.staging_root}; the "
        "same command goes on from what is finished"
    )


def output_folder(options: RunOptions) -> str:
    """The absolute path of the dataset's folder.

    Raises:
      UsageError: it is no local folder.
    """
    for folder in (options.output, options.scratch):
        if not is_local(folder):
            raise UsageError(
                f"{folder}: datasets are written to local folders only so far"
            )
    return str(local_path(options.output).absolute())


def _make_folders(scratch: Scratch, exchange: str) -> None:
    try:
        scratch.create(exchange)
    except OSError as error:
        raise OutputError(
            f"{error.filename}: cannot be made: {error.strerror}; choose a folder "
            "that you may write to"
        ) from error
    free = shutil.disk_usage(scratch.staging).free
    if free < 1 << 20:
        raise OutputError(f"{scratch.staging}: the disk is full ({free} bytes free)")


def _require_whole(output: str, manifest: Manifest) -> None:
    """Makes sure that a dataset that is there already is there wholly (by sizes)."""
    for split in manifest.splits.values():
        for shard in split.shards:
            path = Path(output) / shard.file
            size = path.stat().st_size if path.is_file() else -1
            if size != shard.bytes:
                found = "is missing" if size < 0 else f"has {size} bytes"
                raise OutputError(
                    f"{path}: {found}, the manifest says {shard.bytes} bytes. The "
                    "dataset is damaged: remove its folder and convert again"
                )


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Sends all logging and stderr to the run's log: Beam's are not for the terminal."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    with path.open("a") as log, redirect_stderr(log):
        handler = logging.StreamHandler(log)
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        )
        root.handlers[:] = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers[:] = before
            root.setLevel(level)
