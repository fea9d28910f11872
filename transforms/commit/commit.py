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

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import (
    REJECTS_NAME,
    mark_of,
    mark_of_rejects,
    marked_rejects,
)
from recordmill.schemas.dataset.shards import staged_file_name
from recordmill.schemas.errors import (
    BusyError,
    MissingFileError,
    OutputRefusedError,
)
from recordmill.schemas.text import count
from recordmill.transforms.commit.finish import finish
from recordmill.transforms.commit.records import (
    CommitRecord,
    DataFiles,
    is_marked,
)
from recordmill.transforms.commit.recovery import SEEN_NAME, STAGED_MANIFEST
from recordmill.transforms.commit.staged_files import (
    RUN_AGAIN,
    data_entries,
    is_whole,
    staged_metadata,
    wrong_files,
)
from recordmill.transforms.dataset.files import (
    find_manifest,
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
    commits in another way, the staged files get their names anew. What somebody removed
    is made anew.
    """
    store = workspace.store
    manifest = find_manifest(store, workspace.store_name(STAGED_MANIFEST))
    if manifest is None or not is_marked(manifest):
        return False
    if store.find(MANIFEST_NAME) != store.find(workspace.store_name(SEEN_NAME)):
        return False
    return is_whole(workspace, manifest)


def commit(workspace: Workspace, staged: Manifest | None = None) -> Manifest:
    """Makes the staged files the dataset in the output. Safe to repeat.

    Args:
      workspace: of the run.
      staged: the manifest, if it is known.

    Raises:
      BusyError: another run published meanwhile, or removed staged files; nothing was
        harmed, and the next run makes them anew.
      OutputError: a file of the dataset is missing, or the storage refuses.
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
        fixed = staged_metadata(workspace)
        if wrong := wrong_files(store, manifest, fixed):
            raise BusyError(
                f"{store.uri_of(wrong[0])}: not the file that this run staged. {RUN_AGAIN}"
            )
        CommitRecord(store, manifest.mark).write(data, seen, fixed)
        placed = _place_data(workspace, manifest)
        require_stored(store, manifest, own_mark=manifest.mark)
        _require_rejects(store, manifest, placed)
        if not store.swap(data, MANIFEST_NAME, seen=seen):
            raise _lost(store, manifest)
    finish(store)
    return manifest


def _place_data(workspace: Workspace, manifest: Manifest) -> set[str]:
    """Moves staged shards, indexes and rejects to the names that the manifest gives.

    Returns:
      The names of the rejects.

    Raises:
      BusyError: somebody removed one meanwhile.
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
    try:
        store.move_all([*pairs, *rejects.items()])
    except MissingFileError as error:
        raise BusyError(f"{error}. {RUN_AGAIN}") from error
    return set(rejects.values())


def _require_rejects(store: Store, manifest: Manifest, placed: set[str]) -> None:
    """Checks that all kept rejects are there, by their size.

    Args:
      store: of the dataset.
      manifest: its manifest.
      placed: those that were put there just now. Others of the same mark are of an
        earlier try; with another exchange these are the same rejects in other files.

    Raises:
      BusyError: some are missing.
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
        raise BusyError(
            f"{store.uri_of(REJECTS_NAME)}: {count(found, 'byte')}, expected "
            f"{manifest.rejects.bytes:,}. {RUN_AGAIN}"
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


def require_stored(store: Store, manifest: Manifest, *, own_mark: str = "") -> None:
    """Checks sizes, and checksums that the store keeps, of all shards; reads no data.

    Index files that were written with them count as shards do.

    Args:
      store: of the dataset.
      manifest: its manifest.
      own_mark: of the files that a commit just put there, if it is not yet published.

    Raises:
      BusyError: one that was just put there is missing, or has another size or checksum.
      OutputRefusedError: one of a dataset that was published is.
    """
    level = store.list_level()
    for file, entry in data_entries(manifest).items():
        size, crc = level.files.get(file), level.checksums.get(file)
        if size != entry.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            found = f"{found}, the manifest says {entry.bytes} bytes"
        elif crc is not None and f"{crc:08x}" != entry.crc32c:
            found = f"the store has CRC-32C {crc:08x}, the manifest says {entry.crc32c}"
        else:
            continue
        if own_mark and mark_of(file) == own_mark:
            raise BusyError(f"{store.uri_of(file)}: {found}. {RUN_AGAIN}")
        raise OutputRefusedError(f"{store.uri_of(file)}: {found}. {_DAMAGED}")
