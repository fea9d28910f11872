"""Walks local folders; follows links to folders, but reads each folder once.

A folder is read under its own name, if it is below those that are walked; else under the
first link to it by name. A link back to a folder above it would never end.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from recordmill.transforms.storage.left_out import is_left_out

Note = Callable[[str], None]


def no_notes(note: str) -> None:
    """Takes no notes."""


def walk_folders(
    folders: Sequence[str], note: Note = no_notes, *, hidden: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields each file below some folders, and in which of them it is.

    Args:
      folders: to walk, as absolute paths.
      note: is told of links that are passed over.
      hidden: whether files are wanted that are left out elsewhere.
    """
    walk = _Walk(note, hidden)
    for folder in folders:
        # One that is a link comes after those that have the name; alone it is walked.
        if len(folders) > 1 and os.path.islink(folder):  # noqa: PTH114
            parent = os.path.realpath(os.path.dirname(folder))  # noqa: PTH120
            walk.links.append((folder, folder, (parent,)))
            continue
        for path in walk.files(folder, os.path.realpath(folder), folder, ()):
            yield path, folder
    while walk.links:
        walk.links.sort()
        path, folder, above = walk.links.pop(0)
        for file in walk.linked_files(path, folder, above):
            yield file, folder


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Tells whether an entry is a folder or a link to one."""
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle
            return False
        raise


@dataclass(slots=True)
class _Walk:
    """One walk.

    Attributes:
      note: is told of links that are passed over.
      hidden: whether files are wanted that are left out elsewhere.
      links: found, but not followed yet: path, folder of the walk, and the real paths of
        the folders from which links led there.
      read: real path -> path of each folder that was read.
    """

    note: Note
    hidden: bool
    links: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    read: dict[str, str] = field(default_factory=dict)

    def files(
        self, folder: str, real: str, top: str, above: tuple[str, ...]
    ) -> Iterator[str]:
        """Yields the files below a folder, but not those behind links to folders."""
        if real in self.read:
            return
        self.read[real] = folder
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_left_out(entry.name) and not self.hidden:
                    continue
                if not is_folder(entry):
                    yield entry.path
                elif entry.is_symlink():
                    self.links.append((entry.path, top, (*above, real)))
                else:
                    inside = f"{real.rstrip('/')}/{entry.name}"
                    yield from self.files(entry.path, inside, top, above)

    def linked_files(
        self, path: str, top: str, above: tuple[str, ...]
    ) -> Iterator[str]:
        """Yields the files below a folder that a link leads to."""
        real = os.path.realpath(path)
        start = real.rstrip("/") + "/"
        if any(f"{folder}/".startswith(start) for folder in above):
            self.note(f"{path}: a link back to {real}, a folder above it, not followed")
        elif real in self.read:
            self.note(
                f"{path}: a link to {real}, passed over: it is read as {self.read[real]}"
            )
        else:
            yield from self.files(path, real, top, above)
