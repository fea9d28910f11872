"""Finds the classes that labels are of, and their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import count
from recordmill.transforms.sources.images.label_cells import full_lists
from recordmill.transforms.sources.images.label_map import LabelMap, unknown_label
from recordmill.transforms.sources.images.noted import Gathered


class OrderedClasses(NamedTuple):
    """The labels of pictures by the names of their classes.

    Attributes:
      labels: of each picture; null for pictures that are left out.
      classes: the names in their order.
      left_out: which pictures have a label that the classes leave out.
      warnings: what looks odd.
    """

    labels: pa.Array
    classes: tuple[str, ...]
    left_out: npt.NDArray[np.bool_]
    warnings: list[str]


def order_classes(
    found: Gathered,
    valid: npt.NDArray[np.bool_],
    label_map: LabelMap | None,
    map_uri: str,
    *,
    of_objects: bool = False,
) -> OrderedClasses:
    """Returns the classes of labels.

    Args:
      found: the labels.
      valid: the pictures that are no rejects.
      label_map: what a file says of the classes, or None.
      map_uri: that file.
      of_objects: whether each label of a picture is of an object, beside other values.

    Raises:
      InputError: a label is of no class, or there is no label at all.
    """
    labels = found.labels
    assert labels is not None
    used = labels.filter(pa.array(valid))
    is_list = pa.types.is_list(labels.type)
    names = (used.flatten() if is_list else used).unique().drop_null().to_pylist()
    nothing = np.zeros(len(labels), np.bool_)
    if label_map is None:
        if not names and valid.any():
            raise InputError(f"{found.root}: no picture has a label")
        classes = sorted_classes(names)
        return OrderedClasses(labels, classes, nothing, _number_warnings(classes))
    for name in names:
        if name not in label_map.class_of:
            where = found.pictures[_first_with(labels, valid, name)].path
            raise InputError(unknown_label(name, label_map, map_uri, where))
    known = pa.array(list(label_map.class_of), pa.string())
    class_of = pa.array(
        [each or None for each in label_map.class_of.values()], pa.string()
    )
    warnings = []
    if label_map.renumbered:
        warnings.append(
            f"the numbers of {map_uri} do not count from 0 without gaps "
            f"({label_map.renumbered}): labels of the dataset do, in the same order"
        )
    if not is_list:
        mapped = class_of.take(pc.index_in(labels, value_set=known))
        left_out = (pc.is_null(mapped)).to_numpy(zero_copy_only=False) & valid
        return OrderedClasses(mapped, label_map.classes, left_out, warnings)
    left = class_of.take(pc.index_in(used.flatten(), value_set=known)).null_count
    if of_objects and left:
        raise InputError(
            f"{map_uri}: leaves out {count(left, 'label')}, but with `table_rows=object` "
            "each object needs one beside its other values: give these labels a class, "
            "or leave out their rows of the table"
        )
    mapped = class_of.take(pc.index_in(labels.flatten(), value_set=known))
    return OrderedClasses(
        full_lists(labels, mapped), label_map.classes, nothing, warnings
    )


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names in order; if all are whole numbers, by their values.

    >>> sorted_classes(["10", "9"]), sorted_classes(["b", "10"])
    (('9', '10'), ('10', 'b'))
    """
    found = set(names)
    if found and all(_is_number(name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))
    return tuple(sorted(found))


def _is_number(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdigit() and len(name) < 19


def _number_warnings(classes: Sequence[str]) -> list[str]:
    """Returns a warning if classes are numbers, but not those that labels get."""
    if not all(map(_is_number, classes)):
        return []
    for index, name in enumerate(classes):
        if int(name) != index:
            return [
                f"the classes are numbers that do not count from 0 without gaps: class "
                f"{name!r} gets the label {index}. Name them with `label_map`, or use "
                "`label_column=none` to keep numbers of a table as they are"
            ]
    return []


def _first_with(labels: pa.Array, valid: npt.NDArray[Any], name: str) -> int:
    rows: list[Any] = labels.to_pylist()
    return next(
        index
        for index, row in enumerate(rows)
        if valid[index] and (row == name or (isinstance(row, list) and name in row))
    )
