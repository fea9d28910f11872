"""Runs with version: auto: each change becomes the next version, latest.json moves last.

The version is part of a job and so of its fingerprint. So "the same job but for its
version" is asked the other way round: is the newest version what this job would be,
did it carry that version? Then there is nothing to do. If not, the job runs as the next
version, in a folder that nobody reads before latest.json names it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace

from beam_jobs.append import require_append_alone
from beam_jobs.inputs import Inputs, list_all_inputs
from beam_jobs.launch import Outcome, Reporter, run_job
from beam_jobs.prepare import output_store
from schemas.errors import UsageError
from schemas.job import JobSpec, RunOptions
from schemas.manifest import MANIFEST_NAME, Manifest
from transforms.dataset.latest import (
    VersionFolder,
    is_ours,
    list_versions,
    move_latest,
    next_version,
    read_latest,
    remove_version,
    sweep,
    unfinished_runs,
)
from transforms.storage import local_path
from transforms.stores import LocalStore


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """Which version a run publishes.

    Attributes:
      job: with that version.
      options: with that version's folder.
      inputs: the inventory.
      found: the versions that are there, oldest first.
      stale: unfinished versions of other jobs or inputs; they go before the run.
    """

    job: JobSpec
    options: RunOptions
    inputs: Inputs
    found: list[VersionFolder]
    stale: list[VersionFolder]


def run_any(job: JobSpec, options: RunOptions, reporter: Reporter) -> Outcome:
    """Runs a job, as the next version if its options say so."""
    require_append_alone(options)
    if not options.auto_version:
        return run_job(job, options, reporter)
    output = versions_folder(options)
    plan = choose_version(job, options)
    sweep(output)
    for entry in plan.stale:
        _remove_unfinished(entry, options.scratch)
    # Not listed again: the version was chosen for these inputs.
    outcome = run_job(plan.job, plan.options, reporter, plan.inputs)
    move_latest(output, outcome.manifest)
    _keep_newest(output, options.keep)
    return outcome


def choose_version(job: JobSpec, options: RunOptions) -> VersionPlan:
    """The version that this job is, or else becomes; touches nothing.

    Raises:
      UsageError: the input lies among the versions, or they are to be overwritten.
      OutputError: the output is no place for versions.
    """
    output = versions_folder(options)
    found = list_versions(output)
    inputs = list_all_inputs(job, options)
    whole = [entry for entry in found if entry.is_whole]
    newest = whole[-1] if whole else None
    version = newest.version if newest else None
    if newest is None or not _is_same(job, newest, inputs):
        version = next_version(version)
    assert version is not None  # a newest one, or the next
    chosen = job.model_copy(update={"version": version})
    own = inputs.fingerprint(chosen)
    stale = [
        entry
        for entry in found
        if not entry.is_whole
        and is_ours(entry.folder)
        and not (entry.version == version and _is_of(entry, own))
    ]
    folder = replace(
        options, output=f"{output}/{version}", auto_version=False, overwrite=False
    )
    return VersionPlan(chosen, folder, inputs, found, stale)


def versions_folder(options: RunOptions) -> str:
    """The folder that holds the versions and latest.json."""
    if options.overwrite:
        raise UsageError("version: auto never overwrites: leave out --overwrite")
    store = output_store(options)
    if not isinstance(store, LocalStore):
        raise UsageError(
            f"{store.uri}: version: auto works in local folders only so far; give the "
            "version itself, and a folder for each"
        )
    return store.root


def _is_same(job: JobSpec, entry: VersionFolder, inputs: Inputs) -> bool:
    """Whether a version is what this job would give, did it carry that version."""
    path = entry.folder / MANIFEST_NAME
    manifest = Manifest.from_bytes(path.read_bytes(), str(path))
    same = job.model_copy(update={"version": entry.version})
    return manifest.fingerprint == inputs.fingerprint(same)


def _is_of(entry: VersionFolder, fingerprint: str) -> bool:
    """Whether an unfinished version is this job's, and no other's."""
    return all(fingerprint.startswith(run) for run in unfinished_runs(entry.folder))


def _remove_unfinished(entry: VersionFolder, scratch: str) -> None:
    for run in unfinished_runs(entry.folder):
        if scratch:
            shutil.rmtree(local_path(scratch) / run, ignore_errors=True)
    remove_version(entry.folder)


def _keep_newest(output: str, keep: int) -> None:
    """Removes all whole versions but the newest, and the one that latest.json names."""
    if not keep:
        return
    whole = [entry for entry in list_versions(output) if entry.is_whole]
    latest = read_latest(output)
    for entry in whole[:-keep]:
        if entry.version != latest:
            remove_version(entry.folder)
