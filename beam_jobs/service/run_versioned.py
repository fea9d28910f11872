"""Runs with version: auto: each change becomes the next version, latest.json moves last.

The version is part of a job and so of its fingerprint. So "the same job but for its
version" is asked the other way round: is the newest version what this job would be,
did it carry that version? Then there is nothing to do. If not, the job runs as the next
version, in a folder that nobody reads before latest.json names it.

A run holds the lease of the folder of versions, and within it that of its own version,
for which others may run jobs that say the version themselves.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from recordmill.beam_jobs.service.append import require_append_alone
from recordmill.beam_jobs.service.detach import require_detachable
from recordmill.beam_jobs.service.inputs import Inputs, list_all_inputs
from recordmill.beam_jobs.service.prepare import output_store
from recordmill.beam_jobs.service.run_job import Outcome, Reporter, run_job
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import UsageError
from recordmill.schemas.job.job_spec import JobSpec, RunOptions
from recordmill.transforms.commit.versions import (
    VersionFolder,
    expired_versions,
    is_ours,
    list_versions,
    move_latest,
    names_latest,
    next_version,
    orphan_files,
    remove_orphans,
    remove_version,
    unfinished_runs,
)
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import acquire, require_idle
from recordmill.transforms.storage.reading import local_path
from recordmill.transforms.tasks.workspace import work_folder_of


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """Which version a run publishes.

    Attributes:
      job: with that version.
      options: with that version's folder.
      inputs: the inventory.
      found: the versions that are there, oldest first.
      stale: unfinished versions of other jobs or inputs; they go before the run.
      there: the newest version's manifest, if it is what this job gives.
    """

    job: JobSpec
    options: RunOptions
    inputs: Inputs
    found: list[VersionFolder]
    stale: list[str]
    there: Manifest | None


def run_versioned(job: JobSpec, options: RunOptions, reporter: Reporter) -> Outcome:
    """Runs a job, as the next version if its options say so."""
    require_append_alone(options)
    require_detachable(options)
    if not options.auto_version:
        return run_job(job, options, reporter)
    store = versions_store(options)
    plan = choose_version(job, options)
    if _is_settled(store, plan, options.keep):
        return run_job(plan.job, plan.options, reporter, plan.inputs)
    ready = store.preflight()
    with acquire(store, exclusive=ready.exclusive) as lease:
        # Another run may have ended between the look and the lease.
        plan = choose_version(job, options, plan.inputs)
        remove_orphans(store)
        for version in plan.stale:
            _remove_unfinished(store, version, options.scratch)
        _remove_other_scratch(store, plan)
        # Not listed again: the version was chosen for these inputs.
        outcome = run_job(plan.job, plan.options, reporter, plan.inputs)
        lease.require_held()
        move_latest(store, outcome.manifest)
        for version in expired_versions(store, list_versions(store), options.keep):
            lease.require_held()
            remove_version(store, version)
    return outcome


def choose_version(
    job: JobSpec, options: RunOptions, inputs: Inputs | None = None
) -> VersionPlan:
    """The version that this job is, or else becomes; touches nothing.

    Args:
      job: what is converted and how.
      options: how it is run.
      inputs: the inventory, if it is known already.

    Raises:
      UsageError: the input lies among the versions, or they are to be overwritten.
      OutputError: the output is no place for versions.
    """
    store = versions_store(options)
    # Where nothing answers, that is told in seconds, not minutes.
    seen = store.with_short_retries()
    found = list_versions(seen)
    if inputs is None:
        inputs = list_all_inputs(job, options)
    there = _same(seen, job, found, inputs)
    if there is not None:
        version = there.version
    else:
        whole = [entry.version for entry in found if entry.is_whole]
        version = next_version(whole[-1] if whole else None)
    chosen = job.model_copy(update={"version": version})
    own = inputs.fingerprint(chosen)
    stale = [
        entry.version
        for entry in found
        if not entry.is_whole
        and is_ours(seen, entry.version)
        and not (entry.version == version and _is_of(seen, version, own))
    ]
    folder = replace(
        options, output=store.below(version).uri, auto_version=False, overwrite=False
    )
    return VersionPlan(chosen, folder, inputs, found, stale, there)


def versions_store(options: RunOptions) -> Store:
    """The store of the folder that holds the versions and latest.json.

    Raises:
      UsageError: the versions are to be overwritten.
    """
    if options.overwrite:
        raise UsageError("version: auto never overwrites: leave out --overwrite")
    return output_store(options)


def _is_settled(store: Store, plan: VersionPlan, keep: int) -> bool:
    """Whether there is nothing to do, not even to tidy up; touches nothing."""
    return (
        plan.there is not None
        and names_latest(store, plan.there)
        and not plan.stale
        and not expired_versions(store, plan.found, keep)
        and not orphan_files(store)
    )


def _same(
    store: Store, job: JobSpec, found: list[VersionFolder], inputs: Inputs
) -> Manifest | None:
    """The newest version, if it is what this job would give, did it carry its number."""
    whole = [entry.version for entry in found if entry.is_whole]
    if not whole:
        return None
    manifest = read_manifest(store.below(whole[-1]))
    same = job.model_copy(update={"version": whole[-1]})
    return manifest if manifest.fingerprint == inputs.fingerprint(same) else None


def _is_of(store: Store, version: str, fingerprint: str) -> bool:
    """Whether an unfinished version is this job's, and no other's."""
    runs = unfinished_runs(store, version)
    return all(fingerprint.startswith(run) for run in runs)


def _remove_unfinished(store: Store, version: str, scratch: str) -> None:
    """Removes a version that will not be, and what its runs left on this machine.

    Raises:
      OutputError: a run that was given this version by hand is at work there.
    """
    folder = store.below(version)
    require_idle(folder)
    for run in unfinished_runs(store, version):
        if scratch:
            shutil.rmtree(local_path(scratch) / run, ignore_errors=True)
    remove_version(store, version)


def _remove_other_scratch(store: Store, plan: VersionPlan) -> None:
    """Removes what other runs for the same version left on this machine."""
    if isinstance(store, LocalStore):
        return  # it lay in the version's folder
    own = plan.inputs.fingerprint(plan.job)
    for run in Path(work_folder_of(plan.options.output)).glob("*"):
        if not own.startswith(run.name):
            shutil.rmtree(run, ignore_errors=True)
