"""Finds and removes what runs left that were killed during their commit.

    .recordmill/RUN/staging/manifest.json   all else of the run is staged or moved
    .recordmill/RUN/replaced.json           the old manifest, while its files are removed

These two files are the journals. While the output holds no dataset, only the job that
left a journal, or a run with overwrite, may continue. If it holds a dataset, that is
complete, and all other files that a journal names can be removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import (
    REJECTS_NAME,
    inputs_name,
    inventory_name,
    rejects_prefix,
    run_metadata_name,
)
from recordmill.schemas.parsing.pbtxt import SCHEMA_PBTXT_NAME
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.dataset.tfds_files import (
    DATASET_INFO_NAME,
    FEATURES_NAME,
    labels_file_name,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import RUN_PATTERN, Workspace

REPLACED_NAME = "replaced.json"
OBSOLETE_NAME = "obsolete.json"  # names of files that the commit removes
STAGED_MANIFEST = f"staging/{MANIFEST_NAME}"
TFDS_FILES = (DATASET_INFO_NAME, FEATURES_NAME)  # of a dataset in one part


def dataset_files(manifest: Manifest) -> list[str]:
    """Returns the names of a dataset's files, without its manifest and rejects."""
    shards = [s.file for split in manifest.splits.values() for s in split.shards]
    labels = [labels_file_name(f.name) for f in manifest.features if f.num_classes]
    descriptions = [DATASET_INFO_NAME, FEATURES_NAME, SCHEMA_PBTXT_NAME, *labels]
    parts = range(manifest.appended + 1)
    log_names = (inputs_name, inventory_name, run_metadata_name)
    logs = [name(part) for part in parts for name in log_names]
    return [*shards, *descriptions, *logs]


def other_runs(workspace: Workspace) -> dict[str, list[str]]:
    """Returns the workspace files of other runs in this output, by run."""
    runs = _runs(workspace.store)
    return {run: names for run, names in runs.items() if run != workspace.name}


def journals_of_other_runs(workspace: Workspace) -> list[str]:
    """Returns the journals of other runs that were killed during their commit."""
    return _journals(other_runs(workspace))


def open_journals(store: Store) -> list[str]:
    """Returns the journals of all runs that were killed during their commit."""
    return _journals(_runs(store))


def discard_unpublished(store: Store, journals: Sequence[str]) -> None:
    """Removes files that killed runs had moved beside the dataset, and their journals.

    The dataset is complete and keeps all its own files.

    Args:
      store: of the dataset.
      journals: of the killed runs.
    """
    for journal in journals:
        store.delete(unpublished_files(store, [journal]))
        store.delete([journal])


def unpublished_files(store: Store, journals: Sequence[str]) -> list[str]:
    """Returns the files that killed runs may have moved beside the dataset.

    Args:
      store: of the dataset, which is complete.
      journals: of the killed runs.
    """
    if not journals:
        return []
    current = read_manifest(store)
    names: set[str] = set()
    for journal in journals:
        other = read_manifest(store, journal)
        names |= set(dataset_files(other))
        for part in range(current.appended + 1, other.appended + 1):
            prefix = f"{REJECTS_NAME}/{rejects_prefix(part)}"
            rejects = store.list(REJECTS_NAME)
            names |= {name for name in rejects if name.startswith(prefix)}
    return sorted(names - set(dataset_files(current)))


def stale_files(store: Store, manifest: Manifest) -> list[str]:
    """Returns TFDS's files if they describe only the first of several parts.

    TFDS finds a split's shards by one pattern that contains their number; the shards of
    several parts cannot have such names.
    """
    if not manifest.appended:
        return []
    return [name for name in TFDS_FILES if store.size(name) is not None]


def is_clean(store: Store, manifest: Manifest) -> bool:
    """Tells whether there are no journals and no stale files beside a dataset."""
    return not (open_journals(store) or stale_files(store, manifest))


def clean_up(store: Store) -> None:
    """Removes what killed runs left beside the dataset; call it with the lease held."""
    discard_unpublished(store, open_journals(store))
    store.delete(stale_files(store, read_manifest(store)))


def _runs(store: Store) -> dict[str, list[str]]:
    runs: dict[str, list[str]] = {}
    for name in store.list(WORK_FOLDER):
        run = name.split("/")[1]
        if RUN_PATTERN.fullmatch(run):
            runs.setdefault(run, []).append(name)
    return runs


def _journals(runs: dict[str, list[str]]) -> list[str]:
    return [
        journal
        for run, names in runs.items()
        for journal in (
            f"{WORK_FOLDER}/{run}/{REPLACED_NAME}",
            f"{WORK_FOLDER}/{run}/{STAGED_MANIFEST}",
        )
        if journal in names
    ]
