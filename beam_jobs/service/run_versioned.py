"""Runs a job; with version: auto, each change becomes the next version.

A run holds the lease of the folder of versions, and within it that of its own version,
for which others may run jobs that name the version themselves. latest.json moves last.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from recordmill.beam_jobs.service.choose_version import VersionPlan
from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.beam_jobs.service.reporter import Reporter
from recordmill.beam_jobs.service.resolve import resolve
from recordmill.beam_jobs.service.run_job import run_job
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.transforms.commit.versions import (
    clear_unfinished,
    expired_versions,
    list_versions,
    move_latest,
    names_latest,
    orphan_files,
    remove_orphans,
    remove_version,
)
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import acquire
from recordmill.transforms.storage.reading import local_path
from recordmill.transforms.tasks.launches import has_live_launch
from recordmill.transforms.tasks.workspace import work_folder_of


def run_versioned(job: JobSpec, options: RunOptions, reporter: Reporter) -> Outcome:
    """Runs a job to its published dataset, as the next version if its options say so.

    Args:
      job: what is converted and how.
      options: how it is run.
      reporter: shows the progress.

    Raises:
      UsageError: the job or its options are put wrongly.
      RecordmillError: anything else that a person can mend; nothing was published,
        and what was finished is kept for the next try.
      JobSubmitted: the runner has the job, and nobody is to wait for it.
    """
    reporter.doing("scan", "listing the inputs")
    run = resolve(job, options, tell=lambda text: _tell(reporter, text))
    reporter.tell(Understood(warnings=run.inputs.warnings))
    versions = run.version_plan
    if versions is None or _is_up_to_date(versions, options.keep):
        return run_job(run, reporter)
    store = versions.store
    with acquire(store, exclusive=store.preflight().exclusive) as lease:
        # Chosen again, because another run may have ended before this one had the
        # lease; but for the same inputs, which are not listed again.
        run = resolve(job, options, run.inputs)
        assert run.version_plan is not None  # as before: the options are the same
        remove_orphans(store)
        for version in run.version_plan.stale:
            left = clear_unfinished(store, version, run.job.version)
            for name in left if options.scratch else ():
                shutil.rmtree(local_path(options.scratch) / name, ignore_errors=True)
        _remove_other_scratch(store, run.options.output, run.run_key)
        outcome = run_job(run, reporter)
        lease.require_held()
        move_latest(store, outcome.manifest)
        for version in expired_versions(store, list_versions(store), options.keep):
            lease.require_held()
            if not has_live_launch(store.below(version)):  # which is to replace it
                remove_version(store, version)
    return outcome


def _tell(reporter: Reporter, text: str) -> None:
    """Tells of the inputs that are read before it is known whether there is work."""
    reporter.doing("scan", text)
    reporter.tell(Understood(facts=(("inputs", text),)))


def _is_up_to_date(plan: VersionPlan, keep: int) -> bool:
    """Tests whether there is nothing to do, not even to clean up; touches nothing."""
    return (
        plan.newest is not None
        and names_latest(plan.store, plan.newest)
        and not plan.stale
        and not expired_versions(plan.store, plan.found, keep)
        and not orphan_files(plan.store)
    )


def _remove_other_scratch(store: Store, output: str, run_key: str) -> None:
    """Removes what other runs for the same version left on this machine."""
    if isinstance(store, LocalStore):
        return  # it lay in the version's folder
    for run in Path(work_folder_of(output)).glob("*"):
        if not run_key.startswith(run.name):
            shutil.rmtree(run, ignore_errors=True)
