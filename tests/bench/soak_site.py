"""Where the datasets of tests/bench/soak.py lie, and what is read there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from same_dataset import assert_readable, dataset_of

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.dataset.verify import verify_store
from recordmill.transforms.storage import LocalStore, Store, open_store
from recordmill.transforms.storage.store import WORK_FOLDER

Dataset = dict[str, Any] | None


class WrongError(Exception):
    """What must not be."""


@dataclass
class Site:
    """A place for a dataset, and the tables that it is made from.

    Attributes:
      name: for the table.
      folder: for the tables and copies.
      root: of the dataset.
      disk: a small disk, or None.
      direct: options that reach the store itself.
      options: options that reach it as the runs do.
      seconds: what an undisturbed run takes, about.
      run_options: what fixes the dataset's bytes; an append repeats it.
    """

    name: str
    folder: Path
    root: str
    disk: Path | None = None
    direct: StorageOptions = NO_OPTIONS
    options: StorageOptions = NO_OPTIONS
    seconds: float = 3.0
    run_options: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "tables").mkdir(parents=True)

    @property
    def store(self) -> Store:
        return open_store(self.root, self.direct)

    @property
    def tables(self) -> list[Path]:
        return sorted((self.folder / "tables").iterdir())

    def start_anew(self) -> None:
        """Removes the dataset, so that one mistake is counted once."""
        store = self.store
        store.delete([*store.list(), *store.unfinished()])
        for table in self.tables:
            table.unlink()

    def copy(self, name: str) -> Path:
        """Copies the dataset, with all that lies beside it, to a folder of this name."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        store = self.store
        for file in store.list():
            if not file.startswith(f"{WORK_FOLDER}/lock/"):
                path = folder / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(store.read(file))
        return folder


def dataset_in(folder: Path) -> Dataset:
    """What a folder holds, after a look at every byte of it.

    Raises:
      WrongError: it is not whole.
    """
    if not (folder / MANIFEST_NAME).exists():
        return None
    try:
        store = LocalStore(str(folder))
        manifest = read_manifest(store)
        problems = verify_store(store, manifest, full=True).problems
        shards = [each for each in problems if each.file in manifest.shard_files]
        if shards:
            raise WrongError(f"{shards[0].file}: {shards[0].message}")
        assert_readable(folder)
        return {"manifest": dataset_of(folder)["manifest"]}
    except (AssertionError, RecordmillError, OSError) as error:
        raise WrongError(f"not whole: {error}") from error


def missing_shard(root: Path) -> str | None:
    store = LocalStore(str(root))
    manifest = find_manifest(store)
    if manifest is None:
        return None
    missing = [file for file in manifest.shard_files if store.size(file) is None]
    now = find_manifest(store)
    if not missing or now is None or now.generation > manifest.generation + 1:
        return None  # the grace of a dataset ends with the next run but one
    return missing[0]
