"""Versions of a dataset side by side, and latest.json, which names the one to read.

    OUTPUT/
      1.0.0/ manifest.json ...
      1.0.1/ manifest.json ...
      latest.json                {"version": "1.0.1", "path": "1.0.1", "fingerprint": ...}

latest.json is put last and in one step, so it always names a whole version. A version
folder without a manifest is one in the making, on its way out, or one whose run was
killed: then it holds a work folder, which is the last to go.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.schemas.job.job_spec import FIRST_VERSION, VERSION_PATTERN
from recordmill.schemas.text import json_bytes
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lock_files import LOCK_FOLDER
from recordmill.transforms.storage.store import WORK_FOLDER

LATEST_NAME = "latest.json"
_PARALLEL = 16  # versions looked at together


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """One version's folder.

    Attributes:
      version: like 1.0.0, which is the folder's name.
      is_whole: whether it holds a published dataset.
    """

    version: str
    is_whole: bool


def list_versions(store: Store) -> list[VersionFolder]:
    """The versions in a folder, oldest first, unfinished ones too.

    Raises:
      OutputError: the folder is itself a dataset, or is no folder.
    """
    if isinstance(store, LocalStore) and Path(store.root).is_file():
        raise OutputError(f"{store.uri}: is a file; expected a folder for the versions")
    level = store.list_level()
    if MANIFEST_NAME in level.files:
        raise OutputError(
            f"{store.uri}: is a dataset itself, so it cannot hold versions of one; "
            "choose another folder"
        )
    found = [name for name in level.folders if VERSION_PATTERN.fullmatch(name)]
    found.sort(key=_numbers)

    def look(version: str) -> VersionFolder:
        size = store.size(f"{version}/{MANIFEST_NAME}")
        return VersionFolder(version, size is not None)

    with ThreadPoolExecutor(_PARALLEL, "versions") as pool:
        return list(pool.map(look, found))


def next_version(version: str | None) -> str:
    """The patch version behind this one; the first if there is none.

    >>> next_version("1.0.9")
    '1.0.10'
    """
    if version is None:
        return FIRST_VERSION
    major, minor, patch = _numbers(version)
    return f"{major}.{minor}.{patch + 1}"


def read_latest(store: Store) -> str | None:
    """The version that latest.json names, or None if there is no such file.

    Raises:
      OutputError: the file is not what `move_latest` writes.
    """
    try:
        version = json.loads(store.read(LATEST_NAME))["version"]
    except MissingFileError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{store.uri_of(LATEST_NAME)}: names no version ({error}); remove it, and "
            "run the job again"
        ) from error
    return str(version)


def names_latest(store: Store, manifest: Manifest) -> bool:
    """Whether latest.json says just what it is to say of this version."""
    try:
        return store.read(LATEST_NAME) == _latest_of(manifest)
    except MissingFileError:
        return False


def move_latest(store: Store, manifest: Manifest) -> None:
    """Makes latest.json name this version, in one step; nothing if it does already."""
    if not names_latest(store, manifest):
        store.put_bytes(_latest_of(manifest), LATEST_NAME)


def _latest_of(manifest: Manifest) -> bytes:
    facts = {
        "version": manifest.version,
        "path": manifest.version,
        "fingerprint": manifest.fingerprint,
    }
    return json_bytes(facts)


def remove_version(store: Store, version: str) -> None:
    """Takes a version away: out of its readers' sight in one step, then for good.

    Killed amid it, the folder is that of a run that did not end (see `is_ours`): the
    manifest waits in the work folder, and that goes last.
    """
    manifest = f"{version}/{MANIFEST_NAME}"
    work = f"{version}/{WORK_FOLDER}"
    if store.size(manifest) is not None:
        store.move(manifest, f"{work}/{MANIFEST_NAME}")
    names = store.list(version)
    store.delete(name for name in names if not name.startswith(f"{work}/"))
    store.remove_tree(version)


def expired_versions(
    store: Store, versions: list[VersionFolder], keep: int
) -> list[str]:
    """All whole versions but the newest ones, and the one that latest.json names.

    Args:
      store: of the versions.
      versions: that are there, oldest first.
      keep: how many are the newest ones; 0 for all.
    """
    whole = [entry.version for entry in versions if entry.is_whole]
    old = whole[:-keep] if keep else []
    latest = read_latest(store) if old else None
    return [version for version in old if version != latest]


def orphan_files(store: Store) -> list[str]:
    """What killed runs left beside the versions, their locks too; cheap."""
    level = store.list_level()
    found = [*level.unfinished]
    if WORK_FOLDER in level.folders:
        locks = store.list_level(LOCK_FOLDER)
        work = store.list_level(WORK_FOLDER)
        for part in (locks, work):
            found += [*part.files, *part.unfinished]
    return found


def remove_orphans(store: Store) -> None:
    """Removes what killed runs left beside the versions; for the lease's holder."""
    kept = f"{LOCK_FOLDER}/"
    left = [name for name in orphan_files(store) if not name.startswith(kept)]
    hidden = store.list_level(LOCK_FOLDER).unfinished
    store.delete([*left, *hidden])


def is_ours(store: Store, version: str) -> bool:
    """Whether a folder without a manifest is that of a run: never somebody's files."""
    level = store.list_level(version)
    if f"{version}/{WORK_FOLDER}" in level.folders:
        return True
    return not level.files and not level.folders


def unfinished_runs(store: Store, version: str) -> list[str]:
    """The short fingerprints of the runs that were to publish in a folder."""
    work = f"{version}/{WORK_FOLDER}"
    lock = f"{version}/{LOCK_FOLDER}"
    folders = store.list_level(work).folders
    return [name.removeprefix(f"{work}/") for name in folders if name != lock]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
