"""Finds and removes what dead runs left in versions that were never whole."""

from __future__ import annotations

from recordmill.schemas.dataset.manifest import MANIFEST_NAME
from recordmill.transforms.commit.records import RECORD_PREFIX
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease_liveness import require_idle
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.launches import require_no_launch
from recordmill.transforms.tasks.workspace import RUN_PATTERN


def is_ours(store: Store, version: str) -> bool:
    """Tells whether a folder without a manifest is a run's and not somebody's files."""
    level = store.list_level(version)
    if f"{version}/{WORK_FOLDER}" in level.folders:
        return True
    return not level.files and not level.folders


def can_be_cleared(store: Store, version: str) -> bool:
    """Tells whether there is anything to remove in a run's unfinished version."""
    work = store.list_level(f"{version}/{WORK_FOLDER}")
    return bool(unfinished_runs(store, version)) or not any(
        folder.startswith(f"{version}/{RECORD_PREFIX}") for folder in work.folders
    )


def unfinished_runs(store: Store, version: str) -> list[str]:
    """Returns the short fingerprints of the unfinished runs in a folder."""
    work = f"{version}/{WORK_FOLDER}"
    folders = store.list_level(work).folders
    runs = (folder.removeprefix(f"{work}/") for folder in folders)
    return [run for run in runs if RUN_PATTERN.fullmatch(run)]


def clear_unfinished(store: Store, version: str, chosen: str) -> list[str]:
    """Removes what other runs left in a version that no reader has seen.

    Such a run may only sleep, and go on at any time. So files that it put beside a
    record of its commit stay, as the dataset that it swaps in may name them; in the
    version that is made now they go with the commit. Else only what was there before
    this call goes.

    Args:
      store: of the versions.
      version: the unfinished one.
      chosen: the version that is made now.

    Returns:
      The names of the runs.

    Raises:
      BusyError: a run that was given this version by hand is at work there.
    """
    folder = store.below(version)
    require_idle(folder)
    require_no_launch(folder)
    names = folder.list()
    if MANIFEST_NAME in names:
        return []  # it was published just now
    runs = unfinished_runs(store, version)
    in_commit = any(name.startswith(RECORD_PREFIX) for name in names)
    if version != chosen and not in_commit:
        inside = f"{WORK_FOLDER}/"
        folder.delete(name for name in names if not name.startswith(inside))
    for run in runs:
        folder.remove_tree(f"{WORK_FOLDER}/{run}")
    if version != chosen and not in_commit:
        last = f"{WORK_FOLDER}/{MANIFEST_NAME}"  # of a version that was being removed
        others = [name for name in names if name.startswith(inside) and name != last]
        # Folders that are empty now go with the last file, even if it is not there.
        folder.delete([*folder.unfinished(), *others])
        store.delete([f"{version}/{last}"])
        if not store.exclusive:  # and has folders of its own
            store.remove_tree(version)
    return runs
