"""Keeps the record of a commit, by which it can be finished whoever made it.

    .recordmill/commit-g00001-12345678/manifest.json     the manifest that is to be swapped in
    .recordmill/commit-g00001-12345678/replaced.json     the one that it replaces, if any
    .recordmill/commit-g00001-12345678/files/features.json ...   copies of the fixed names

A record is written before the commit puts its first file into the dataset's folder, and
never changed. It tells which files those are: if the commit fails, a later run removes
them; if it was killed right behind its swap, a later run puts the files with fixed names
in place. What is left of it then, the replaced manifest, names the files that stay for
the readers of the replaced dataset until the next run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from recordmill.schemas.dataset.labels_files import labels_file_name
from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import (
    MARK,
    REJECTS_NAME,
    generation_of,
    inputs_name,
    inventory_name,
    mark_of,
    mark_of_rejects,
    run_metadata_name,
)
from recordmill.schemas.dataset.shards import INDEX_SUFFIX
from recordmill.schemas.parsing.pbtxt import SCHEMA_PBTXT_NAME
from recordmill.transforms.dataset import files
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.dataset.tfds_files import DATASET_INFO_NAME, FEATURES_NAME
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.store import WORK_FOLDER

RECORD_PREFIX = f"{WORK_FOLDER}/commit-"
_RECORD = re.compile(rf"{re.escape(RECORD_PREFIX)}({MARK})/(.+)", re.DOTALL)
_FILES = "files/"


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The record of one commit.

    Attributes:
      store: of the dataset.
      mark: of the commit.
      names: the record's files, as they were listed.
    """

    store: Store
    mark: str
    names: tuple[str, ...] = ()

    @property
    def files(self) -> dict[str, str]:
        """Returns where the copies of files with fixed names are, by that name."""
        start = f"{RECORD_PREFIX}{self.mark}/{_FILES}"
        return {
            name.removeprefix(start): name
            for name in self.names
            if name.startswith(start)
        }

    @property
    def manifest_name(self) -> str:
        return f"{RECORD_PREFIX}{self.mark}/{MANIFEST_NAME}"

    @property
    def replaced_name(self) -> str:
        return files.replaced_name(self.mark)

    def replaced(self) -> Manifest | None:
        """Reads the manifest that the commit replaces; None if there is none."""
        return find_manifest(self.store, self.replaced_name)

    def manifests(self) -> list[Manifest]:
        """Reads the manifest that the commit makes, and the one that it replaces."""
        found = [
            find_manifest(self.store, name)
            for name in (self.manifest_name, self.replaced_name)
            if name in self.names
        ]
        return [manifest for manifest in found if manifest is not None]

    def write(
        self, manifest: bytes, replaced: bytes | None, fixed: dict[str, bytes]
    ) -> None:
        """Writes the record: first what tells which files the commit puts where."""
        self.store.put_bytes(manifest, self.manifest_name)
        if replaced is not None:
            self.store.put_bytes(replaced, self.replaced_name)
        for name, data in fixed.items():
            self.store.put_bytes(data, f"{RECORD_PREFIX}{self.mark}/{_FILES}{name}")


def find_records(store: Store) -> list[CommitRecord]:
    """Finds the records of all commits that are not finished, or still in grace."""
    names: dict[str, list[str]] = {}
    for name in store.list(WORK_FOLDER):
        if match := _RECORD.fullmatch(name):
            names.setdefault(match[1], []).append(name)
    return [CommitRecord(store, mark, tuple(names[mark])) for mark in sorted(names)]


def replaced_dataset(store: Store, manifest: Manifest) -> Manifest | None:
    """Returns the dataset whose files stay for its readers until the next run."""
    if not manifest.generation:
        return None
    return CommitRecord(store, manifest.mark).replaced()


def fixed_names(manifest: Manifest) -> list[str]:
    """Returns the files that may lie beside a dataset under names that are no commit's.

    The rejects and the manifest are not among them.
    """
    labels = [labels_file_name(f.name) for f in manifest.features if f.num_classes]
    descriptions = [DATASET_INFO_NAME, FEATURES_NAME, SCHEMA_PBTXT_NAME, *labels]
    parts = range(manifest.appended + 1)
    lists = [inputs_name(part) for part in parts]
    return [*descriptions, *lists, *unnamed_files(manifest)]


def unnamed_files(manifest: Manifest) -> list[str]:
    """Returns the files that the manifest does not name: they differ from run to run."""
    return [
        name(part)
        for part in range(manifest.appended + 1)
        for name in (inventory_name, run_metadata_name)
    ]


def unnamed_files_of_part(manifest: Manifest) -> list[str]:
    """Returns those of them that the last part has: no inventory without inputs."""
    part = manifest.appended
    inventory = [inventory_name(part)] if inputs_name(part) in manifest.files else []
    return [*inventory, run_metadata_name(part)]


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The data files of a dataset: names of shards, and marks of rejects files."""

    shards: frozenset[str]
    rejects: frozenset[str]

    @classmethod
    def of(cls, *manifests: Manifest) -> DataFiles:
        marks = set[str]()
        for manifest in manifests:
            if manifest.rejects is not None:
                marks |= set(manifest.rejects.marks or [""])
            elif manifest.rows_rejected:  # of an earlier version, maybe appended to
                marks |= {"", manifest.mark, *map(mark_of, manifest.shard_files)}
        shards = {file for manifest in manifests for file in manifest.shard_files}
        return cls(frozenset(shards), frozenset(marks))

    def without(self, other: DataFiles) -> DataFiles:
        return DataFiles(self.shards - other.shards, self.rejects - other.rejects)

    def names(self, store: Store) -> list[str]:
        """Returns the names of all files, of rejects those that there are.

        Each shard may have an index file.
        """
        indexes = (f"{shard}{INDEX_SUFFIX}" for shard in self.shards)
        rejects = store.list(REJECTS_NAME) if self.rejects else {}
        own = (name for name in rejects if mark_of_rejects(name) in self.rejects)
        return [*sorted([*self.shards, *indexes]), *own]


def stray_files(store: Store, manifest: Manifest) -> list[str]:
    """Returns data files of older commits of this dataset that the manifest lacks.

    An object store may finish a copy after the run that asked for it was killed, and
    after its record was removed. The name of a data file comes into use by one commit or
    never, so such files can go: no newer manifest will name them.
    """
    kept = DataFiles.of(manifest)
    shards = {
        name: mark_of(name)
        for name in store.list_level().files
        if name.startswith(f"{manifest.name}-")
        and name.removesuffix(INDEX_SUFFIX) not in kept.shards
    }
    rejects = {name: mark_of_rejects(name) for name in store.list(REJECTS_NAME)}
    found = {**shards, **{n: m for n, m in rejects.items() if m not in kept.rejects}}
    return [
        name
        for name, mark in found.items()
        if mark and generation_of(mark) <= manifest.generation
    ]


def is_marked(manifest: Manifest) -> bool:
    """Tells whether a manifest's last part has names of its own, as now all have."""
    files = manifest.shard_files
    return manifest.generation > 0 or not files or bool(mark_of(files[-1]))
