"""Tells split and class of a picture from its path: a pure function, once it is found.

What `find_layout` decides for the input folder `data`, and what follows:

    data/train/cat/tabby/1.jpg    split at index 0, class at index 1: train, cat
    data/cat/tabby/1.jpg          class at index 0: cat, in no split
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from recordmill.schemas.input_files import folder_title

NONE = -2  # no folder
ROOT = -1  # the input root itself, whose name is in no path
PARENT = -3  # the folder that holds the picture


class Place(NamedTuple):
    """Split and class of the pictures in one folder; "" for none."""

    split: str
    label: str


@dataclass(frozen=True, slots=True)
class GivenLayout:
    """Where split and class stand in the paths below one given folder.

    Attributes:
      folder: relative to the input root.
      split: index of the folder in a path, or NONE or ROOT.
      label: index of the class's folder in a path, or PARENT or ROOT.
    """

    folder: str
    split: int
    label: int


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """Which folders are splits and which are classes.

    Attributes:
      given: for each given folder below which pictures lie.
      root_name: name of the input root.
    """

    given: tuple[GivenLayout, ...] = ()
    root_name: str = ""

    def places(self, paths: Iterable[str]) -> list[Place]:
        """Returns split and class of each path."""
        by_folder = {each.folder: each for each in self.given}
        folders = [path.rpartition("/")[0] for path in paths]
        known = {folder: self._place(folder, by_folder) for folder in {*folders}}
        return [known[folder] for folder in folders]

    def place(self, path: str) -> Place:
        """Returns split and class of one path."""
        return self.places([path])[0]

    def describe(self, folders: Iterable[str]) -> str:
        """Returns what fixes the bytes of a dataset beside the paths themselves.

        Args:
          folders: that hold pictures.

        Returns:
          "" if all classes are the first folders below the input root, in no split.
        """
        by_folder = {each.folder: each for each in self.given}
        if all(
            self._place(folder, by_folder) == ("", folder.partition("/")[0])
            for folder in folders
        ):
            return ""
        levels = [(each.folder, each.split, each.label) for each in self.given]
        has_root = any(ROOT in level for level in levels)
        return f"{self.root_name if has_root else ''} {levels}"

    def _place(self, folder: str, given: Mapping[str, GivenLayout]) -> Place:
        layout = given.get(given_above(folder, given))
        if layout is None:
            return Place("", "")
        parts = folder.split("/") if folder else []
        split = "" if layout.split == NONE else self._name(parts, layout.split)
        label = layout.label
        if label == PARENT:
            label = len(parts) - 1
            if label == layout.split:  # in the folder of the split itself
                return Place(split, "")
        return Place(split, self._name(parts, label))

    def _name(self, parts: list[str], index: int) -> str:
        if index == ROOT:
            return self.root_name
        return folder_title(parts[index]) if index < len(parts) else ""


EMPTY = FolderLayout()


def given_above(folder: str, given: Mapping[str, object] | set[str]) -> str:
    """Returns the deepest given folder that holds a folder; "" if there is none.

    >>> given_above("a/b/c", {"", "a", "b"})
    'a'
    """
    while folder and folder not in given:
        folder = folder.rpartition("/")[0]
    return folder
