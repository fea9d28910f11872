"""Manages the versions of a dataset, and latest.json, which names the version to read.

    OUTPUT/
      1.0.0/ manifest.json ...
      1.0.1/ manifest.json ...
      latest.json                {"version": "1.0.1", "path": "1.0.1", "fingerprint": ...}

latest.json is written last and in one step, so it always names a complete version. A
version folder without a manifest is being written or removed, or its run was killed: it
then contains a work folder, which is removed last.
"""

from __future__ import annotations

from pathlib import Path

from recordmill.schemas.dataset_text import parse_latest
from recordmill.schemas.errors import BusyError, OutputRefusedError
from recordmill.schemas.job import FIRST_VERSION, VERSION_PATTERN
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_json
from recordmill.transforms.commit.commit import RECORD_PREFIX
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.storage import LocalStore, Store, open_store
from recordmill.transforms.storage.lease import require_idle
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.launches import require_no_launch
from recordmill.transforms.tasks.workspace import RUN_PATTERN

LATEST_NAME = "latest.json"
_PARALLEL = 16  # versions that are checked at the same time
_TRIES = 20  # each fails only if another run moved latest.json in between


def list_versions(store: Store) -> dict[str, bool]:
    """Returns the versions in a folder, oldest first; True if one is published."""
    if isinstance(store, LocalStore) and Path(store.root).is_file():
        raise OutputRefusedError(
            f"{store.uri}: is a file; expected a folder for the versions"
        )
    level = store.list_level()
    if MANIFEST_NAME in level.files:
        raise OutputRefusedError(
            f"{store.uri}: is a dataset itself, so it cannot contain versions; choose "
            "another folder"
        )
    folders = (*level.folders, *level.linked_folders)
    versions = [name for name in folders if VERSION_PATTERN.fullmatch(name)]
    versions.sort(key=_numbers_of)

    def manifest_size(version: str) -> int | None:
        return store.subfolder_store(version).size(MANIFEST_NAME)

    sizes = map_ahead(versions, manifest_size, _PARALLEL)
    return {version: s is not None for version, s in zip(versions, sizes, strict=True)}


def next_version(version: str | None) -> str:
    """Returns the patch version after this one; the first version for None.

    >>> next_version("1.0.9")
    '1.0.10'
    """
    if version is None:
        return FIRST_VERSION
    major, minor, patch = _numbers_of(version)
    return f"{major}.{minor}.{patch + 1}"


def read_latest(store: Store) -> str | None:
    """Reads the version that latest.json names; None if there is no such file."""
    latest_bytes = store.read_if_exists(LATEST_NAME)
    return (
        None
        if latest_bytes is None
        else parse_latest(latest_bytes, store.uri_of(LATEST_NAME))
    )


def follow_latest(store: Store) -> Store:
    """Returns the store of a dataset: a folder, or the version to read in it."""
    if store.size(MANIFEST_NAME) is not None:
        return store
    version = read_latest(store)
    return store if version is None else store.subfolder_store(version)


def dataset_folder(output: str, storage: StorageOptions) -> str:
    """Returns the folder of a dataset: the output, or the version to read in it."""
    store = open_store(output, storage)
    version_store = follow_latest(store)
    return output if version_store == store else version_store.uri


def names_latest(store: Store, manifest: Manifest) -> bool:
    """Checks whether latest.json names this version and has its fingerprint."""
    return store.read_if_exists(LATEST_NAME) == _latest_bytes(manifest)


def move_latest(store: Store, manifest: Manifest) -> None:
    """Sets latest.json to this version, in one step, unless it names a newer one.

    If a run sleeps before this step, another run may publish a newer version meanwhile
    and remove the version of this run.
    """
    new_bytes = _latest_bytes(manifest)
    for _ in range(_TRIES):
        current_bytes = store.read_if_exists(LATEST_NAME)
        if current_bytes == new_bytes or _names_newer(
            store, current_bytes, manifest.version
        ):
            return
        if store.swap(new_bytes, LATEST_NAME, expected_content=current_bytes):
            return
    raise BusyError(
        f"{store.uri_of(LATEST_NAME)}: another program writes to it; run again"
    )


def _names_newer(store: Store, latest_bytes: bytes | None, version: str) -> bool:
    """Checks whether latest.json names a whole version that is newer than this one."""
    latest = (
        None
        if latest_bytes is None
        else parse_latest(latest_bytes, store.uri_of(LATEST_NAME))
    )
    if latest is None or _numbers_of(latest) <= _numbers_of(version):
        return False
    return store.subfolder_store(latest).size(MANIFEST_NAME) is not None


def _latest_bytes(manifest: Manifest) -> bytes:
    version = manifest.version
    return format_json(
        {"version": version, "path": version, "fingerprint": manifest.fingerprint}
    )


def remove_version(store: Store, version: str) -> str:
    """Removes a version: first its manifest in one step, then its files.

    A killed call leaves the folder of an unfinished run (see `is_ours`): the manifest is
    moved to the work folder, which is removed last. If a version is a link, for example
    to another disk, only the link is removed.

    Returns:
      The target of the link, whose files stay; "" if the version is not a link.
    """
    if isinstance(store, LocalStore) and store.is_link(version):
        target = str(Path(store.root, version).readlink())
        store.delete([version])
        return target
    manifest = f"{version}/{MANIFEST_NAME}"
    work = f"{version}/{WORK_FOLDER}"
    if store.size(manifest) is not None:
        store.move_all([(manifest, f"{work}/{MANIFEST_NAME}")])
    names = store.list(version)
    store.delete(name for name in names if not name.startswith(f"{work}/"))
    store.remove_tree(version)
    return ""


def expired_versions(store: Store, versions: dict[str, bool], keep: int) -> list[str]:
    """Returns all complete versions except the newest ones and the one in latest.json.

    `keep` is the number of newest versions to keep; 0 keeps all.
    """
    old = [version for version, is_whole in versions.items() if is_whole][: -keep or 0]
    latest = read_latest(store) if old else None
    return [version for version in old if version != latest]


def has_leftovers(store: Store) -> bool:
    """Checks whether killed runs left files next to the versions, or their lease."""
    level = store.list_level()
    in_work = WORK_FOLDER in level.folders and store.list_tree(WORK_FOLDER)
    return bool(level.unfinished or in_work)


def _numbers_of(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def stale_versions(
    store: Store, versions: dict[str, bool], chosen: str, run_key: str
) -> list[str]:
    """Returns the unfinished versions to clear before a run writes version `chosen`.

    Excluded are files that runs with the same key left in `chosen`, foreign folders and
    links, and versions without removable files: a commit record stays (see
    `clear_unfinished`).
    """
    stale, linked_folders = [], store.list_level().linked_folders
    for version, is_whole in versions.items():
        if is_whole or version in linked_folders:
            continue
        level, work = store.list_level(version), f"{version}/{WORK_FOLDER}"
        runs, folders = unfinished_runs(store, version), store.list_level(work).folders
        is_ours = work in level.folders or not (level.files or level.folders)
        is_own = version == chosen and all(run_key.startswith(run) for run in runs)
        record = f"{version}/{RECORD_PREFIX}"
        in_commit = any(folder.startswith(record) for folder in folders)
        if is_ours and not is_own and (runs or not in_commit):
            stale.append(version)
    return stale


def unfinished_runs(store: Store, version: str) -> list[str]:
    """Returns the short fingerprints of the unfinished runs in a folder."""
    work = f"{version}/{WORK_FOLDER}"
    folders = store.list_level(work).folders
    runs = (folder.removeprefix(f"{work}/") for folder in folders)
    return [run for run in runs if RUN_PATTERN.fullmatch(run)]


def clear_unfinished(store: Store, version: str, chosen: str) -> list[str]:
    """Removes the files of other runs in a version that no reader has seen.

    Such a run may only be suspended and continue at any time. So data files with a commit
    record stay, because the manifest of that commit may name them; in version `chosen`,
    the next commit removes them. Otherwise only files listed at the start of this call
    are removed.

    Args:
      store: the folder of the versions.
      version: the version to clear.
      chosen: the version that the current run writes.

    Returns:
      The names of the runs.

    Raises:
      BusyError: a run that was started with this version explicitly is still running.
    """
    folder = store.subfolder_store(version)
    require_idle(folder)
    require_no_launch(folder)
    names = folder.list()
    if MANIFEST_NAME in names:
        return []  # it was published just now
    runs = unfinished_runs(store, version)
    in_commit = any(name.startswith(RECORD_PREFIX) for name in names)
    if version != chosen and not in_commit:
        inside = f"{WORK_FOLDER}/"
        folder.delete(name for name in names if not name.startswith(inside))
    for run in runs:
        folder.remove_tree(f"{WORK_FOLDER}/{run}")
    if version != chosen and not in_commit:
        last = f"{WORK_FOLDER}/{MANIFEST_NAME}"  # exists if the removal was interrupted
        other_names = [
            name for name in names if name.startswith(inside) and name != last
        ]
        # Empty folders are removed with the last file, even if the file is missing.
        folder.delete([*folder.list_temp_files(), *other_names])
        store.delete([f"{version}/{last}"])
        if not store.swaps_exclusively:  # a store with real folders
            store.remove_tree(version)
    return runs
