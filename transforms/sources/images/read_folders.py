"""Reads an input of which folders alone say what its pictures are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.transforms.sources.images.check_append import (
    require_appendable,
    require_same_places,
)
from recordmill.transforms.sources.images.check_folders import check_class_folders
from recordmill.transforms.sources.images.decodability import (
    decodable_in,
    named_undecodable,
    warn_by_names,
)
from recordmill.transforms.sources.images.find_layout import (
    count_folders,
    find_layout,
    root_name_of,
)
from recordmill.transforms.sources.images.find_pictures import FoundPictures
from recordmill.transforms.sources.images.folder_layout import FolderLayout
from recordmill.transforms.sources.images.understand import (
    require_classes,
    require_pictures,
    splits_of,
    understand,
)
from recordmill.transforms.sources.listing import input_root


@dataclass(frozen=True, slots=True)
class FolderPictures:
    """The pictures of an input, and what their folders say of them.

    Attributes:
      listing: the pictures.
      root: what every uri begins with, before the path.
      layout: which folders are splits and which are classes.
      classes: their sorted names.
      splits: those that the folders are, if every picture is in one.
      decodable: whether TFDS decodes all pictures, by their names.
      told: what the input was taken for.
      checksums: of the first bytes of files with other endings.
    """

    listing: tuple[InputFile, ...]
    root: str
    layout: FolderLayout
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    decodable: bool
    told: Understood
    checksums: tuple[FileChecksum, ...]


def read_folders(
    found: FoundPictures, levels: tuple[str, str], *, keeps_undecodable: bool
) -> FolderPictures:
    """Finds out what the folders of pictures say.

    Args:
      found: the pictures and the other files.
      levels: split_from and label_from, as the job has them.
      keeps_undecodable: whether pictures that TFDS cannot decode are kept.

    Raises:
      InputError: there are no pictures, or their folders can be no classes or splits.
    """
    split_from, label_from = levels
    pictures = found.pictures
    require_pictures(found)
    root = input_root(pictures)
    layout, warnings = find_layout(
        count_folders(pictures),
        split_from=split_from,
        label_from=label_from,
        root_name=root_name_of(pictures),
    )
    places = layout.places(file.path for file in pictures)
    odd = named_undecodable(pictures) if keeps_undecodable else []
    require_classes(pictures[0], layout, places, label_from)
    warnings += check_class_folders(root, layout, found)
    warnings += tuple(warn_by_names(odd))
    return FolderPictures(
        listing=pictures,
        root=root,
        layout=layout,
        classes=tuple(sorted({place.label for place in places} - {""})),
        splits=splits_of(places),
        decodable=not odd,
        told=understand(found, places, warnings, decodable=not odd),
        checksums=found.signatures,
    )


def append_folders(
    old: FoundPictures,
    more: FoundPictures,
    schema: Schema | None,
    levels: tuple[str, str],
    *,
    keeps_undecodable: bool,
) -> FolderPictures:
    """Returns the new pictures of an input, placed as beside those of a dataset.

    Args:
      old: what the dataset was made from.
      more: what is new.
      schema: of the dataset; None if the job declares it.
      levels: split_from and label_from, as the job has them.
      keeps_undecodable: whether pictures that TFDS cannot decode are kept.

    Raises:
      InputError: the new pictures cannot be of one dataset with the others.
    """
    before = read_folders(old, levels, keeps_undecodable=keeps_undecodable)
    whole = read_folders(old + more, levels, keeps_undecodable=keeps_undecodable)
    require_same_places(old.pictures, before.layout, whole.layout)
    is_decodable = schema is not None and decodable_in(schema)
    places = whole.layout.places(file.path for file in more.pictures)
    require_appendable(
        more.pictures,
        places,
        before.classes,
        only_decodable=is_decodable and keeps_undecodable,
    )
    decodable = whole.decodable if schema is None else is_decodable
    told = understand(more, places, whole.told.warnings, decodable=decodable)
    return replace(whole, listing=more.pictures, decodable=decodable, told=told)
