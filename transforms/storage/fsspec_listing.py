"""Lists folders of fsspec's file systems in one form.

The file systems differ: some show a folder as an empty file of that name, some list a
file as a folder that holds itself, some end the names of folders with a slash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.transforms.storage.clouds import stored_checksum
from recordmill.transforms.storage.s3_requests import list_objects, speaks_s3
from recordmill.transforms.storage.store import Level, is_temp_file


def list_files(system: Any, path: str, root: str) -> dict[str, int]:
    """Returns names and sizes of all files in a folder and its subfolders, by name.

    Args:
      system: the file system.
      path: of the folder, as the file system spells it.
      root: of the store; the returned names are relative to it.
    """
    system.invalidate_cache()
    try:
        if speaks_s3(system):
            return _files(list_objects(system, path, deep=True), path, root)
        listing = system.find(path, detail=True)
    except FileNotFoundError:
        return {}
    if not isinstance(listing, dict):
        return {}  # adlfs, if the path is that of a file
    return _files(listing.values(), path, root)


def list_folder(system: Any, path: str, root: str) -> Level:
    """Returns what lies directly in a folder; arguments as in `list_files`."""
    system.invalidate_cache()
    try:
        if speaks_s3(system):
            listing = list(list_objects(system, path, deep=False))
        else:
            listing = system.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        listing = []
    files = _files(listing, path, root)
    finished = {name: size for name, size in files.items() if not is_temp_file(name)}
    checksums = {
        name: checksum
        for name, info in _entries_below(listing, path, root)
        if name in finished and (checksum := stored_checksum(info)) is not None
    }
    return Level(
        finished,
        tuple(sorted(_folders(listing, path, root))),
        {name: size for name, size in files.items() if is_temp_file(name)},
        checksums,
    )


def _files(listing: Any, path: str, root: str) -> dict[str, int]:
    return {
        name: int(info["size"])
        for name, info in sorted(
            _entries_below(listing, path, root), key=lambda pair: pair[0]
        )
        if info["type"] == "file" and not name.endswith("/")
    }


def _folders(listing: Any, path: str, root: str) -> set[str]:
    return {
        name.rstrip("/")
        for name, info in _entries_below(listing, path, root)
        if info["type"] == "directory"
    }


def _entries_below(
    listing: Any, path: str, root: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields (name relative to the root, info) of each entry below the folder."""
    above = path.rstrip("/") + "/"
    for info in listing:
        name = info["name"]
        if name.startswith(above) and name != above:
            yield name[len(root.rstrip("/")) + 1 :], info
