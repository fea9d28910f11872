"""Finds the classes of labels and their order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import first_names
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.images.options import DEFAULTS
from recordmill.transforms.sources.images.tables import (
    full_lists,
    read_tables,
)
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

_TABLES = (".csv", ".tsv")
_FORMS = "expected a name in each line, or CSV with the columns id,name"


@dataclass(frozen=True, slots=True)
class LabelMap:
    """Classes in the order of their numbers, and the class of each label of the input.

    A label is the name of a class, or its number in the file. `renumbered` is the first class
    whose number is another one in the file, with it, or "".
    """

    classes: tuple[str, ...]
    class_of: Mapping[str, str]
    renumbered: str = ""


def read_label_map(
    file: InputFile, storage: StorageOptions
) -> tuple[LabelMap, tuple[FileChecksum, ...]]:
    """Reads a file of classes; returns them and the file's checksum."""
    if file.path.lower().endswith(_TABLES):
        (table,) = read_tables([("", file)], DEFAULTS, None, storage)
        if table.rejects:
            first = table.rejects[0]
            raise InputError(f"{file.uri}: byte {first.position}: {first.reason}")
        columns = {name.strip().casefold(): name for name in table.rows.column_names}
        if columns.keys() == {"id", "name"}:
            numbers, names = (
                [_text(cell) for cell in table.rows[columns[name]].to_pylist()]
                for name in ("id", "name")
            )
            pairs = zip(numbers, names, strict=True)
            return _by_number(pairs, file.uri), table.checksums
        found = ",".join(table.rows.column_names)
        raise InputError(f"{file.uri}: has the columns {found}; {_FORMS}")
    if file.path.lower().endswith(".json"):
        raise InputError(f"{file.uri}: is JSON; {_FORMS}")
    data = read_range(file.uri, 0, file.size, storage, file.seen)
    checksums = (FileChecksum(file.path, 0, len(data), crc32c(data)),)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.uri}: is not UTF-8 (byte {error.start}): save it as UTF-8"
        ) from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _in_order(lines, file.uri), checksums


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _in_order(names: Sequence[str], uri: str) -> LabelMap:
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{uri}: names class {shown(min(twice))} twice: remove one")
    if not names or "" in names:
        raise InputError(f"{uri}: names no class; {_FORMS}")
    return LabelMap(tuple(names), {name: name for name in names})


def _by_number(pairs: Iterable[tuple[str, str]], uri: str) -> LabelMap:
    """Returns the classes by (number, name): a label is either of both."""
    numbers: dict[int, str] = {}
    for text, name in pairs:
        if not _is_number(text) or not name or int(text) in numbers:
            raise InputError(
                f"{uri}: class {shown(name)} has the number {shown(text)}; expected a "
                "name and another whole number from 0 for each class"
            )
        numbers[int(text)] = name
    names = [numbers[number] for number in sorted(numbers)]
    made = _in_order(names, uri)
    class_of = {str(number): name for number, name in numbers.items()}
    class_of |= made.class_of
    moved = [(i, n) for i, n in enumerate(sorted(numbers)) if i != n]
    renumbered = ""
    if moved:
        index, number = moved[0]
        renumbered = f"class {names[index]!r} has the number {number}"
    return LabelMap(made.classes, class_of, renumbered)


def _unknown_label(label: str, found: LabelMap, uri: str, where: str) -> str:
    """Describes a label that a file of classes does not name, and the way out."""
    return (
        f"{where}: its label {shown(label)} is not in {uri}, which has "
        f"{first_names(list(found.class_of))}: add it there"
    )


def number_classes(
    labels: pa.Array,
    valid: npt.NDArray[np.bool_],
    label_map: LabelMap | None,
    paths: Sequence[str],
    uri: str,
) -> tuple[pa.Array, tuple[str, ...], list[str]]:
    """Finds the classes of labels, in their order.

    Returns the labels of the images by the names of their classes, these names, and warnings;
    refuses valid images whose label is in no class of the label map, and an input without
    any label.
    """
    used = labels.filter(pa.array(valid))
    is_list = pa.types.is_list(labels.type)
    names = (used.flatten() if is_list else used).unique().drop_null().to_pylist()
    if label_map is None:
        if not names and valid.any():
            raise InputError(f"{uri}: no image has a label")
        classes = sorted_classes(names)
        return labels, classes, _number_warnings(classes)
    for name in names:
        if name not in label_map.class_of:
            where = paths[_first_with(labels, valid, name)]
            raise InputError(_unknown_label(name, label_map, uri, where))
    known = pa.array(list(label_map.class_of), pa.string())
    class_of = pa.array(list(label_map.class_of.values()), pa.string())
    warnings = []
    if label_map.renumbered:
        warnings.append(
            f"the numbers of {uri} do not count from 0 without gaps "
            f"({label_map.renumbered}): labels of the dataset do, in the same order"
        )
    values = labels.flatten() if is_list else labels
    mapped = class_of.take(pc.index_in(values, value_set=known))
    if is_list:
        mapped = full_lists(labels, mapped)
    return mapped, label_map.classes, warnings


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names in order; if all are whole numbers, by their values.

    >>> sorted_classes(["10", "9"]), sorted_classes(["b", "10"])
    (('9', '10'), ('10', 'b'))
    """
    found = set(names)
    if found and all(_is_whole_number(name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))
    return tuple(sorted(found))


def _is_whole_number(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdigit() and len(name) < 19


def _number_warnings(classes: Sequence[str]) -> list[str]:
    """Returns a warning if classes are numbers, but not those that labels get."""
    if not all(map(_is_whole_number, classes)):
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
