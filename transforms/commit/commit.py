"""Makes the staged files the dataset in the output.

Readers trust manifest.json alone. A commit moves finished files: with overwrite, it
first removes the old manifest, then the files that it names; then it moves the new
files, and the new manifest last. So, if it is killed at any moment, there is never a
manifest with missing or wrong shards. If the dataset that is there is the same, but
damaged, each new file replaces its old one, and nothing is removed.

Two journals make a commit repeatable. If a staged manifest exists, all other files are
staged or already moved. If the old manifest is in the run's folder, some of its files
may still exist and no new file has been moved yet.

An appended part only adds files, under names of its own: first its shards are moved,
then the manifest that names old and new ones replaces the old manifest in one step.
Until then the dataset is the old one, complete; what a killed run had moved is removed
first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.errors import (
    BusyError,
    MissingFileError,
    OutputRefusedError,
)
from recordmill.schemas.text import printable
from recordmill.transforms.commit.damage import find_damage
from recordmill.transforms.commit.recovery import (
    OBSOLETE_NAME,
    REPLACED_NAME,
    STAGED_MANIFEST,
    dataset_files,
    discard_unpublished,
    journals_of_other_runs,
    other_runs,
    stale_files,
)
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import Workspace

_DAMAGED = (
    "The dataset is damaged: convert again with `overwrite=true`, or remove its folder "
    "and convert again"
)


def is_staged(workspace: Workspace) -> bool:
    """Tells whether an earlier try staged everything and only the commit is left."""
    return workspace.store.size(workspace.store_name(STAGED_MANIFEST)) is not None


def commit(workspace: Workspace) -> Manifest:
    """Makes the staged files the dataset in the output. Safe to repeat."""
    store = workspace.store
    staged = workspace.store_name(STAGED_MANIFEST)
    manifest = read_manifest(store, staged)
    if manifest.appended:
        discard_unpublished(store, journals_of_other_runs(workspace))
    else:
        _remove_old(workspace, manifest)
    folder = workspace.store_name("staging")
    store.move_all(
        (name, name.removeprefix(f"{folder}/"))
        for name in store.list(folder)
        if name != staged
    )
    store.delete(_obsolete_files(workspace))
    require_stored(store, manifest)
    store.move(staged, MANIFEST_NAME)
    if manifest.appended:
        store.delete(stale_files(store, manifest))
    for names in other_runs(workspace).values():
        store.delete(names)  # their dataset will never be published
    return manifest


def _obsolete_files(workspace: Workspace) -> list[str]:
    """Returns the files of a damaged dataset that the new one does not have."""
    try:
        data = workspace.store.read(workspace.store_name(OBSOLETE_NAME))
    except MissingFileError:
        return []
    return [str(name) for name in json.loads(data)]


def require_stored(store: Store, manifest: Manifest) -> None:
    """Checks sizes, and checksums that the store keeps, of all shards; reads no data.

    Raises:
      OutputError: a shard is missing, or has another size or checksum.
    """
    level = store.list_level()
    sizes = level.files
    for split in manifest.splits.values():
        for shard in split.shards:
            size = sizes.get(shard.file)
            if size != shard.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise OutputRefusedError(
                    f"{store.uri_of(shard.file)}: {found}, the manifest says "
                    f"{shard.bytes} bytes. {_DAMAGED}"
                )
            crc = level.checksums.get(shard.file)
            if crc is not None and f"{crc:08x}" != shard.crc32c:
                raise OutputRefusedError(
                    f"{store.uri_of(shard.file)}: the store has CRC-32C {crc:08x}, the "
                    f"manifest says {shard.crc32c}. {_DAMAGED}"
                )


def _remove_old(workspace: Workspace, new: Manifest) -> None:
    """Removes the old dataset from the output before the first new file is moved."""
    store = workspace.store
    own_journal = workspace.store_name(REPLACED_NAME)
    old = find_manifest(store)
    if old is not None:
        if old.fingerprint == new.fingerprint:
            return  # a repeated commit, or a repair: new files replace their old ones
        store.move(MANIFEST_NAME, own_journal)
    for journal in (own_journal, *journals_of_other_runs(workspace)):
        old = find_manifest(store, journal)
        if old is None:
            continue
        store.delete([*dataset_files(old), *store.list(REJECTS_NAME)])
        store.delete([journal])


def check_output(
    store: Store,
    run_key: str,
    *,
    overwrite: bool,
    base: str = "",
    is_same: Callable[[Manifest], bool] | None = None,
    changes_since: Callable[[Manifest], Sequence[str]] = lambda _: (),
) -> Manifest | None:
    """Checks whether a run may write to the output.

    Args:
      store: of the output.
      run_key: of the run that is to write.
      overwrite: whether it may replace another dataset.
      base: fingerprint of the dataset to which the run appends, or "".
      is_same: tells whether a dataset is the one that is to be written; without it, the
        run's key is the fingerprint.
      changes_since: describes how the run differs from another dataset, if known.

    Returns:
      The manifest if the output holds this dataset already; None if the run may write:
      with overwrite also if this dataset is there, but damaged.

    Raises:
      OutputError: the output holds another dataset (and not overwrite) or other files.
    """
    if isinstance(store, LocalStore) and Path(store.root).is_file():
        raise OutputRefusedError(
            f"{store.uri}: is a file; expected a folder for the dataset"
        )
    manifest = find_manifest(store)
    if manifest is not None:
        same = is_same or (lambda found: found.fingerprint == run_key)
        if same(manifest):
            if overwrite and find_damage(store, manifest):
                return None
            return manifest
        if base and manifest.fingerprint == base:
            return None
        if base:
            raise BusyError(
                f"{store.uri}: the dataset changed while the append was prepared; run "
                "again"
            )
        if not overwrite:
            raise OutputRefusedError(
                _another_dataset(store, manifest, changes_since(manifest))
            )
        return None
    workspace = Workspace.of(store, run_key)
    if is_staged(workspace):
        return None  # killed during its commit, which the launcher repeats
    if unfinished := journals_of_other_runs(workspace):
        if overwrite:
            return None
        raise OutputRefusedError(
            f"{store.uri}: another job was killed while it published its dataset here "
            f"({unfinished[0]}); run its command again to finish it, replace it with "
            "`overwrite=true`, or choose another folder"
        )
    top_names = {name.split("/")[0] for name in store.list()}
    if foreign := sorted(top_names - {WORK_FOLDER}):
        raise OutputRefusedError(
            f"{store.uri}: is not empty ({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}) and does not hold a dataset; use "
            "another folder. Nothing was changed"
        )
    return None


def _another_dataset(store: Store, manifest: Manifest, changes: Sequence[str]) -> str:
    """Describes the dataset that is in the way, how it differs, and the ways out."""
    start = f"{store.uri}: holds another dataset ({manifest.name} {manifest.version}"
    ways = "append to it with `append=true`, " if manifest.appended else ""
    ways += "replace it with `overwrite=true`, or choose another folder"
    if not changes:
        return f"{start}, made from other inputs or with other options); {ways}"
    lines = "".join(f"\n  {printable(change)}" for change in changes)
    return f"{start}). It differs in:{lines}\nTo go on, {ways}"
