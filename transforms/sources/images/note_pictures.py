"""Notes labels, splits and features of pictures, from tables, lists, names or folders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.images.asked_labels import AskedLabels
from recordmill.transforms.sources.images.finish_notes import (
    NotedPictures,
    finish_notes,
)
from recordmill.transforms.sources.images.folder_layout import Place
from recordmill.transforms.sources.images.label_cells import (
    label_cells,
    text_cells,
    told_types,
    typed_features,
)
from recordmill.transforms.sources.images.label_map import read_label_map
from recordmill.transforms.sources.images.label_tables import read_tables
from recordmill.transforms.sources.images.name_pattern import read_names
from recordmill.transforms.sources.images.named_inputs import NamedInputs
from recordmill.transforms.sources.images.note_tables import note_lists, note_tables
from recordmill.transforms.sources.images.noted import Gathered
from recordmill.transforms.sources.images.split_lists import read_list


def note_pictures(
    pictures: Sequence[InputFile],
    places: Sequence[Place],
    named: NamedInputs,
    asked: AskedLabels,
    reserved: frozenset[str],
    storage: StorageOptions,
) -> NotedPictures:
    """Notes what is said of each picture.

    Args:
      pictures: all of them; at least one.
      places: split and class of each by its folders.
      named: the files that options name.
      asked: what else the options say.
      reserved: names that features of tables cannot have.
      storage: options of the files' storage.

    Raises:
      InputError: what is said cannot be.
    """
    root = pictures[0].uri.removesuffix(pictures[0].path)
    found = Gathered(pictures, root)
    by_folder = np.array([place.split for place in places], np.object_)
    found.splits[:] = by_folder
    if asked.labels_by_folder:
        labels = pa.array([place.label for place in places], pa.string())
        found.labels = text_cells(labels)
        without = found.labels.is_null().to_numpy(zero_copy_only=False)
        found.reject(without, "is not in the folder of a class")
    if asked.pattern:
        _note_names(found, asked, reserved)
    if named.tables:
        note_tables(
            found,
            read_tables(named.tables, asked, storage),
            asked,
            reserved,
            splits_elsewhere=bool(named.lists) or bool(set(by_folder) - {""}),
        )
    if named.lists:
        found.splits[:] = ""
        lists = [read_list(split, file, storage) for split, file in named.lists]
        note_lists(found, lists)
    label_map = None
    if named.label_map is not None:
        label_map, checksums = read_label_map(named.label_map, storage)
        found.checksums += checksums
    return finish_notes(found, asked, label_map, named.label_map)


def _note_names(found: Gathered, asked: AskedLabels, reserved: frozenset[str]) -> None:
    groups, matches = read_names(asked.pattern, found.pictures)
    without = ~matches.to_numpy(zero_copy_only=False)
    found.leave_unlisted(without, "its name does not match the pattern of labels")
    if "label" in groups:
        found.labels = label_cells(groups.pop("label"), asked.separator)
        missing = found.labels.is_null().to_numpy(zero_copy_only=False)
        found.reject(
            missing & ~without, "the pattern of labels finds no label in its name"
        )
    if "split" in groups:
        splits = groups.pop("split").fill_null("").to_numpy(zero_copy_only=False)
        found.splits[:] = splits
        found.facts.append(("splits", "by `label_pattern`"))
    if taken := groups.keys() & reserved:
        raise InputError(
            f"`label_pattern`: the group {min(taken)!r} is named like a feature of the "
            "pictures: give it another name"
        )
    columns = dict(groups)
    if not asked.as_text:
        columns, facts, warnings = typed_features(columns)
        found.facts += facts
        found.warnings += warnings
    found.features |= columns
    found.facts.append(("names", f"by the pattern {asked.pattern}"))
    if columns:
        found.facts.append(("features", told_types(columns)))
