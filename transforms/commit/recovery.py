"""What runs that were killed in their switch left, and how it goes.

    .recordmill/RUN/staging/manifest.json   all else of a run is staged, or in its place
    .recordmill/RUN/replaced.json           the old manifest, while its files are removed

While no dataset stands in the output, only the job that left a journal, or one that
overwrites, may go on. Where one stands, it is whole: what a journal names beside it can
go (see publish).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import (
    REJECTS_NAME,
    inputs_name,
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
from recordmill.transforms.tasks.workspace import Workspace

REPLACED_NAME = "replaced.json"
STAGED_MANIFEST = f"staging/{MANIFEST_NAME}"
RUN_PATTERN = re.compile(r"[0-9a-f]{16}")  # a run's folder


def dataset_files(manifest: Manifest) -> list[str]:
    """The files in a dataset's folder that belong to it, but for manifest, rejects."""
    shards = [s.file for split in manifest.splits.values() for s in split.shards]
    labels = [labels_file_name(f.name) for f in manifest.features if f.num_classes]
    described_in = [DATASET_INFO_NAME, FEATURES_NAME, SCHEMA_PBTXT_NAME, *labels]
    parts = range(manifest.appended + 1)
    made_by = [
        name(part) for part in parts for name in (inputs_name, run_metadata_name)
    ]
    return [*shards, *described_in, *made_by]


def other_runs(workspace: Workspace) -> dict[str, list[str]]:
    """The files of other jobs' runs that were to be published here, by run."""
    runs = _runs(workspace.store)
    return {run: names for run, names in runs.items() if run != workspace.name}


def journals_of_others(workspace: Workspace) -> list[str]:
    """What other jobs' runs, killed in their switch, left to say how far they got."""
    return _journals(other_runs(workspace))


def half_published(store: Store) -> list[str]:
    """What runs killed in their switch left to say how far they got."""
    return _journals(_runs(store))


def discard_unpublished(store: Store, journals: Sequence[str]) -> None:
    """Takes away what runs killed in their switch had put beside the dataset.

    That dataset is whole, and keeps all of its own files.

    Args:
      store: where it lies.
      journals: what those runs left; they go as well.
    """
    if not journals:
        return
    current = read_manifest(store)
    own = set(dataset_files(current))
    for journal in journals:
        other = read_manifest(store, journal)
        names = set(dataset_files(other)) - own
        for part in range(current.appended + 1, other.appended + 1):
            beginning = f"{REJECTS_NAME}/{rejects_prefix(part)}"
            rejects = store.list(REJECTS_NAME)
            names |= {name for name in rejects if name.startswith(beginning)}
        store.delete(sorted(names))
        store.delete([journal])


def stale_files(store: Store, manifest: Manifest) -> list[str]:
    """TFDS's files beside a dataset that was appended to: they tell of its first part.

    TFDS finds a split's shards by one pattern with their number in it, which those of
    several parts cannot follow.
    """
    if not manifest.appended:
        return []
    names = (DATASET_INFO_NAME, FEATURES_NAME)
    return [name for name in names if store.size(name) is not None]


def is_clean(store: Store, manifest: Manifest) -> bool:
    """Whether runs that were killed in their switch left nothing beside a dataset."""
    return not (half_published(store) or stale_files(store, manifest))


def clean_up(store: Store) -> None:
    """Takes away what they left beside the dataset; for the lease's holder."""
    discard_unpublished(store, half_published(store))
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
