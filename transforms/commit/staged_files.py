"""Tells whether all that a run staged is still there, in the store.

Two runs of one job share a workspace, so a run that slept may have removed what another
one staged. What is gone is made anew by the next run, if it knows.
"""

from __future__ import annotations

from recordmill.schemas.dataset.manifest import FileEntry, Manifest, ShardEntry
from recordmill.schemas.dataset.parts import REJECTS_NAME, is_shard_name, mark_of
from recordmill.schemas.dataset.shards import staged_file_name
from recordmill.transforms.commit.records import unnamed_files_of_part
from recordmill.transforms.commit.recovery import STAGED_MANIFEST
from recordmill.transforms.dataset.files import is_file, rejects_files
from recordmill.transforms.storage import Store
from recordmill.transforms.tasks.workspace import Workspace

RUN_AGAIN = (
    "Another run of the same job was at work, or cleaned up. Nothing was published; run "
    "again"
)


def is_whole(workspace: Workspace, manifest: Manifest) -> bool:
    """Tells whether all files of a staged dataset are there, by what a listing tells.

    Args:
      workspace: of the run.
      manifest: the staged one. What a commit that was killed has moved counts.
    """
    store = workspace.store
    staged = store.list_level(workspace.store_name("staging"))
    placed = store.list_level()
    for file, entry in data_entries(manifest).items():
        if mark_of(file) != manifest.mark:
            continue  # of a part before
        name = workspace.store_name(f"staging/{staged_file_name(file)}")
        level, name = (staged, name) if name in staged.files else (placed, file)
        if level.files.get(name) != entry.bytes:
            return False
        crc = level.checksums.get(name)
        if crc is not None and f"{crc:08x}" != entry.crc32c:
            return False
    if wrong_files(store, manifest, staged_metadata(workspace)):
        return False
    if manifest.rejects is None:
        return True
    folder = workspace.store_name(f"staging/{REJECTS_NAME}")
    rejects = store.list(folder), rejects_files(store, manifest)
    return sum(sum(files.values()) for files in rejects) >= manifest.rejects.bytes


def data_entries(manifest: Manifest) -> dict[str, ShardEntry | FileEntry]:
    """Returns what a manifest says of each shard and index file, by name."""
    entries: dict[str, ShardEntry | FileEntry] = {**manifest.index_files}
    for split in manifest.splits.values():
        entries |= {shard.file: shard for shard in split.shards}
    return entries


def staged_metadata(workspace: Workspace) -> dict[str, bytes]:
    """Reads the staged files that get a fixed name, by that name."""
    store, folder = workspace.store, workspace.store_name("staging")
    names = store.list_level(folder).files
    found = {
        name.removeprefix(f"{folder}/"): store.find(name)
        for name in names
        if name != workspace.store_name(STAGED_MANIFEST) and not is_shard_name(name)
    }
    return {name: data for name, data in found.items() if data is not None}


def wrong_files(
    store: Store, manifest: Manifest, staged: dict[str, bytes]
) -> list[str]:
    """Returns the metadata files of a dataset that are missing, or other ones.

    An append leaves those of the parts before where they are.
    """
    wrong = [
        name
        for name, entry in manifest.files.items()
        if not is_file(staged[name] if name in staged else store.find(name), entry)
    ]
    return wrong + [n for n in unnamed_files_of_part(manifest) if n not in staged]
