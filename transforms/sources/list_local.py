"""Lists the files below local folders and globs; follows links.

Pipes, sockets and devices are listed with a problem and never opened: who opens a pipe
waits until somebody writes to it.
"""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.found_files import FoundFile
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.storage.reading import local_path
from recordmill.transforms.storage.retry import input_error


def list_local(name: str) -> tuple[str, list[FoundFile]]:
    """Lists a local file, folder or glob.

    Args:
      name: a path or file:// url, as a person wrote it.

    Returns:
      The folder below which all files are, and the files, in any order; none if
      nothing is there.

    Raises:
      InputError: it cannot be listed, or is a folder without files.
    """
    try:
        root, files = _search(name)
        return root, [_found(path, given) for path, given in files.items()]
    except (OSError, ValueError) as error:
        raise input_error(error, f"{name}: cannot be listed: {error}") from error


def has_files(folder: str) -> bool:
    """Tells whether a file that is not left out lies anywhere below a local folder."""
    return next(_walk(folder), None) is not None


def _search(name: str) -> tuple[str, dict[str, str]]:
    """Returns the root, and the folder that each file was found below."""
    path = Path(os.path.abspath(local_path(name)))  # noqa: PTH100 (keeps links)
    root = path
    if path.is_dir():
        files = dict.fromkeys(_walk(str(path)), str(path))
        if not files:
            raise InputError(f"{name}: the folder holds no files")
        return str(root), files
    if path.exists():
        if kind := _special_kind(path.stat().st_mode):
            raise InputError(
                f"{name}: is {kind}, expected a file or a folder; write what it gives "
                "into a file first"
            )
        return str(path.parent), {str(path): str(path.parent)}
    while glob.has_magic(str(root)) or (root == path and root.parent != root):
        root = root.parent
    files = {}
    names_junk = is_left_out(str(path).removeprefix(str(root)))
    # A folder comes before what is in it, which may match, too.
    for match in sorted(glob.glob(str(path), recursive=True), key=len):  # noqa: PTH207
        if is_left_out(match.removeprefix(str(root))) and not names_junk:
            continue
        if Path(match).is_dir():
            folder = match.rstrip("/") or "/"
            for file in _walk(folder):
                files.setdefault(file, folder)
        else:
            files.setdefault(match, str(root))
    return str(root), files


def _walk(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields the files below a folder.

    Args:
      folder: to search.
      above: the real paths of the folders from which links led here.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_left_out(entry.name):
                continue
            if not _is_folder(entry):
                yield entry.path
            elif entry.is_symlink():
                parents = (*above, os.path.realpath(folder))
                target = os.path.realpath(entry.path).rstrip("/") + "/"
                # Not back to a folder that is being searched: that would never end.
                if not any(f"{real}/".startswith(target) for real in parents):
                    yield from _walk(entry.path, parents)
            else:
                yield from _walk(entry.path, above)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle
            return False
        raise


def _special_kind(mode: int) -> str:
    """Returns what a mode that is not of a regular file is of, in words; else ""."""
    if stat.S_ISREG(mode):
        return ""
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _found(path: str, given: str) -> FoundFile:
    try:
        status = os.stat(path)  # noqa: PTH116 (the hot call of a large listing)
    except OSError:
        link = Path(path)
        if not link.is_symlink():
            raise
        problem = f"a link to nothing ({link.readlink()} is missing)"
        return FoundFile(path, 0, "", given, problem)
    if kind := _special_kind(status.st_mode):
        problem = f"{kind} (not a regular file: move it out of the input)"
        return FoundFile(path, 0, "", given, problem)
    return FoundFile(path, status.st_size, str(status.st_mtime_ns), given)
