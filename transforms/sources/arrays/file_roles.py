"""Tells from the names of files and arrays what they hold: a split, a column.

    train-images-idx3-ubyte.gz    images, train
    x_test.npy                    x, test
    labels_0.npy, labels_1.npy    labels, one after the other

Arrays of the same folder and split stand side by side, as columns. If one of them is
there several times, those with the same number in their names do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Generic, NamedTuple, TypeVar

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import count
from recordmill.transforms.sources.arrays.row_arrays import Part, RowArray

_SPLITS = frozenset(
    {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
)
_SAME_SPLIT = {"t10k": "test"}  # as MNIST calls its ten thousand
_SINGULAR = {"images": "image", "labels": "label"}
_LEFT_OUT = re.compile(r"idx\d?|ubyte|gz|npy|npz", re.IGNORECASE)

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Role:
    """What a name tells.

    Attributes:
      column: the name without the rest; "value" if nothing is left.
      split: or "".
      number: digits in it, or "".
    """

    column: str
    split: str
    number: str


def role_of(name: str) -> Role:
    """Returns what the name of a file or an array tells.

    >>> role_of("x_train_2.npy")
    Role(column='x', split='train', number='2')
    """
    words = [w for w in re.split(r"[^\w]+|_", name) if w and not _LEFT_OUT.fullmatch(w)]
    splits = [_split(word) for word in words if _split(word)]
    split = splits[0] if len(set(splits)) == 1 else ""
    if split:
        words = [word for word in words if not _split(word)]
    number = "-".join(word for word in words if word.isdecimal())
    column = "_".join(word for word in words if not word.isdecimal())
    return Role(_SINGULAR.get(column.lower(), column) or "value", split, number)


def _split(word: str) -> str:
    lower = word.lower()
    return _SAME_SPLIT.get(lower, lower if lower in _SPLITS else "")


class Named(NamedTuple, Generic[Item]):
    """An array and what its name tells.

    Attributes:
      item: the array.
      role: what it is.
      folder: arrays of different ones never stand side by side.
    """

    item: Item
    role: Role
    folder: str


def folder_of(path: str) -> str:
    """Returns the folder of a path."""
    return str(PurePosixPath(path).parent)


def side_by_side(named: Sequence[Named[Item]]) -> list[list[Named[Item]]]:
    """Returns the arrays that belong together, in the order of the input."""
    columns = Counter((n.folder, n.role.split, n.role.column) for n in named)
    groups: dict[tuple[str, str, str], list[Named[Item]]] = {}
    several = {key[:2] for key, times in columns.items() if times > 1}
    for each in named:
        numbered = (each.folder, each.role.split) in several
        key = (each.folder, each.role.split, each.role.number if numbered else "")
        groups.setdefault(key, []).append(each)
    return list(groups.values())


def part_of(
    arrays: Sequence[RowArray], counts: Sequence[int], split: str, first: int = 0
) -> Part:
    """Makes a part of arrays that must have as many rows.

    Args:
      arrays: side by side.
      counts: the rows of each.
      split: of the part.
      first: the position of the first row in the first array's file.

    Raises:
      InputError: names two arrays and their numbers of rows.
    """
    for array, rows in zip(arrays, counts, strict=True):
        if rows != counts[0]:
            raise InputError(
                f"{_told(arrays[0])} has {count(counts[0], 'row')}, but {_told(array)} "
                f"has {rows:,}; expected as many in all arrays that belong together. "
                "Convert only files that belong together, or give those that do not "
                "another split in their names, or another folder"
            )
    names = Counter(field.name for array in arrays for field in array.fields)
    for name, times in names.items():
        if times > 1:
            files = ", ".join(
                array.file.path
                for array in arrays
                if name in [field.name for field in array.fields]
            )
            raise InputError(
                f"{count(times, 'array')} would be the column {name!r} of the same rows "
                f"({files}): rename one of them, or move it to another folder"
            )
    return Part(tuple(arrays), counts[0], split, first)


def _told(array: RowArray) -> str:
    names = ", ".join(field.name for field in array.fields)
    return f"{array.file.uri} ({names})"


def require_same_columns(parts: Sequence[Part], labels: Collection[str]) -> None:
    """Checks that all parts have the same columns of the same shapes.

    Args:
      parts: of the input.
      labels: columns that are class labels, stored as numbers of any type.

    Raises:
      InputError: names two files and what differs.
    """
    first = parts[0]
    expected = _columns(first, labels)
    for part in parts[1:]:
        found = _columns(part, labels)
        if found != expected:
            raise InputError(
                f"{part.file.uri}: has {_listed(found)}, but {first.file.uri} has "
                f"{_listed(expected)}; expected the same columns in all files of an "
                "input: convert such files one by one"
            )


_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "text"}


def _columns(part: Part, labels: Collection[str]) -> dict[str, str]:
    found = {}
    for field in part.fields:
        if field.name in labels:
            found[field.name] = "int"
            continue
        kind = _KINDS.get(field.dtype.lstrip("<>|=")[:1], "bytes")
        is_pixels = field.dtype.endswith("u1") and field.shape
        shape = list(field.value_shape) or ""
        found[field.name] = f"{'uint8' if is_pixels else kind} {shape}".strip()
    return found | dict.fromkeys((name for name, _ in part.constants), "int")


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
