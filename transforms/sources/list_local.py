"""Lists the files below local folders and globs; follows links.

Pipes, sockets and devices are listed with a problem and never opened: who opens a pipe
waits until somebody writes to it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.found_files import FoundFile
from recordmill.transforms.sources.globs import (
    has_magic,
    literal_root,
    nothing_matches,
    search,
)
from recordmill.transforms.sources.walk_folders import (
    Note,
    is_folder,
    no_notes,
    walk_folders,
)
from recordmill.transforms.storage.errors import input_error
from recordmill.transforms.storage.file_status import file_status
from recordmill.transforms.storage.reading import local_path


def list_local(name: str, note: Note = no_notes) -> tuple[str, list[FoundFile]]:
    """Lists a local file, folder or glob.

    Args:
      name: a path or file:// url, as a person wrote it.
      note: is told of links that are passed over.

    Returns:
      The folder below which all files are, and the files, in any order.

    Raises:
      InputError: it cannot be listed, is not there, or is a folder without files.
    """
    try:
        root, files = _search(name, note)
        status = file_status(list(files))
        facts = zip(
            files.items(), status.sizes.tolist(), status.modified.tolist(), strict=True
        )
        return root, [
            FoundFile(path, size, str(modified), given or root, "", not given)
            if size >= 0
            else _odd_file(path, given or root)._replace(is_named=not given)
            for (path, given), size, modified in facts
        ]
    except (OSError, ValueError) as error:
        raise input_error(error, f"{name}: cannot be listed: {error}") from error


def has_files(folder: str) -> bool:
    """Tells whether a file that is not left out lies anywhere below a local folder."""
    return next(walk_folders([folder]), None) is not None


def _search(name: str, note: Note) -> tuple[str, dict[str, str]]:
    """Returns the root, and the folder that each file was found below; "" if it is named."""
    path = os.path.abspath(local_path(name))  # noqa: PTH100 (keeps links)
    parent = os.path.dirname(path)  # noqa: PTH120
    if os.path.isdir(path):  # noqa: PTH112
        files = dict(walk_folders([path], note))
        if not files:
            raise InputError(f"{name}: the folder holds no files")
        return path, files
    if os.path.exists(path):  # noqa: PTH110
        if kind := _special_kind(os.stat(path).st_mode):  # noqa: PTH116
            raise InputError(
                f"{name}: is {kind}, expected a file or a folder; write what it gives "
                "into a file first"
            )
        return parent, {path: ""}
    root = (literal_root(path) if has_magic(path) else parent) or "/"
    files = {}
    if has_magic(path):
        files = search(_LocalTree(note), root, path)
    elif os.path.islink(path):  # noqa: PTH114
        files = {path: ""}
    if not files:
        there = root
        while not os.path.isdir(there):  # noqa: PTH112
            there = os.path.dirname(there)  # noqa: PTH120
        raise InputError(nothing_matches(name, there, entries_of(there)))
    return root, files


@dataclass(frozen=True, slots=True)
class _LocalTree:
    """The local folders, for globs."""

    note: Note

    def entries(self, folder: str) -> Iterable[tuple[str, bool]]:
        return entries_of(folder)

    def below(
        self, folders: Sequence[str], *, hidden: bool
    ) -> Iterable[tuple[str, str]]:
        there = [folder for folder in folders if os.path.isdir(folder)]  # noqa: PTH112
        return walk_folders(there, self.note, hidden=hidden)


def entries_of(folder: str) -> list[tuple[str, bool]]:
    """Returns the names in a folder, and whether each is a folder; () if there is none."""
    try:
        with os.scandir(folder) as entries:
            return [(entry.name, is_folder(entry)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _special_kind(mode: int) -> str:
    """Returns what a mode that is not of a regular file is of, in words; else ""."""
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _odd_file(path: str, given: str) -> FoundFile:
    """Returns a file that `file_status` tells nothing of."""
    try:
        status = os.stat(path)  # noqa: PTH116 (says what is wrong)
    except OSError as error:
        link = Path(path)
        if not link.is_symlink():
            raise
        if error.errno == errno.ELOOP:
            problem = f"a link in a circle (by way of {link.readlink()})"
        else:
            problem = f"a link to nothing ({link.readlink()} is missing)"
        return FoundFile(path, 0, "", given, problem)
    if kind := _special_kind(status.st_mode):
        problem = f"{kind} (not a regular file: move it out of the input)"
        return FoundFile(path, 0, "", given, problem)
    return FoundFile(path, status.st_size, str(status.st_mtime_ns), given)
