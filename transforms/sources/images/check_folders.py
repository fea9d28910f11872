"""Finds class folders without pictures: their labels would be missing in silence."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import count, first_names
from recordmill.transforms.sources.images.find_pictures import FoundPictures
from recordmill.transforms.sources.images.folder_layout import PARENT, FolderLayout
from recordmill.transforms.sources.list_local import has_files
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.storage.store import WORK_FOLDER

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
