"""Removes what dead runs left: sorted runs, staged and unfinished files."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from recordmill.schemas.dataset.manifest import MANIFEST_NAME
from recordmill.schemas.errors import OutputError
from recordmill.transforms.commit.recovery import clean_up, open_journals
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import acquire
from recordmill.transforms.storage.lock_files import LOCK_FOLDER
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import work_folder_of


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The number of removed files and their size in bytes."""

    files: int
    bytes: int


def clean(store: Store) -> Cleaned:
    """Removes what dead runs left, never a dataset's own files.

    Raises:
      OutputError: a run is at work here, or one was killed during its commit: that must
        be finished first, as files of the dataset are among those that it left.
    """
    with acquire(store, exclusive=store.preflight().exclusive):
        if store.size(MANIFEST_NAME) is not None:
            clean_up(store)
        if journals := open_journals(store):
            raise OutputError(
                f"{store.uri}: a run was killed while it published its dataset here "
                f"({journals[0]}). Run its command again to finish it, or replace the "
                "dataset with `overwrite=true`. Nothing was removed"
            )
        left = store.list(WORK_FOLDER) | store.unfinished()
        left = {n: size for n, size in left.items() if not _is_lock(n)}
        store.delete(left)
        sizes = [*left.values(), *_remove_local(store)]
    return Cleaned(len(sizes), sum(sizes))


def _remove_local(store: Store) -> list[int]:
    """Removes a store's folders on this machine; returns the sizes of their files."""
    if isinstance(store, LocalStore):
        folders = [
            entry
            for entry in Path(store.root, WORK_FOLDER).glob("*")
            if entry.is_dir() and not _is_lock(f"{WORK_FOLDER}/{entry.name}/")
        ]
    else:
        folders = [Path(work_folder_of(store.uri))]
    sizes = []
    for folder in folders:
        sizes += [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        shutil.rmtree(folder, ignore_errors=True)
    return sizes


def _is_lock(name: str) -> bool:
    return name.startswith(f"{LOCK_FOLDER}/")
