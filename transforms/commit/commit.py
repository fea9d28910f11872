"""Makes the staged files the dataset in the output.

Readers trust manifest.json alone, and the commit is one conditional put of it, over
exactly the manifest that was there when the run was allowed to begin:

1. a record of the commit is written (records.py);
2. the data files are moved to names that no other dataset in the folder has;
3. they are checked, and the manifest is swapped in;
4. the files with fixed names are swapped, each over what was seen (finish.py);
5. what is not needed any more is removed.

A run that is killed before 3 has changed nothing that a reader sees; one that is killed
behind it is finished by the next one. If another run committed meanwhile, 3 fails and
nothing is harmed: the names of data files are never given twice.
"""

from __future__ import annotations

from hashlib import blake2b

from recordmill.schemas.dataset.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    ShardEntry,
)
from recordmill.schemas.dataset.parts import (
    REJECTS_NAME,
    is_shard_name,
    mark_of,
    mark_of_rejects,
    marked_rejects,
)
from recordmill.schemas.dataset.shards import staged_file_name
from recordmill.schemas.errors import BusyError, OutputRefusedError
from recordmill.schemas.text import count
from recordmill.transforms.commit.finish import finish
from recordmill.transforms.commit.records import (
    CommitRecord,
    DataFiles,
    is_marked,
    unnamed_files_of_part,
)
from recordmill.transforms.commit.recovery import SEEN_NAME, STAGED_MANIFEST
from recordmill.transforms.dataset.files import (
    find_manifest,
    is_file,
    read_manifest,
    rejects_files,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import Workspace

_DAMAGED = (
    "The dataset is damaged: convert again with `overwrite=true`, or remove its folder "
    "and convert again"
)


def manifest_digest(data: bytes | None) -> str:
    """Returns what tells manifests apart, by their bytes; "" where there is none."""
    return "" if data is None else blake2b(data, digest_size=16).hexdigest()


def seen_manifest(store: Store) -> str:
    """Returns the digest of the manifest that a run sees when it begins."""
    return manifest_digest(store.find(MANIFEST_NAME))


def is_staged(workspace: Workspace) -> bool:
    """Tells whether an earlier try staged everything and only the commit is left.

    If another dataset was published meanwhile, or if the try was by a version that
    commits in another way, the staged files get their names anew.
    """
    store = workspace.store
    manifest = find_manifest(store, workspace.store_name(STAGED_MANIFEST))
    if manifest is None or not is_marked(manifest):
        return False
    return store.find(MANIFEST_NAME) == store.find(workspace.store_name(SEEN_NAME))


def commit(workspace: Workspace, staged: Manifest | None = None) -> Manifest:
    """Makes the staged files the dataset in the output. Safe to repeat.

    Args:
      workspace: of the run.
      staged: the manifest, if it is known.

    Raises:
      BusyError: another run published meanwhile; nothing was harmed.
      OutputError: a file is missing, or the storage refuses.
    """
    store = workspace.store
    data = store.find(workspace.store_name(STAGED_MANIFEST))
    if data is None:  # an earlier try of this task did it
        current = read_manifest(store)
        if staged is not None and current.fingerprint != staged.fingerprint:
            raise _changed(store)
        finish(store)
        return current
    manifest = Manifest.from_bytes(data, store.uri_of(STAGED_MANIFEST))
    seen = store.find(workspace.store_name(SEEN_NAME))
    current_data = store.find(MANIFEST_NAME)
    if current_data != data:
        if current_data != seen:
            raise _lost(store, manifest)
        fixed = _fixed_files(workspace)
        _require_fixed(store, manifest, fixed)
        CommitRecord(store, manifest.mark).write(data, seen, fixed)
        placed = _place_data(workspace, manifest)
        require_stored(store, manifest)
        _require_rejects(store, manifest, placed)
        if not store.swap(data, MANIFEST_NAME, seen=seen):
            raise _lost(store, manifest)
    finish(store)
    return manifest


def _fixed_files(workspace: Workspace) -> dict[str, bytes]:
    """Reads the staged files that get a fixed name, by that name."""
    store, folder = workspace.store, workspace.store_name("staging")
    names = store.list_level(folder).files
    return {
        name.removeprefix(f"{folder}/"): store.read(name)
        for name in names
        if name != workspace.store_name(STAGED_MANIFEST) and not is_shard_name(name)
    }


def _require_fixed(store: Store, manifest: Manifest, staged: dict[str, bytes]) -> None:
    """Checks the metadata files of a dataset, before it can be published.

    A run that slept may have removed the staged ones: two runs of one job share a
    workspace. An append leaves those of the parts before where they are.

    Raises:
      BusyError: one is missing, or another one.
    """
    wrong = [
        name
        for name, entry in manifest.files.items()
        if not is_file(staged[name] if name in staged else store.find(name), entry)
    ]
    wrong += [name for name in unnamed_files_of_part(manifest) if name not in staged]
    if wrong:
        raise BusyError(
            f"{store.uri_of(wrong[0])}: not the file that this run staged. Another run of "
            "the same job was at work, or cleaned up. Nothing was published; run again"
        )


def _place_data(workspace: Workspace, manifest: Manifest) -> set[str]:
    """Moves staged shards, indexes and rejects to the names that the manifest gives.

    Returns:
      The names of the rejects.
    """
    store, folder = workspace.store, workspace.store_name("staging")
    mark = manifest.mark
    staged = store.list_level(folder).files
    pairs = [
        (source, file)
        for file in (*manifest.shard_files, *manifest.index_files)
        if mark_of(file) == mark
        and (source := f"{folder}/{staged_file_name(file)}") in staged
    ]
    rejects = {
        name: marked_rejects(name.removeprefix(f"{folder}/"), mark)
        for name in store.list(f"{folder}/{REJECTS_NAME}")
    }
    store.move_all([*pairs, *rejects.items()])
    return set(rejects.values())


def _require_rejects(store: Store, manifest: Manifest, placed: set[str]) -> None:
    """Checks that all kept rejects are there, by their size.

    Args:
      store: of the dataset.
      manifest: its manifest.
      placed: those that were put there just now. Others of the same mark are of an
        earlier try; with another exchange these are the same rejects in other files.

    Raises:
      OutputRefusedError: some are missing.
    """
    if manifest.rejects is None:
        return
    files = rejects_files(store, manifest)
    if sum(files.values()) > manifest.rejects.bytes:
        mark = manifest.mark
        earlier = [n for n in files if n not in placed and mark_of_rejects(n) == mark]
        store.delete(earlier)
        files = rejects_files(store, manifest)
    found = sum(files.values())
    if found != manifest.rejects.bytes:
        raise OutputRefusedError(
            f"{store.uri_of(REJECTS_NAME)}: {count(found, 'byte')}, expected "
            f"{manifest.rejects.bytes:,}. Nothing was published; run again"
        )


def _lost(store: Store, manifest: Manifest) -> BusyError:
    """Removes what a commit put beside the dataset that another run published.

    Not if there was a third one: then this commit may have been done and replaced, and
    its answer was lost. A later run removes its files when they are not in use.
    """
    current = find_manifest(store)
    if current is not None and current.generation == manifest.generation:
        own = DataFiles.of(manifest).without(DataFiles.of(current))
        mark = manifest.mark
        store.delete(
            name
            for name in own.names(store)
            if mark in (mark_of(name), mark_of_rejects(name))
        )
        store.remove_tree(f"{WORK_FOLDER}/commit-{mark}")
    return _changed(store)


def _changed(store: Store) -> BusyError:
    return BusyError(
        f"{store.uri}: another run published a dataset here meanwhile, which was left as "
        "it is. Nothing of this run was published; run again"
    )


def require_stored(store: Store, manifest: Manifest) -> None:
    """Checks sizes, and checksums that the store keeps, of all shards; reads no data.

    Index files that were written with them count as shards do.

    Raises:
      OutputError: a shard is missing, or has another size or checksum.
    """
    level = store.list_level()
    sizes = level.files
    files: dict[str, ShardEntry | FileEntry] = {**manifest.index_files}
    for split in manifest.splits.values():
        files |= {shard.file: shard for shard in split.shards}
    for file, entry in files.items():
        size = sizes.get(file)
        if size != entry.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise OutputRefusedError(
                f"{store.uri_of(file)}: {found}, the manifest says {entry.bytes} bytes. "
                f"{_DAMAGED}"
            )
        crc = level.checksums.get(file)
        if crc is not None and f"{crc:08x}" != entry.crc32c:
            raise OutputRefusedError(
                f"{store.uri_of(file)}: the store has CRC-32C {crc:08x}, the manifest "
                f"says {entry.crc32c}. {_DAMAGED}"
            )
