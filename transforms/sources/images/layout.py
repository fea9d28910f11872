"""Tells split and class of a picture from its path: a pure function, once it is found.

What `find_layout` decides for the input folder `data`, and what follows:

    data/train/cat/tabby/1.jpg    split at index 0, class at index 1: train, cat
    data/cat/tabby/1.jpg          class at index 0: cat, in no split
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile, folder_title
from recordmill.schemas.text import count, first_names
from recordmill.transforms.sources.images.find import ENDINGS, FoundPictures
from recordmill.transforms.sources.listing import has_files, input_root, is_split_name
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.storage.store import WORK_FOLDER

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


# Folders are counted from each given input: 1 is a folder in it, 0 the input itself, -1
# the folder above it.
#
#     input data: data/train/cat/1.jpg              split 1, class 2
#     input data: data/cat/1.jpg                    class 1
#     inputs data/cat and data/dog, with pictures   class 0
#     inputs data/train and data/test, with cat/    split 0, class 1


@dataclass(slots=True)
class _Given:
    """A given folder and what is below it.

    Attributes:
      folder: relative to the input root.
      below: the folders with pictures, as parts below the given one; [] is itself.
      is_class: whether it is the folder of a class.
      split: the level of the splits, or None.
    """

    folder: str
    below: list[list[str]] = field(default_factory=list)
    is_class: bool = False
    split: int | None = None

    @property
    def parts(self) -> list[str]:
        return self.folder.split("/") if self.folder else []

    @property
    def name(self) -> str:
        return folder_title(self.parts[-1])

    @property
    def has_pictures(self) -> bool:
        return any(not parts for parts in self.below)

    @property
    def first_folders(self) -> set[str]:
        return {parts[0] for parts in self.below if parts}

    @property
    def depth(self) -> int:
        return max(map(len, self.below))

    @property
    def label(self) -> int:
        """Returns the level of the classes, unless the job gives it."""
        if self.split is not None and self.split >= 0:
            return self.split + 1
        return 0 if self.is_class else 1

    def layout(self, label_from: str) -> GivenLayout:
        if label_from == "parent":
            label = PARENT
        else:
            label = self._index(self.label if label_from == "auto" else int(label_from))
        split = NONE if self.split is None else self._index(self.split)
        return GivenLayout(self.folder, split, label)

    def _index(self, level: int) -> int:
        """Returns the index of a level's folder in a path below the input root."""
        return max(len(self.parts) + level - 1, ROOT)


def find_layout(
    folders: Mapping[tuple[str, str], int],
    *,
    split_from: str = "auto",
    label_from: str = "auto",
    root_name: str = "",
) -> tuple[FolderLayout, tuple[str, ...]]:
    """Finds the layout of an input, and what looks wrong with it.

    Args:
      folders: (given folder, folder with pictures) -> number of pictures; both
        relative to the input root.
      split_from: level of the splits, "none", or "auto".
      label_from: level of the classes, "parent", or "auto".
      root_name: name of the input root.

    Returns:
      The layout, and warnings with the way out.
    """
    every = _given_folders(folders)
    warnings: list[str] = []
    if split_from == "auto":
        warnings += _find_splits(every, label_from)
    elif split_from != "none":
        for given in every:
            given.split = int(split_from)
    layout = FolderLayout(tuple(each.layout(label_from) for each in every), root_name)
    if label_from == "auto":
        warnings += _lonely_class(layout, folders, every)
    return layout, (*warnings, *_without_class(layout, folders))


def describe_folders(
    files: Sequence[InputFile], *, split_from: str, label_from: str
) -> str:
    """Returns what `FolderLayout.describe` says of the files named as pictures.

    Args:
      files: the inventory.
      split_from: as for `find_layout`.
      label_from: as for `find_layout`.
    """
    named = [file for file in files if file.path.lower().endswith(ENDINGS)] or files
    folders = count_folders(named)
    layout, _ = find_layout(
        folders,
        split_from=split_from,
        label_from=label_from,
        root_name=root_name_of(files),
    )
    return layout.describe(folder for _, folder in folders)


def count_folders(files: Iterable[InputFile]) -> Counter[tuple[str, str]]:
    """Returns how many files lie in each (given folder, folder)."""
    return Counter([(file.given, file.path.rpartition("/")[0]) for file in files])


def root_name_of(files: Sequence[InputFile]) -> str:
    """Returns the name of the input root."""
    return input_root(files).rstrip("/").rpartition("/")[2]


def _given_folders(folders: Iterable[tuple[str, str]]) -> list[_Given]:
    named = {given for given, _ in folders}
    found: dict[str, _Given] = {}
    for _, folder in sorted(folders):
        above = given_above(folder, named)
        below = folder.removeprefix(above).strip("/")
        given = found.setdefault(above, _Given(above))
        given.below.append(below.split("/") if below else [])
    every = list(found.values())
    # Inputs that all hold pictures are classes, whatever else lies in them.
    all_hold = len(every) > 1 and all(given.has_pictures for given in every)
    for given in every:
        given.is_class = all_hold or not given.first_folders
    return every


def _find_splits(every: Iterable[_Given], label_from: str) -> list[str]:
    """Sets the level of splits where folders are named like some; returns warnings."""
    warnings = []
    nested = [given for given in every if not given.is_class]
    for given in nested:
        likely = sorted(filter(is_split_name, given.first_folders))
        others = sorted(given.first_folders - set(likely))
        if not likely or label_from == "1":
            continue
        if others:
            warnings.append(
                f"classes named like splits: {_quoted(likely)}, beside "
                f"{_quoted(others)}. If all these folders are splits, use "
                "`split_from=1`; if all are classes, `split_from=none`"
            )
        elif given.depth > 1 or label_from == "0":
            given.split = 1
        else:
            warnings.append(_flat_warning(likely))
    names = {given.name for given in nested if given.parts}
    if (
        1 < len(nested) == len(names)
        and all(given.split is None for given in nested)
        and all(map(is_split_name, names))
    ):
        for given in nested:
            given.split = 0
    classes = [given for given in every if given.is_class]
    above = {given.parts[-2] if given.parts[1:] else "" for given in classes}
    if above and all(map(is_split_name, above)):
        for given in classes:
            given.split = -1
    elif label_from == "auto":
        own_names = [given.name for given in classes if given.parts]
        if likely := sorted(filter(is_split_name, own_names)):
            warnings.append(_flat_warning(likely))
    return warnings


def _flat_warning(likely: Sequence[str]) -> str:
    return (
        f"classes named like splits: {_quoted(likely)}. If they are splits, put their "
        "pictures into class folders; or give the folder above them as the only input "
        "with `split_from=1` and `label_from=0`, which makes one class of all pictures. "
        "If they are classes, use `split_from=none`"
    )


def _lonely_class(
    layout: FolderLayout, folders: Iterable[tuple[str, str]], every: Iterable[_Given]
) -> list[str]:
    """Returns a warning if there is only one class."""
    places = layout.places(f"{folder}/" for _, folder in folders)
    labels = {place.label for place in places} - {""}
    if len(labels) != 1:
        return []
    levels = {given.label for given in every if given.depth > given.label}
    way_out = (
        f"if the folders in it are the classes, use `label_from={min(levels) + 1}`"
        if levels
        else "if there are more, give the folder that holds all class folders"
    )
    return [f"there is only one class, {labels.pop()!r}; {way_out}"]


def _without_class(
    layout: FolderLayout, folders: Mapping[tuple[str, str], int]
) -> list[str]:
    """Returns a warning of pictures that have no class."""
    places = layout.places(f"{folder}/" for _, folder in folders)
    without = {
        folder: number
        for place, ((_, folder), number) in zip(places, folders.items(), strict=True)
        if not place.label
    }
    if not without:
        return []
    where = [repr(folder) if folder else "the input folder" for folder in without]
    return [
        f"{count(sum(without.values()), 'picture')} directly in "
        f"{first_names(sorted(where))} will be rejected, because no folder names the "
        "class: move or leave out these files, or use `label_from`"
    ]


def _quoted(names: Iterable[str]) -> str:
    return first_names([repr(name) for name in names])


_WAY_OUT = (
    "put pictures into it; if it is not a class, move it out of the input, or give the "
    "folders of the classes as inputs, one by one"
)


def check_class_folders(
    root: str, layout: FolderLayout, found: FoundPictures
) -> tuple[str, ...]:
    """Checks that pictures are in each class folder.

    Args:
      root: what every uri begins with, before the path.
      layout: of the pictures.
      found: the pictures and the other files.

    Returns:
      Warnings of folders without pictures whose class has pictures elsewhere.

    Raises:
      InputError: a class has no picture at all.
    """
    places = set(layout.places(file.path for file in found.pictures))
    labels = {place.label for place in places}
    splits = {place.split for place in places}
    others: dict[str, list[str]] = defaultdict(list)
    if all(each.label != PARENT for each in layout.given):
        paths = [file.path for file, _ in found.others]
        for path, place in zip(paths, layout.places(paths), strict=True):
            if place.label and place.label not in labels and place.split in splits:
                others[place.label].append(path)
    for paths in _given_without_pictures(found):
        others[paths[0]] = paths
    for paths in others.values():
        endings = sorted({PurePosixPath(path).suffix or "none" for path in paths})
        raise InputError(
            f"{root}{os.path.dirname(paths[0])}: is the folder of a class, but holds no "  # noqa: PTH120
            f"picture, only {count(len(paths), 'other file')} (endings: "
            f"{first_names(endings)}): {_WAY_OUT}"
        )
    if not is_local(root):
        return ()
    warnings = []
    for folder in _empty_folders(root, layout, found):
        place = layout.place(f"{folder}/")
        if place.label and place.label not in labels:
            raise InputError(
                f"{root}{folder}: is the folder of a class, but is empty: {_WAY_OUT}"
            )
        warnings.append(f"{root}{folder}: is an empty folder")
    return tuple(warnings)


def _given_without_pictures(found: FoundPictures) -> list[list[str]]:
    """Returns the files of each given folder that holds no picture, not even below."""
    given: dict[str, list[str]] = defaultdict(list)
    for file, _ in found.others:
        given[file.given].append(file.path)
    for file in found.pictures:
        given.pop(file.given, None)
    return [
        paths
        for folder, paths in given.items()
        if not any(_is_below(file.path, folder) for file in found.pictures)
    ]


def _is_below(path: str, folder: str) -> bool:
    return not folder or path.startswith(f"{folder}/")


def _empty_folders(
    root: str, layout: FolderLayout, found: FoundPictures
) -> Iterator[str]:
    """Yields empty local folders beside those of the splits and of the classes."""
    folders = {file.path.rpartition("/")[0] for file in found.pictures}
    known = folders | {file.path.rpartition("/")[0] for file, _ in found.others}
    for each in layout.given:
        start = each.folder.count("/") + 1 if each.folder else 0
        for index in sorted({each.split, each.label}):
            if index < start:
                continue  # the given folder itself, or one above it
            below = {
                tuple(folder.split("/")[: index + 1])
                for folder in known
                if _is_below(f"{folder}/", each.folder)
            }
            parents = {parts[:index] for parts in below if len(parts) > index}
            for parent in sorted(parents):
                for name in _folders_in(root, "/".join(parent)):
                    if (*parent, name) not in below:
                        yield "/".join((*parent, name))


def _folders_in(root: str, parent: str) -> Iterable[str]:
    path = local_path(f"{root}{parent}")
    if not path.is_dir():  # an archive
        return ()
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not is_left_out(entry.name)
            and entry.is_dir(follow_symlinks=False)
            and not Path(entry.path, WORK_FOLDER).exists()  # an output folder
            and not has_files(entry.path)
        )
