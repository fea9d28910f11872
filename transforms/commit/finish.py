"""Finishes a commit behind its swap: files with fixed names, then what is not needed.

The manifest is the dataset. Some files beside it have names that foreign readers ask
for, like dataset_info.json, so they cannot have one of their own. Each is swapped over
what was read of it before the manifest was read again: as long as the manifest is that
of the commit, nobody newer can have written it. If it changes behind that, the swap
fails, or it is taken back.

A file is removed only if its name can never come into use again: the manifest does not
name it, and its generation is not newer than the manifest's. The files of the replaced
dataset stay for its readers until the next run.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import generation_of
from recordmill.schemas.errors import OutputError
from recordmill.transforms.commit.records import (
    CommitRecord,
    DataFiles,
    find_records,
    fixed_names,
    unnamed_files,
)
from recordmill.transforms.dataset.files import is_file
from recordmill.transforms.dataset.tfds_files import DATASET_INFO_NAME, FEATURES_NAME
from recordmill.transforms.storage import Store

TFDS_FILES = (DATASET_INFO_NAME, FEATURES_NAME)  # of a dataset in one part

_TRIES = 20  # each fails only if another run wrote in between


class _Superseded(Exception):  # noqa: N818  not an error: a newer commit goes on
    """Another run goes on from here: it replaced the manifest, or finished this commit."""


def finish(store: Store, *, end_grace: bool = False) -> bytes | None:
    """Finishes the last commit, whoever made it; safe to repeat and to give up.

    Args:
      store: of the dataset.
      end_grace: whether the files of the dataset that it replaced go, too.

    Returns:
      The manifest whose commit is finished; None if there is none, or if another run
      goes on with it.
    """
    data = store.find(MANIFEST_NAME)
    if data is None:
        return None
    manifest = Manifest.from_bytes(data, store.uri_of(MANIFEST_NAME))
    records = find_records(store)
    own = next((record for record in records if record.mark == manifest.mark), None)
    try:
        if own is not None:
            _settle(store, data, manifest, own)
    except _Superseded:
        return None
    store.delete(old_files(store, manifest, records, end_grace=end_grace))
    if own is not None and not end_grace and _in_grace(manifest, own):
        spared = own.replaced_name
    else:
        spared = ""
    store.delete(name for name in old_records(manifest, records) if name != spared)
    return data


def discard_fixed(store: Store, manifest: bytes, names: Iterable[str]) -> None:
    """Removes files with fixed names, as long as the manifest is this one."""
    with suppress(_Superseded):
        for name in names:
            _replace(store, manifest, name, None)


def old_files(
    store: Store, manifest: Manifest, records: list[CommitRecord], *, end_grace: bool
) -> list[str]:
    """Returns the data files that commits left and that are not in use any more.

    Args:
      store: of the dataset.
      manifest: of the dataset.
      records: of all commits.
      end_grace: whether those of the replaced dataset are among them.
    """
    kept, old = [manifest], list[Manifest]()
    for record in records:
        if generation_of(record.mark) > manifest.generation:
            continue  # it may still be swapped in
        if record.mark == manifest.mark and not end_grace:
            kept += record.manifests()
        old += record.manifests()
    return DataFiles.of(*old).without(DataFiles.of(*kept)).names(store)


def old_records(manifest: Manifest, records: list[CommitRecord]) -> list[str]:
    """Returns the files of the records of commits that are over."""
    return [
        name
        for record in records
        if generation_of(record.mark) <= manifest.generation
        for name in reversed(record.names)
    ]


def _in_grace(manifest: Manifest, own: CommitRecord) -> bool:
    """Tells whether files of the replaced dataset alone are there: none in an append."""
    replaced = own.replaced() if own.replaced_name in own.names else None
    old = DataFiles.of(*filter(None, [replaced])).without(DataFiles.of(manifest))
    return bool(old.shards or old.rejects)


def _settle(
    store: Store, data: bytes, manifest: Manifest, record: CommitRecord
) -> None:
    """Puts the files with fixed names in place; removes those of the old dataset.

    Raises:
      _Superseded: another commit has replaced the manifest.
    """
    own = {*manifest.files, *unnamed_files(manifest)}
    files = {name: copy for name, copy in record.files.items() if name in own}
    for name in sorted(files, key=lambda name: name != DATASET_INFO_NAME):
        copy = store.find(files[name])
        if copy is None:
            raise _Superseded  # another run has finished this commit
        _replace(store, data, name, copy)
    for name in _obsolete_names(manifest, record):
        _replace(store, data, name, None)


def _obsolete_names(manifest: Manifest, record: CommitRecord) -> list[str]:
    """Returns the fixed names of the replaced dataset that the new one does not have."""
    if record.replaced_name not in record.names:
        return []
    if manifest.appended:
        # TFDS finds a split's shards by one pattern that contains their number; the
        # shards of several parts cannot have such names.
        return [name for name in TFDS_FILES if name not in manifest.files]
    replaced = record.replaced()
    if replaced is None:
        return []
    kept = {*manifest.files, *unnamed_files(manifest)}
    return [name for name in fixed_names(replaced) if name not in kept]


def _replace(store: Store, manifest: bytes, name: str, data: bytes | None) -> None:
    """Replaces a file with a fixed name by a swap; None removes it.

    Raises:
      _Superseded: another commit has replaced the manifest.
    """
    for _ in range(_TRIES):
        seen = store.find(name)
        if seen == data:
            return
        if store.find(MANIFEST_NAME) != manifest:
            raise _Superseded
        if not _swap(store, name, data, seen):
            continue
        newer = store.find(MANIFEST_NAME)
        if newer != manifest:
            if newer is not None and _belongs(store, newer, name, seen, data):
                _swap(store, name, seen, data)
            raise _Superseded
        return
    raise OutputError(f"{store.uri_of(name)}: another program writes to it; run again")


def _belongs(
    store: Store, newer: bytes, name: str, seen: bytes | None, data: bytes | None
) -> bool:
    """Tells whether a newer dataset has the file that was replaced, not the new one."""
    entry = Manifest.from_bytes(newer, store.uri_of(MANIFEST_NAME)).files.get(name)
    if entry is None:
        return False
    return is_file(seen, entry) and not is_file(data, entry)


def _swap(store: Store, name: str, data: bytes | None, seen: bytes | None) -> bool:
    if data is not None:
        return store.swap(data, name, seen=seen)
    return seen is None or store.discard(name, seen=seen)
