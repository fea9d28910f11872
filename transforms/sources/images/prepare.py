"""Prepares an input: the images, what is known of each, and what may be appended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import PICTURES, Understood
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import first_names
from recordmill.transforms.sources.images.annotations import (
    NotedPictures,
    note_pictures,
)
from recordmill.transforms.sources.images.find import (
    AUTO,
    ENDINGS,
    AskedLabels,
    FoundPictures,
    find_named_inputs,
    find_pictures,
)
from recordmill.transforms.sources.images.find import NONE as NO_COLUMN
from recordmill.transforms.sources.images.layout import (
    NONE,
    ROOT,
    FolderLayout,
    Place,
    check_class_folders,
    count_folders,
    find_layout,
    root_name_of,
)
from recordmill.transforms.sources.images.rows import FEATURE, LABEL, PROBLEM, SPLIT
from recordmill.transforms.sources.images.summary import (
    DECODABLE_ENDINGS,
    DECODED,
    ENCODED,
    FACT,
    decodable_in,
    named_undecodable,
    require_classes,
    require_pictures,
    splits_of,
    told_endings,
    understand,
    warn_by_names,
    warn_passed_over,
)
from recordmill.transforms.sources.listing import input_root

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


def read_noted(
    files: Sequence[InputFile],
    asked: AskedLabels,
    reserved: frozenset[str],
    levels: tuple[str, str],
    storage: StorageOptions,
    *,
    keeps_undecodable: bool,
) -> NotedPictures:
    """Finds the pictures of an input, and what is said of each.

    Args:
      files: the inventory.
      asked: what options say.
      reserved: names that features of tables cannot have.
      levels: split_from and label_from, as the job has them.
      storage: options of the files' storage.
      keeps_undecodable: whether pictures that TFDS cannot decode are kept.

    Raises:
      InputError: what is said cannot be.
    """
    named = find_named_inputs(asked, files)
    found = find_pictures([f for f in files if f.path not in named.paths], storage)
    require_pictures(found)
    pictures = found.pictures
    layout, warnings = layout_of(pictures, asked, levels)
    places = layout.places(file.path for file in pictures)
    noted = note_pictures(pictures, places, named, asked, reserved, storage)
    odd = named_undecodable(pictures) if keeps_undecodable else []
    told = noted.told
    facts = (
        *told.facts,
        (PICTURES, told_endings(pictures)),
        (FACT, ENCODED if odd else DECODED),
    )
    more = (*warnings, *told.warnings, *warn_passed_over(found), *warn_by_names(odd))
    return replace(
        noted,
        told=Understood(facts, more, (*told.passed_over, *found.passed_over())),
        checksums=(*noted.checksums, *found.signatures),
    )


def layout_of(
    pictures: Sequence[InputFile], asked: AskedLabels, levels: tuple[str, str]
) -> tuple[FolderLayout, tuple[str, ...]]:
    """Returns which folders are splits and classes; only splits, if labels are apart."""
    split_from, label_from = levels
    if (
        asked.lists
        or "split" in asked.groups
        or asked.table_split_column not in (AUTO, NO_COLUMN)
    ):
        split_from = "none"
    if not asked.labels_by_folder:
        label_from = "0"
    layout, warnings = find_layout(
        count_folders(pictures),
        split_from=split_from,
        label_from=label_from,
        root_name=root_name_of(pictures),
    )
    return layout, warnings if asked.labels_by_folder else ()


def describe_noted(
    files: Sequence[InputFile], asked: AskedLabels, levels: tuple[str, str]
) -> str:
    """Returns what fixes bytes of such a dataset beside the paths and the files' content.

    Args:
      files: the inventory.
      asked: what options say.
      levels: split_from and label_from, as the job has them.
    """
    named = [file for file in files if file.path.lower().endswith(ENDINGS)] or files
    layout, _ = layout_of(named, asked, levels)
    if asked.labels_by_folder:
        return layout.describe({folder for _, folder in count_folders(named)})
    found = [(each.folder, each.split) for each in layout.given if each.split != NONE]
    if not found:
        return ""
    return f"{layout.root_name if any(s == ROOT for _, s in found) else ''} {found}"


def append_noted(
    before: NotedPictures,
    whole: NotedPictures,
    new: Sequence[InputFile],
    schema: Schema | None,
    *,
    only_decodable: bool,
) -> NotedPictures:
    """Returns the new pictures of an input, noted as beside those of a dataset.

    Args:
      before: the pictures of the dataset, by its own tables.
      whole: all pictures, by all tables.
      new: the files that are new.
      schema: of the dataset, if its types are kept.
      only_decodable: whether pictures that TFDS cannot decode are refused.

    Raises:
      InputError: the new files say something else of a picture of the dataset, or have
        a label that the dataset does not have.
    """
    paths = {file.path for file in new}
    is_new = np.array([file.path in paths for file in whole.listing], np.bool_)
    _require_same(before, whole, ~is_new)
    order = np.flatnonzero(is_new)
    listing = tuple(whole.listing[index] for index in order.tolist())
    notes = whole.notes.take(pa.array(order))
    if whole.types.has_labels:
        _require_known(listing, notes[LABEL].combine_chunks(), before.classes)
    if only_decodable and (odd := named_undecodable(listing)):
        root = listing[0].uri.removesuffix(listing[0].path)
        raise InputError(
            f"{root}{odd[0]}: readers of the dataset can decode all its pictures "
            f"({' '.join(DECODABLE_ENDINGS)}), but not this one; save it in one of these "
            "formats, or convert everything again without appending"
        )
    types = replace(whole.types, optional=before.types.optional)
    if schema is not None:
        notes = _without_gaps(notes, types.features, types.optional)
    return replace(
        whole, listing=listing, notes=notes, types=types, classes=before.classes
    )


def _require_same(
    before: NotedPictures, whole: NotedPictures, kept: np.ndarray
) -> None:
    """Checks that new files say nothing else of the pictures of a dataset."""
    now = {whole.listing[index].path: index for index in np.flatnonzero(kept).tolist()}
    count_before = sum(1 for file in before.listing if not file.problem)
    indices = [now.get(file.path) for file in before.listing[:count_before]]
    names = [
        name for name in (SPLIT, LABEL, PROBLEM) if name in before.notes.column_names
    ]
    for name, kind in before.types.features:
        if dict(whole.types.features).get(name) == kind:
            names.append(FEATURE + name)
    old = before.notes.slice(0, count_before).select(names).combine_chunks()
    if None not in indices:
        same = whole.notes.select(names).take(pa.array(indices, pa.int64()))
        if same.equals(old) or same.to_pylist() == old.to_pylist():
            if len(now) == count_before:
                return
    else:
        same = whole.notes.select(names).take(pa.array(indices, pa.int64()))
    for file, index, row, other in zip(
        before.listing, indices, old.to_pylist(), same.to_pylist(), strict=False
    ):
        if index is None or repr(row) != repr(other):
            raise InputError(
                f"{file.uri}: the new files say something else of it than those that the "
                "dataset was made from: name only new pictures in new tables and lists, "
                "or convert everything again without appending"
            )
    known = {file.path for file in before.listing}
    if others := [path for path in now if path not in known]:
        raise InputError(
            f"{others[0]}: was left out of the dataset, but the new files name it: convert "
            "everything again without appending"
        )


def _require_known(
    listing: Sequence[InputFile], labels: pa.Array, classes: Sequence[str]
) -> None:
    is_list = pa.types.is_list(labels.type)
    found = (labels.flatten() if is_list else labels).unique().drop_null()
    odd = found.filter(
        pc.invert(pc.is_in(found, value_set=pa.array(classes, pa.string())))
    )
    if len(odd):
        name = odd[0].as_py()
        rows = labels.to_pylist()
        first = next(
            file
            for file, row in zip(listing, rows, strict=True)
            if row == name or (is_list and row and name in row)
        )
        raise InputError(
            f"{first.uri}: {name!r} is a new class; the dataset has "
            f"{first_names(list(classes))}, and its labels are positions in that list. "
            "Give it one of these labels, or convert everything again without appending"
        )


def _without_gaps(
    notes: pa.Table,
    features: Sequence[tuple[str, pa.DataType]],
    optional: Sequence[str],
) -> pa.Table:
    """Makes rejects of pictures that lack what all pictures of a dataset have."""
    problems = notes[PROBLEM]
    for name, _ in features:
        if name in optional:
            continue
        lacks = pc.and_(pc.is_null(notes[FEATURE + name]), pc.equal(problems, ""))
        reason = f"column {name!r}: has no value, but all pictures of the dataset do"
        problems = pc.if_else(lacks, reason, problems)
    return notes.set_column(notes.column_names.index(PROBLEM), PROBLEM, problems)
