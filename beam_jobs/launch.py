"""Launching a job: look at input and output, build the context, run, tell the outcome."""

from __future__ import annotations

import logging
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from beam_jobs.append import find_addition, require_append_alone
from beam_jobs.inputs import Inputs, list_all_inputs
from beam_jobs.prepare import check_published, output_store, prepare_run, scratch_of
from beam_jobs.space import require_space
from schemas.errors import (
    DamagedScratchError,
    OutputError,
    RecordmillError,
    UsageError,
)
from schemas.job import JobSpec, RunOptions
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.parts import REJECTS_NAME
from schemas.ranges import InputRange
from transforms.dataset.expected import load_expected
from transforms.run.context import RunContext
from transforms.run.facts import read_errors
from transforms.run.journals import is_tidy, tidy
from transforms.run.publish import is_staged, look_at_output, stage_inputs, switch
from transforms.run.scratch import Scratch
from transforms.stores.lease import LOCK_FOLDER, acquire
from transforms.tfrecord import require_fast_crc

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_log = logging.getLogger("recordmill")

SECONDS_BETWEEN_LOOKS = 2.0  # at what workers elsewhere noted: each lists a store


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
      base: of the dataset that the run appended to, or None.
    """

    status: str
    output: str
    manifest: Manifest
    seconds: float
    rejects: str = ""
    base: Manifest | None = None


class TranslatedOnly(Exception):  # noqa: N818  no error: the end that was asked for
    """The runner took the pipeline, but has not run it: there is no dataset yet.

    Attributes:
      output: where the dataset goes once it is run.
      template: where the pipeline was written to; "" after a dry run.
    """

    def __init__(self, output: str, template: str) -> None:
        super().__init__(output, template)
        self.output = output
        self.template = template


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
      TranslatedOnly: Beam's options ask for no more than a translation.
    """
    started = time.time()
    require_append_alone(options)
    require_fast_crc()
    store = output_store(options)
    if inputs is None:
        inputs = list_all_inputs(job, options)
    # Where nothing answers, that is told in seconds, not minutes.
    seen = store.hasty()
    addition = find_addition(job, seen, inputs) if options.append else None
    if addition is not None:
        inputs = addition.inputs
    fingerprint = addition.fingerprint if addition else inputs.fingerprint(job)
    base = addition.base if addition else None
    expected = None
    if options.expect_schema:
        expected = load_expected(options.expect_schema, options.storage.output)
    scratch = scratch_of(store, fingerprint, options)
    before = base.fingerprint if base else ""
    look = partial(look_at_output, overwrite=options.overwrite, base=before)
    manifest = look(seen, fingerprint)
    if manifest is not None:
        check_published(job, store, manifest, expected)
        if not is_tidy(store, manifest):
            with acquire(store, exclusive=store.preflight().exclusive):
                tidy(store)
        scratch.remove()  # left if the run that made it was killed at its very end
        return Outcome("unchanged", store.uri, manifest, time.time() - started)
    # All that can be wrong with job and input is found before anything is written.
    prepared = None
    if not is_staged(scratch):
        context, ranges = prepare_run(job, options, store, inputs, expected, addition)
        prepared = context, ranges, _beam_options(options)
        _end_translated(*prepared)
    ready = store.preflight()
    if prepared is not None:
        require_space(*prepared[:2], inputs, prepared[2], ready.free_bytes)
    with acquire(store, exclusive=ready.exclusive) as lease:
        status = "done"
        manifest = look(store, fingerprint)
        if manifest is not None:
            status = "unchanged"  # another run ended between the look and the lease
        elif prepared is None:
            manifest = switch(scratch)
        else:
            context, ranges, beam_options = prepared
            context = replace(context, lease=lease.holder.nonce)
            manifest = _convert(
                context, ranges, inputs, beam_options, reporter, started
            )
        scratch.remove()
        scratch.remove_others(spare=LOCK_FOLDER)
    rejects = store.uri_of(REJECTS_NAME) if manifest.rows_rejected else ""
    seconds = time.time() - started
    return Outcome(status, store.uri, manifest, seconds, rejects, base)


def _beam_options(options: RunOptions) -> PipelineOptions:
    # Without a handler, Beam's import would set one up that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # Beam takes half a second to import: not before it is sure to be needed.
    from beam_jobs.runners import pipeline_options

    return pipeline_options(options.beam_args, options.workers)


def _end_translated(
    context: RunContext, ranges: Sequence[InputRange], beam_options: PipelineOptions
) -> None:
    """Translates the pipeline, if that is all that is asked for; makes nothing else.

    Raises:
      TranslatedOnly: it was, and that is done.
      RecordmillError: the runner does not take it.
    """
    from apache_beam.options.pipeline_options import GoogleCloudOptions

    from beam_jobs.convert import convert_dataset
    from beam_jobs.runners import only_translates, run_pipeline

    if not only_translates(beam_options):
        return
    facts = _run_facts(context, beam_options)
    try:
        run_pipeline(lambda p: convert_dataset(p, context, ranges, facts), beam_options)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise RecordmillError(f"the runner does not take the job: {what}") from error
    template = beam_options.view_as(GoogleCloudOptions).template_location or ""
    raise TranslatedOnly(context.output, template)


def _run_facts(context: RunContext, beam_options: PipelineOptions) -> dict[str, object]:
    from beam_jobs.runners import runner_name

    return {
        "recordmill": version("recordmill"),
        "beam": version("apache-beam"),
        "python": platform.python_version(),
        "runner": runner_name(beam_options),
        "exchange": context.exchange,
    }


def _convert(
    context: RunContext,
    ranges: Sequence[InputRange],
    inputs: Inputs,
    beam_options: PipelineOptions,
    reporter: Reporter,
    started: float,
) -> Manifest:
    """Runs the pipeline; errors noted by the workers become the error raised."""
    from beam_jobs.convert import convert_dataset
    from beam_jobs.runners import WorkerDiedError, is_embedded, run_pipeline

    scratch = context.scratch
    _make_folders(scratch, context.exchange)
    stage_inputs(context, inputs.files, inputs.side_files)
    source = context.source.keep_inventory(*scratch.shelf("inventory.arrow"))
    context = replace(context, source=source)
    run_facts = _run_facts(context, beam_options)
    run_facts["started_unix"] = round(started, 3)

    look_again = time.monotonic()

    def poll() -> None:
        nonlocal look_again
        reporter.poll()
        if not is_embedded(beam_options) and time.monotonic() >= look_again:
            _stop_for_good(scratch)
            look_again = time.monotonic() + SECONDS_BETWEEN_LOOKS

    def run() -> None:
        run_pipeline(
            lambda p: convert_dataset(p, context, ranges, run_facts),
            beam_options,
            poll,
        )

    with _logging_to(scratch.log):
        _log.info("%s: %d input ranges", context.job, len(ranges))
        reporter.begin(context, ranges)
        try:
            try:
                run()
            except Exception:
                if not _was_damaged(scratch):
                    raise
                _log.exception("scratch of an earlier try is damaged: once more")
                _make_folders(scratch, context.exchange)
                run()
        except WorkerDiedError as error:
            raise RecordmillError(f"{error}\n{_where(scratch)}") from error
        except Exception as error:
            _log.exception("the run failed")
            raise _explained(error, scratch) from error
        finally:
            reporter.end()
    store = scratch.store
    return Manifest.from_bytes(store.read(MANIFEST_NAME), store.uri_of(MANIFEST_NAME))


def _was_damaged(scratch: Scratch) -> bool:
    """Whether the run failed of scratch that was damaged, and now is forgotten."""
    kind = DamagedScratchError.__name__
    return any(note["kind"] == kind for note in read_errors(scratch))


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
    places = f"Log and rejects are in {scratch.work_root}"
    if scratch.shared:
        rejects = scratch.place_of(REJECTS_NAME)
        places = f"The log is {scratch.log}, rejects are in {rejects}"
    return (
        f"Nothing was published. {places}; the same command goes on from what is "
        "finished"
    )


def _make_folders(scratch: Scratch, exchange: str) -> None:
    try:
        scratch.create(exchange)
    except OSError as error:
        raise OutputError(
            f"{error.filename}: cannot be made: {error.strerror}; choose a folder "
            "that you may write to"
        ) from error
    free = shutil.disk_usage(scratch.work_root).free
    if free < 1 << 20:
        raise OutputError(f"{scratch.work_root}: the disk is full ({free} bytes free)")


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
