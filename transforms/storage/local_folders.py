"""Makes local folders for the first file in them, and removes them with the last one.

In object stores there are no folders; so in a local one none is seen that holds nothing.
Another process may make or remove the same folders at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from recordmill.transforms.storage.atomic_files import make_folder, sync_folder


def make_folders(folder: Path) -> None:
    """Makes a folder and those above it, durably; they may be gone again at return.

    Raises:
      FileExistsError: there is something else than a folder.
      FileNotFoundError: another process removed a folder meanwhile; try again.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        make_folder(each)
        sync_folder(each.parent)


def remove_empty(folders: Iterable[Path], root: Path) -> None:
    """Removes folders that became empty, and makes all removals in them durable.

    Those above them that are empty then go, too, but not `root` and what is above it.
    """
    for folder in sorted(folders, reverse=True):
        _remove_empty(folder, root)


def _remove_empty(folder: Path, root: Path) -> None:
    with suppress(OSError):  # not empty
        while folder != root:
            with suppress(FileNotFoundError):  # already removed
                folder.rmdir()
            folder = folder.parent
    with suppress(FileNotFoundError, NotADirectoryError):
        sync_folder(folder)


def missing_folders(folder: Path) -> list[Path]:
    """Returns a folder and those above it that are not there, the lowest first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing


def nearest_folder(folder: Path) -> Path:
    """Returns a folder, or the next one above it that is there."""
    missing = missing_folders(folder)
    return missing[-1].parent if missing else folder
