"""Versions of a dataset side by side, and latest.json, which names the one to read.

    OUTPUT/
      1.0.0/ manifest.json ...
      1.0.1/ manifest.json ...
      latest.json                {"version": "1.0.1", "path": "1.0.1", "fingerprint": ...}

latest.json is moved last and in one step, so it always names a whole version. A version
folder without a manifest is one in the making, or one whose run was killed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from schemas.errors import OutputError
from schemas.job import FIRST_VERSION, VERSION_PATTERN
from schemas.manifest import MANIFEST_NAME, Manifest, json_bytes
from transforms.stores.base import WORK_FOLDER
from transforms.write import sync_folder, write_whole

LATEST_NAME = "latest.json"
_TRASH = ".removed-"  # a version on its way out; no reader looks for it


@dataclass(frozen=True, slots=True)
class VersionFolder:
    """One version's folder.

    Attributes:
      version: like 1.0.0, which is the folder's name.
      folder: where it lies.
      is_whole: whether it holds a published dataset.
    """

    version: str
    folder: Path
    is_whole: bool


def list_versions(output: str) -> list[VersionFolder]:
    """The versions in a folder, oldest first, unfinished ones too.

    Raises:
      OutputError: the folder is itself a dataset, or is no folder.
    """
    root = Path(output)
    if not root.exists():
        return []
    if not root.is_dir():
        raise OutputError(f"{output}: is a file; expected a folder for the versions")
    if (root / MANIFEST_NAME).exists():
        raise OutputError(
            f"{output}: is a dataset itself, so it cannot hold versions of one; choose "
            "another folder"
        )
    found = [
        VersionFolder(entry.name, entry, (entry / MANIFEST_NAME).is_file())
        for entry in root.iterdir()
        if VERSION_PATTERN.fullmatch(entry.name) and entry.is_dir()
    ]
    return sorted(found, key=lambda entry: _numbers(entry.version))


def next_version(version: str | None) -> str:
    """The patch version behind this one; the first if there is none.

    >>> next_version("1.0.9")
    '1.0.10'
    """
    if version is None:
        return FIRST_VERSION
    major, minor, patch = _numbers(version)
    return f"{major}.{minor}.{patch + 1}"


def read_latest(output: str) -> str | None:
    """The version that latest.json names, or None if there is no such file.

    Raises:
      OutputError: the file is not what `move_latest` writes.
    """
    path = Path(output, LATEST_NAME)
    try:
        version = json.loads(path.read_bytes())["version"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise OutputError(
            f"{path}: names no version ({error}); remove it, and run the job again"
        ) from error
    return str(version)


def move_latest(output: str, manifest: Manifest) -> None:
    """Makes latest.json name this version, in one step; nothing if it does already."""
    facts = {
        "version": manifest.version,
        "path": manifest.version,
        "fingerprint": manifest.fingerprint,
    }
    path, data = Path(output, LATEST_NAME), json_bytes(facts)
    if path.is_file() and path.read_bytes() == data:
        return
    write_whole(path, data, durable=True)
    sync_folder(path.parent)


def remove_version(folder: Path) -> None:
    """Takes a version away: out of sight in one step, then for good."""
    gone = folder.with_name(f"{_TRASH}{folder.name}-{uuid4().hex}")
    folder.replace(gone)
    sync_folder(folder.parent)
    shutil.rmtree(gone, ignore_errors=True)


def sweep(output: str) -> None:
    """Removes what killed runs left: versions on their way out, a half latest.json."""
    for gone in Path(output).glob(f"{_TRASH}*"):
        shutil.rmtree(gone, ignore_errors=True)
    for half in Path(output).glob(f".{LATEST_NAME}.*"):
        half.unlink(missing_ok=True)


def is_ours(folder: Path) -> bool:
    """Whether a folder without a manifest is that of a run: never somebody's files."""
    names = [entry.name for entry in folder.iterdir()]
    return not names or WORK_FOLDER in names


def unfinished_runs(folder: Path) -> list[str]:
    """The short fingerprints of the runs that were to publish in a folder."""
    runs = folder / WORK_FOLDER
    return sorted(run.name for run in runs.iterdir()) if runs.is_dir() else []


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
