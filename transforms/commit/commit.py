"""The switch: what is staged becomes the dataset in the output.

Readers trust manifest.json alone. The switch moves finished files: first the
old manifest goes (only with --overwrite), then the files it names, then the new files
come, and the new manifest last; killed at any moment, there is never a manifest over
missing or wrong shards. Two journals let `commit` be repeated: where a staged manifest
exists, all else is staged or already in its place; where the old manifest lies in
staging's parent, some of its files may still be there and no new one has come yet.

An appended part only adds files, under names of its own: its shards come, then the
manifest that names old and new ones takes the old one's place in one step. Up to that
the dataset is the old one, whole; what a killed run had moved goes before others come.
"""

from __future__ import annotations

from pathlib import Path

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.errors import OutputError
from recordmill.transforms.commit.recovery import (
    REPLACED_NAME,
    STAGED_MANIFEST,
    dataset_files,
    discard_unpublished,
    journals_of_others,
    other_runs,
    stale_files,
)
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.workspace import Workspace


def is_staged(workspace: Workspace) -> bool:
    """Whether an earlier try got as far as the switch."""
    return workspace.store.size(workspace.store_name(STAGED_MANIFEST)) is not None


def commit(workspace: Workspace) -> Manifest:
    """Makes the staged dataset the one in the output. Safe to repeat."""
    store = workspace.store
    staged = workspace.store_name(STAGED_MANIFEST)
    manifest = read_manifest(store, staged)
    if manifest.appended:
        discard_unpublished(store, journals_of_others(workspace))
    else:
        _remove_old(workspace, manifest)
    folder = workspace.store_name("staging")
    store.move_all(
        (name, name.removeprefix(f"{folder}/"))
        for name in store.list(folder)
        if name != staged
    )
    require_stored(store, manifest)
    store.move(staged, MANIFEST_NAME)
    if manifest.appended:
        store.delete(stale_files(store, manifest))
    for names in other_runs(workspace).values():
        store.delete(names)  # their dataset will never come
    return manifest


def require_stored(store: Store, manifest: Manifest) -> None:
    """Makes sure that all shards are there, with the sizes that the manifest says, and
    where the store keeps checksums, with these; nothing is read.

    Raises:
      OutputError: one is missing, or has another size or checksum.
    """
    level = store.list_level()
    sizes = level.files
    for split in manifest.splits.values():
        for shard in split.shards:
            size = sizes.get(shard.file)
            if size != shard.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise OutputError(
                    f"{store.uri_of(shard.file)}: {found}, the manifest says "
                    f"{shard.bytes} bytes. The dataset is damaged: remove its folder "
                    "and convert again"
                )
            crc = level.checksums.get(shard.file)
            if crc is not None and f"{crc:08x}" != shard.crc32c:
                raise OutputError(
                    f"{store.uri_of(shard.file)}: the store has CRC-32C {crc:08x}, the "
                    f"manifest says {shard.crc32c}. The dataset is damaged: remove its "
                    "folder and convert again"
                )


def _remove_old(workspace: Workspace, new: Manifest) -> None:
    """Takes away what stands in the output, before the first new file comes."""
    store = workspace.store
    own_journal = workspace.store_name(REPLACED_NAME)
    old = find_manifest(store)
    if old is not None:
        if old.fingerprint == new.fingerprint:
            return  # a repeated switch: these files are the new ones
        store.move(MANIFEST_NAME, own_journal)
    for journal in (own_journal, *journals_of_others(workspace)):
        old = find_manifest(store, journal)
        if old is None:
            continue
        store.delete([*dataset_files(old), *store.list(REJECTS_NAME)])
        store.delete([journal])


def check_output(
    store: Store, fingerprint: str, *, overwrite: bool, base: str = ""
) -> Manifest | None:
    """What stands in the output already.

    Args:
      store: of the output.
      fingerprint: of the dataset that is to stand there.
      overwrite: whether it may replace another one.
      base: fingerprint of the dataset that it is made from by appending, or "".

    Returns:
      The manifest if this very dataset is there; None if the run may go on.

    Raises:
      OutputError: a different dataset (and not overwrite), or files that are none.
    """
    if isinstance(store, LocalStore) and Path(store.root).is_file():
        raise OutputError(f"{store.uri}: is a file; expected a folder for the dataset")
    manifest = find_manifest(store)
    if manifest is not None:
        if manifest.fingerprint == fingerprint:
            return manifest
        if base and manifest.fingerprint == base:
            return None
        if base:
            raise OutputError(
                f"{store.uri}: another dataset came here while this run looked at the "
                "one it appends to; run it again"
            )
        if not overwrite:
            more = "go on appending with --append, " if manifest.appended else ""
            raise OutputError(
                f"{store.uri}: holds another dataset ({manifest.name} "
                f"{manifest.version}, made from other input or with other options); "
                f"{more}replace it with --overwrite, or choose another folder"
            )
        return None
    workspace = Workspace.of(store, fingerprint)
    if is_staged(workspace):
        return None  # killed in its switch, which the launcher repeats
    if unfinished := journals_of_others(workspace):
        if overwrite:
            return None
        raise OutputError(
            f"{store.uri}: another job was killed while it published its dataset here "
            f"({unfinished[0]}); run it again to its end, replace what there is of it "
            "with --overwrite, or choose another folder"
        )
    tops = {name.split("/")[0] for name in store.list()}
    if foreign := sorted(tops - {WORK_FOLDER}):
        raise OutputError(
            f"{store.uri}: is not empty ({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}) and holds no dataset; choose "
            "another folder. Nothing was touched"
        )
    return None
