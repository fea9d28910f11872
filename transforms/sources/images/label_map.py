"""Reads a file of classes: their order, and which labels of the input are which class.

cat                      a name in each line: cat is 0, dog 1
id,name                  CSV: the order is that of the numbers
label,class              CSV: several labels may be one class; no class: left out
["cat", "dog"]           JSON, as the lines
{"cat": 0, "0": "cat"}   either: names to numbers, or numbers to names
{"tabby": "cat"}         labels to classes; null: left out
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import first_names
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.images.asked_labels import AskedLabels
from recordmill.transforms.sources.images.label_tables import read_tables
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

_TABLES = (".csv", ".tsv")
_FORMS = (
    "expected a name in each line, CSV with the columns id,name or label,class, or JSON: "
    "a list of names, names to numbers, numbers to names, or labels to classes"
)


@dataclass(frozen=True, slots=True)
class LabelMap:
    """The classes of a dataset.

    Attributes:
      classes: their names, in the order of their numbers.
      class_of: the class of each label of the input; "" for those that are left out.
      renumbered: the first class whose number is another one in the file, with it, or "".
    """

    classes: tuple[str, ...]
    class_of: Mapping[str, str]
    renumbered: str = ""


def read_label_map(
    file: InputFile, storage: StorageOptions
) -> tuple[LabelMap, tuple[FileChecksum, ...]]:
    """Reads a file of classes; returns them and the file's checksum.

    Raises:
      InputError: it says no classes, or contradicts itself.
    """
    if file.path.lower().endswith(_TABLES):
        (table,) = read_tables([("", file)], AskedLabels(), storage)
        if table.rejects:
            first = table.rejects[0]
            raise InputError(f"{file.uri}: byte {first.position}: {first.reason}")
        columns = {name.strip().casefold(): name for name in table.rows.column_names}
        for one, two in (("id", "name"), ("label", "class")):
            if {one, two} == columns.keys():
                pairs = [
                    (_text(key), _text(value))
                    for key, value in zip(
                        table.rows[columns[one]].to_pylist(),
                        table.rows[columns[two]].to_pylist(),
                        strict=True,
                    )
                ]
                make = _by_number if one == "id" else _by_label
                return make(pairs, file.uri), table.checksums
        found = ",".join(table.rows.column_names)
        raise InputError(f"{file.uri}: has the columns {found}; {_FORMS}")
    data = read_range(file.uri, 0, file.size, storage, file.seen)
    checksums = (FileChecksum(file.path, 0, len(data), crc32c(data)),)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.uri}: is not UTF-8 (byte {error.start}): save it as UTF-8"
        ) from None
    if file.path.lower().endswith(".json"):
        return _of_json(text, file.uri), checksums
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _in_order(lines, file.uri), checksums


def _of_json(text: str, uri: str) -> LabelMap:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{uri}: is not JSON: {error}; {_FORMS}") from None
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        return _in_order(found, uri)
    if isinstance(found, dict) and found:
        values = list(found.values())
        if all(type(value) is int for value in values):
            return _by_number(
                [(str(number), name) for name, number in found.items()], uri
            )
        if all(isinstance(value, str | None) for value in values):
            pairs = [(key, value or "") for key, value in found.items()]
            is_numbered = all(map(_is_number, found)) and not set(values) & found.keys()
            return (_by_number if is_numbered else _by_label)(pairs, uri)
    raise InputError(f"{uri}: {_FORMS}")


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


def _by_label(pairs: Iterable[tuple[str, str]], uri: str) -> LabelMap:
    """Returns the classes by (label, class); "" for a label that is left out."""
    class_of: dict[str, str] = {}
    for label, name in pairs:
        if not label or class_of.setdefault(label, name) != name:
            raise InputError(
                f"{uri}: label {shown(label)} is {shown(class_of.get(label, name))} and "
                f"{shown(name)}: expected one class for each label"
            )
    names = list(dict.fromkeys(name for name in class_of.values() if name))
    return LabelMap(_in_order(names, uri).classes, class_of)


def unknown_label(label: str, found: LabelMap, uri: str, where: str) -> str:
    """Describes a label that a file of classes does not name, and the way out.

    Args:
      label: of the input.
      found: what the file says.
      uri: of the file.
      where: the picture that has it.
    """
    return (
        f"{where}: its label {shown(label)} is not in {uri}, which has "
        f"{first_names(list(found.class_of))}: add it there, or leave it out with a line "
        "without a class (label,class in CSV, null in JSON)"
    )
