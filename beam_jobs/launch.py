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
from typing import TYPE_CHECKING, Protocol

from beam_jobs.prepare import (
    Inputs,
    check_published,
    list_all_inputs,
    output_store,
    prepare_run,
)
from schemas.errors import OutputError, RecordmillError, UsageError
from schemas.job import JobSpec, RunOptions
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.ranges import InputRange
from transforms.dataset.expected import load_expected
from transforms.run.context import RunContext
from transforms.run.publish import REJECTS_NAME, is_staged, look_at_output, switch
from transforms.run.scratch import Scratch, read_errors
from transforms.stores.lease import LOCK_FOLDER, acquire
from transforms.tfrecord import require_fast_crc

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

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
    store = output_store(options)
    if inputs is None:
        inputs = list_all_inputs(job, options)
    fingerprint = inputs.fingerprint(job)
    expected = None
    if options.expect_schema:
        expected = load_expected(options.expect_schema, options.storage.output)
    scratch = Scratch.of(store, fingerprint, options.scratch)
    # Where nothing answers, that is told in seconds, not minutes.
    seen = store.hasty()
    manifest = look_at_output(seen, fingerprint, overwrite=options.overwrite)
    if manifest is not None:
        check_published(job, store, manifest, expected)
        scratch.remove()  # left if the run that made it was killed at its very end
        return Outcome("unchanged", store.uri, manifest, time.time() - started)
    # All that can be wrong with job and input is found before anything is written.
    prepared = None
    if not is_staged(scratch):
        context, ranges = prepare_run(job, options, store, inputs, expected)
        prepared = context, ranges, _beam_options(options)
    ready = store.preflight()
    with acquire(store, exclusive=ready.exclusive) as lease:
        status = "done"
        manifest = look_at_output(store, fingerprint, overwrite=options.overwrite)
        if manifest is not None:
            status = "unchanged"  # another run ended between the look and the lease
        elif prepared is None:
            manifest = switch(scratch)
        else:
            context, ranges, beam_options = prepared
            context = replace(context, lease=lease.holder.nonce)
            manifest = _convert(context, ranges, beam_options, reporter, started)
        scratch.remove()
        scratch.remove_others(spare=LOCK_FOLDER)
    rejects = store.uri_of(REJECTS_NAME) if manifest.rows_rejected else ""
    return Outcome(status, store.uri, manifest, time.time() - started, rejects)


def _beam_options(options: RunOptions) -> PipelineOptions:
    # Without a handler, Beam's import would set one up that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # Beam takes half a second to import: not before it is sure to be needed.
    from beam_jobs.runners import pipeline_options

    return pipeline_options(options.beam_args, options.workers)


def _convert(
    context: RunContext,
    ranges: Sequence[InputRange],
    beam_options: PipelineOptions,
    reporter: Reporter,
    started: float,
) -> Manifest:
    """Runs the pipeline; errors noted by the workers become the error raised."""
    from beam_jobs.convert import convert_dataset
    from beam_jobs.runners import (
        WorkerDiedError,
        is_embedded,
        run_pipeline,
        runner_name,
    )

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

    def poll() -> None:
        reporter.poll()
        if not is_embedded(beam_options):
            _stop_for_good(scratch)

    with _logging_to(scratch.log):
        _log.info("%s: %d input ranges", context.job, len(ranges))
        reporter.begin(context, ranges)
        try:
            run_pipeline(
                lambda p: convert_dataset(p, context, ranges, run_facts),
                beam_options,
                poll,
            )
        except WorkerDiedError as error:
            raise RecordmillError(f"{error}\n{_where(scratch)}") from error
        except Exception as error:
            _log.exception("the run failed")
            raise _explained(error, scratch) from error
        finally:
            reporter.end()
    store = scratch.store
    return Manifest.from_bytes(store.read(MANIFEST_NAME), store.uri_of(MANIFEST_NAME))


def _stop_for_good(scratch: Scratch) -> None:
    """Spares an engine the tries that cannot help: the job or its input is wrong."""
    for note in read_errors(scratch):
        if note["kind"] in ("UsageError", "SchemaError", "RejectLimitError"):
            raise RecordmillError(str(note["message"]))


def _explained(error: Exception, scratch: Scratch) -> RecordmillError:
    """The first error that a worker noted, instead of the runner's long account."""
    notes = read_errors(scratch)
    if not notes and isinstance(error, UsageError):
        return UsageError(str(error))
    if not notes and isinstance(error, RecordmillError):
        return RecordmillError(f"{error}\n{_where(scratch)}")
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
        f"Nothing was published. Log and rejects are in {scratch.work_root}; the "
        "same command goes on from what is finished"
    )


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
