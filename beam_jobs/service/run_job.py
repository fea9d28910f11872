"""Runs a resolved job: prepares it, runs its pipeline, publishes, reports the outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from recordmill.beam_jobs.service.detach import submit_detached
from recordmill.beam_jobs.service.disk_space import require_space
from recordmill.beam_jobs.service.exact_limits import is_exact
from recordmill.beam_jobs.service.execute_pipeline import (
    execute_pipeline,
    load_beam_options,
)
from recordmill.beam_jobs.service.give_roles import has_roles
from recordmill.beam_jobs.service.outcome import (
    Outcome,
    outcome_of,
    understood_at_end,
)
from recordmill.beam_jobs.service.prepare import prepare_run
from recordmill.beam_jobs.service.reporter import Reporter
from recordmill.beam_jobs.service.resolve import ResolvedRun, find_published
from recordmill.schemas.errors import (
    Interrupted,
    OutputError,
)
from recordmill.schemas.input_summary import NOTHING
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.commit.commit import (
    clean_up,
    commit,
    is_clean,
    is_staged,
    seen_manifest,
)
from recordmill.transforms.commit.inputs import is_of_run, key_of, renew_inventories
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.storage.lease import (
    acquire,
    remove_dead_locks,
)
from recordmill.transforms.tasks.launches import Launch
from recordmill.transforms.tasks.leftovers import (
    find_leftovers,
    remove_empty_folders,
    remove_leftovers,
)
from recordmill.transforms.tfrecord import require_fast_crc

_log = logging.getLogger("recordmill")


def run_job(run: ResolvedRun, reporter: Reporter) -> Outcome:
    """Runs a job to its published dataset.

    Args:
      run: the job with its inputs and its output.
      reporter: shows the progress.

    Raises:
      UsageError: the job or its options are put wrongly.
      RecordmillError: anything else that a person can mend; nothing was published,
        and what was finished is kept for the next try.
      JobSubmitted: the runner has the job, and nobody is to wait for it.
    """
    started = time.time()
    require_fast_crc()
    store, workspace = run.store, run.workspace
    reporter.doing("scan", "looking at the output")
    # A store that does not answer is reported within seconds, not minutes.
    manifest = find_published(run, store.with_short_retries())
    if manifest is not None:
        if not is_clean(store, manifest):
            with acquire(store, exclusive=store.preflight().exclusive):
                clean_up(store)
        _note_versions(run, manifest)
        # Left if the run that made it was killed at its very end; its inputs may have had
        # other times.
        for key in {run.run_key, key_of(store, manifest)}:
            run.workspace_of(key).remove()
        remove_dead_locks(store)
        remove_empty_folders(store)
        return outcome_of(run, "unchanged", manifest, started)
    pipeline = None
    if not is_staged(workspace):
        # All that can be wrong with job and input is found before anything is written.
        counted = has_roles(run.job) or is_exact(run.job)
        doing = "counting rows, classes and splits" if counted else ""
        reporter.doing("scan", doing or "reading the first rows")
        prepared = prepare_run(run)
        reporter.doing("scan", "loading Beam")
        pipeline = prepared, load_beam_options(run.options)
        reporter.tell(prepared.understood)
        reporter.doing("scan", "taking the lease of the output")
        submit_detached(run, *pipeline)
    ready = store.preflight()
    if pipeline is not None:
        require_space(*pipeline, run.options.memory, ready.free_bytes)
    with acquire(store, exclusive=ready.exclusive) as lease, _telling_state(run):
        status = "done"
        at_work: tuple[Launch, ...] = ()
        clean_up(store, end_grace=False)
        replaces = seen_manifest(store)
        manifest = find_published(run, store)
        if manifest is not None:
            status = "unchanged"  # another run ended before this one had the lease
        elif pipeline is None:
            reporter.doing("publish", "moving the files")
            lease.require_held()
            manifest = commit(workspace)
        else:
            prepared = replace(
                prepared, context=replace(prepared.context, replaces=replaces)
            )
            manifest = execute_pipeline(
                prepared, pipeline[1], run.options.memory, lease, reporter, started
            )
        reporter.doing("publish", "removing temporary files")
        if lease.is_held():  # else another run may be at work there
            if status == "unchanged" or run.options.grace == "0":
                clean_up(store)
            workspace.remove()
            found = find_leftovers(store, spare=workspace.name)
            remove_leftovers(store, found)
            at_work = found.at_work
    understood = NOTHING
    if status == "done":
        understood = understood_at_end(store, manifest)
    outcome = outcome_of(run, status, manifest, started, understood)
    return replace(outcome, at_work=tuple(launch.describe() for launch in at_work))


def _note_versions(run: ResolvedRun, manifest: Manifest) -> None:
    """Saves the next run the reading of inputs that this one had to read to compare."""
    versions, store = run.inputs.check.versions_read(), run.store
    if not versions:
        return
    try:
        with acquire(store, exclusive=store.preflight().exclusive):
            renew_inventories(store, manifest, versions, run.run_key)
    except OutputError:
        _log.info("the output is busy or read-only: the next run reads them again")


@contextmanager
def _telling_state(run: ResolvedRun) -> Iterator[None]:
    """Adds to an interruption that the dataset was published before it."""
    try:
        yield
    except Interrupted as interrupted:
        with suppress(Exception):  # the interruption matters more
            manifest = find_manifest(run.store.with_short_retries())
            if manifest is not None and is_of_run(run.store, manifest, run.run_key):
                interrupted.state = (
                    "the dataset was published before. Run the same command again to "
                    "clean up"
                )
        raise
