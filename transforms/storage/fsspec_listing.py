"""What fsspec's file systems list, in one form; they differ in much.

Some show a folder as an empty file of that name, some list a file as a folder that holds
itself, some end the names of folders with a slash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recordmill.transforms.storage.clouds import stored_checksum
from recordmill.transforms.storage.store import Level, is_temp_file


def list_files(system: Any, path: str, root: str) -> dict[str, int]:
    """Names and sizes of all files in a folder and those below, by name.

    Args:
      system: the file system.
      path: of the folder, as the file system has it.
      root: of the store; names are given from there on.
    """
    system.invalidate_cache()
    try:
        listing = system.find(path, detail=True)
    except FileNotFoundError:
        return {}
    if not isinstance(listing, dict):
        return {}  # adlfs, where the path is that of a file
    return _files(listing.values(), path, root)


def list_folder(system: Any, path: str, root: str) -> Level:
    """What lies directly in a folder; arguments as of `list_files`."""
    system.invalidate_cache()
    try:
        listing = system.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        listing = []
    files = _files(listing, path, root)
    whole = {name: size for name, size in files.items() if not is_temp_file(name)}
    checksums = {
        name: checksum
        for name, facts in _named(listing, path, root)
        if name in whole and (checksum := stored_checksum(facts)) is not None
    }
    return Level(
        whole,
        tuple(sorted(_folders(listing, path, root))),
        {name: size for name, size in files.items() if is_temp_file(name)},
        checksums,
    )


def _files(listing: Any, path: str, root: str) -> dict[str, int]:
    return {
        name: int(facts["size"])
        for name, facts in sorted(_named(listing, path, root), key=lambda pair: pair[0])
        if facts["type"] == "file" and not name.endswith("/")
    }


def _folders(listing: Any, path: str, root: str) -> set[str]:
    return {
        name.rstrip("/")
        for name, facts in _named(listing, path, root)
        if facts["type"] == "directory"
    }


def _named(
    listing: Any, path: str, root: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What lies below the folder, with its name from the root on."""
    above = path.rstrip("/") + "/"
    for facts in listing:
        name = facts["name"]
        if name.startswith(above) and name != above:
            yield name[len(root.rstrip("/")) + 1 :], facts
