"""Launching a job: look at input and output, build the context, run, tell the outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from recordmill.beam_jobs.service.append import plan_append, require_append_alone
from recordmill.beam_jobs.service.detach import submit_detached
from recordmill.beam_jobs.service.disk_space import require_space
from recordmill.beam_jobs.service.failures import (
    explained,
    stop_for_good,
    was_damaged,
    where_left,
)
from recordmill.beam_jobs.service.inputs import Inputs, list_all_inputs
from recordmill.beam_jobs.service.prepare import (
    check_published,
    output_store,
    prepare_run,
    workspace_of,
)
from recordmill.beam_jobs.service.set_up import (
    make_folders,
    prepare_workspace,
    run_metadata,
)
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.job.job_spec import JobSpec, RunOptions
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.commit.commit import check_output, commit, is_staged
from recordmill.transforms.commit.recovery import clean_up, is_clean
from recordmill.transforms.dataset.expected import load_expected
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage.lease import acquire
from recordmill.transforms.storage.lock_files import LOCK_FOLDER, remove_dead_locks
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tfrecord import require_fast_crc

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
      JobSubmitted: the runner has the job, and nobody is to wait for it.
    """
    started = time.time()
    require_append_alone(options)
    require_fast_crc()
    store = output_store(options)
    if inputs is None:
        inputs = list_all_inputs(job, options)
    # Where nothing answers, that is told in seconds, not minutes.
    seen = store.with_short_retries()
    append_plan = plan_append(job, seen, inputs) if options.append else None
    if append_plan is not None:
        inputs = append_plan.inputs
    fingerprint = append_plan.fingerprint if append_plan else inputs.fingerprint(job)
    base = append_plan.base if append_plan else None
    expected = None
    if options.expect_schema:
        expected = load_expected(options.expect_schema, options.storage.output)
    workspace = workspace_of(store, fingerprint, options)
    before = base.fingerprint if base else ""
    look = partial(check_output, overwrite=options.overwrite, base=before)
    manifest = look(seen, fingerprint)
    if manifest is not None:
        check_published(job, store, manifest, expected)
        if not is_clean(store, manifest):
            with acquire(store, exclusive=store.preflight().exclusive):
                clean_up(store)
        workspace.remove()  # left if the run that made it was killed at its very end
        remove_dead_locks(store)
        return Outcome("unchanged", store.uri, manifest, time.time() - started)
    # All that can be wrong with job and input is found before anything is written.
    prepared = None
    if not is_staged(workspace):
        context, ranges = prepare_run(
            job, options, store, inputs, expected, append_plan
        )
        prepared = context, ranges, _beam_options(options)
        context, ranges, beam_options = prepared
        submit_detached(context, ranges, inputs, beam_options, detach=options.detach)
    ready = store.preflight()
    if prepared is not None:
        require_space(*prepared[:2], inputs, prepared[2], ready.free_bytes)
    with acquire(store, exclusive=ready.exclusive) as lease:
        status = "done"
        manifest = look(store, fingerprint)
        if manifest is not None:
            status = "unchanged"  # another run ended between the look and the lease
        elif prepared is None:
            manifest = commit(workspace)
        else:
            context, ranges, beam_options = prepared
            context = replace(context, lease=lease.holder.nonce)
            manifest = _convert(
                context, ranges, inputs, beam_options, reporter, started
            )
        workspace.remove()
        workspace.remove_others(spare=LOCK_FOLDER)
    rejects = store.uri_of(REJECTS_NAME) if manifest.rows_rejected else ""
    seconds = time.time() - started
    return Outcome(status, store.uri, manifest, seconds, rejects, base)


def _beam_options(options: RunOptions) -> PipelineOptions:
    # Without a handler, Beam's import would set one up that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # Beam takes half a second to import: not before it is sure to be needed.
    from recordmill.beam_jobs.runners.embedded import pipeline_options

    return pipeline_options(options.beam_args, options.workers)


def _convert(
    context: RunContext,
    ranges: Sequence[InputRange],
    inputs: Inputs,
    beam_options: PipelineOptions,
    reporter: Reporter,
    started: float,
) -> Manifest:
    """Runs the pipeline; errors noted by the workers become the error raised."""
    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.embedded import (
        WorkerDiedError,
        is_embedded,
        run_pipeline,
    )

    workspace = context.workspace
    context = prepare_workspace(context, inputs)
    facts = run_metadata(context, beam_options, started)

    look_again = time.monotonic()

    def poll() -> None:
        nonlocal look_again
        reporter.poll()
        if not is_embedded(beam_options) and time.monotonic() >= look_again:
            stop_for_good(workspace)
            look_again = time.monotonic() + SECONDS_BETWEEN_LOOKS

    def run() -> None:
        run_pipeline(
            lambda p: convert_dataset(p, context, ranges, facts),
            beam_options,
            poll,
        )

    with _logging_to(workspace.log):
        _log.info("%s: %d input ranges", context.job, len(ranges))
        reporter.begin(context, ranges)
        try:
            try:
                run()
            except Exception:
                if not was_damaged(workspace):
                    raise
                _log.exception("scratch of an earlier try is damaged: once more")
                make_folders(workspace, context.exchange)
                run()
        except WorkerDiedError as error:
            raise RecordmillError(f"{error}\n{where_left(workspace)}") from error
        except Exception as error:
            _log.exception("the run failed")
            raise explained(error, workspace) from error
        finally:
            reporter.end()
    store = workspace.store
    return read_manifest(store)


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
