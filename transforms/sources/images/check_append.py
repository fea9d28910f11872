"""Refuses new pictures that cannot be appended to those of a dataset."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.text import first_names
from recordmill.transforms.sources.images.decodability import (
    DECODABLE_ENDINGS,
    named_undecodable,
)
from recordmill.transforms.sources.images.folder_layout import FolderLayout, Place

_CONVERT_AGAIN = "or convert everything again without appending"


def require_appendable(
    new: Sequence[InputFile],
    places: Sequence[Place],
    classes: Sequence[str],
    *,
    only_decodable: bool,
) -> None:
    """Refuses new pictures that the dataset has no label or no decoder for.

    Args:
      new: the pictures.
      places: split and class of each.
      classes: those of the dataset.
      only_decodable: whether those that TFDS cannot decode are refused, by their names.

    Raises:
      InputError: names the first such picture.
    """
    known = {"", *classes}
    odd = set(named_undecodable(new)) if only_decodable else set()
    for file, place in zip(new, places, strict=True):
        if place.label not in known:
            raise InputError(
                f"{file.uri}: {place.label!r} is a new class; the dataset "
                f"has {first_names(classes)}, and its labels are positions "
                "in that list. Put the pictures into one of these folders, "
                f"{_CONVERT_AGAIN}"
            )
        if file.path in odd:
            raise InputError(
                f"{file.uri}: readers of the dataset can decode all its pictures "
                f"({' '.join(DECODABLE_ENDINGS)}), but not this one; save it in one of "
                f"these formats, {_CONVERT_AGAIN}"
            )


def require_same_places(
    pictures: Sequence[InputFile], before: FolderLayout, now: FolderLayout
) -> None:
    """Refuses new files because of which folders of the dataset mean something else.

    Args:
      pictures: those of the dataset.
      before: their layout without the new files.
      now: that of all files.

    Raises:
      InputError: names the first picture whose split or class would change.
    """
    paths = [file.path for file in pictures]
    places = zip(pictures, before.places(paths), now.places(paths), strict=True)
    for file, old, new in places:
        if old != new:
            raise InputError(
                f"{file.uri}: is {_told(old)} in the dataset, but beside the new files "
                f"it would be {_told(new)}. Put the new files into folders like those "
                f"that are there, {_CONVERT_AGAIN}"
            )


def _told(place: Place) -> str:
    split = f" of split {place.split!r}" if place.split else ""
    return f"in class {place.label!r}{split}"
