"""Chooses the version that a job with version: auto publishes; only reads.

The version is part of a job and so of its fingerprint. So "the same job but for its
version" is asked the other way round: is the newest version what this job would be, if
it had that version? Then there is nothing to do. If not, the job runs as the next
version, in a folder that nobody reads before latest.json names it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.commit.versions import (
    VersionFolder,
    can_be_cleared,
    is_ours,
    list_versions,
    next_version,
    unfinished_runs,
)
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage import Store


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """Which version a run publishes, and what becomes of the others.

    Attributes:
      job: with that version.
      options: with that version's folder.
      store: of the folder that holds all versions and latest.json.
      found: the versions that are there, oldest first.
      stale: unfinished versions of other jobs or inputs; they go before the run.
      newest: the newest version's manifest, if it is what this job gives.
    """

    job: JobSpec
    options: RunOptions
    store: Store
    found: list[VersionFolder]
    stale: list[str]
    newest: Manifest | None


def choose_version(
    job: JobSpec, options: RunOptions, store: Store, inputs: Inputs
) -> VersionPlan:
    """Finds the version that this job is, or else becomes; touches nothing.

    Args:
      job: what is converted and how.
      options: how it is run.
      store: of the folder of all versions.
      inputs: the inventory.

    Raises:
      OutputError: the folder cannot hold versions.
    """
    # A store that does not answer is reported within seconds, not minutes.
    seen = store.with_short_retries()
    found = list_versions(seen)
    newest = _newest_if_same(seen, job, found, inputs)
    if newest is not None:
        version = newest.version
    else:
        whole = [entry.version for entry in found if entry.is_whole]
        version = next_version(whole[-1] if whole else None)
    chosen = job.model_copy(update={"version": version})
    run_key = inputs.run_key(chosen)
    stale = [
        entry.version
        for entry in found
        if not entry.is_whole
        and is_ours(seen, entry.version)
        and can_be_cleared(seen, entry.version)
        and not (entry.version == version and _is_of(seen, version, run_key))
    ]
    folder = replace(
        options, output=store.below(version).uri, auto_version=False, overwrite=False
    )
    return VersionPlan(chosen, folder, store, found, stale, newest)


def _newest_if_same(
    store: Store, job: JobSpec, found: list[VersionFolder], inputs: Inputs
) -> Manifest | None:
    """Returns the newest version, if this job with its number would give the same."""
    whole = [entry.version for entry in found if entry.is_whole]
    if not whole:
        return None
    folder = store.below(whole[-1])
    manifest = read_manifest(folder)
    same = job.model_copy(update={"version": whole[-1]})
    return manifest if inputs.give(folder, manifest, same) else None


def _is_of(store: Store, version: str, run_key: str) -> bool:
    """Tests whether all runs that left an unfinished version had this key."""
    runs = unfinished_runs(store, version)
    return all(run_key.startswith(run) for run in runs)
