"""Finds which columns of a table have the path, the label and the split of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import first_names
from recordmill.transforms.sources.images.asked_labels import AUTO, NONE, AskedLabels

PATH_NAMES = (
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "image_path",
    "image_name",
    "img",
    "image_id",
    "id",
)
LABEL_NAMES = (
    "label",
    "labels",
    "class",
    "classes",
    "class_name",
    "category",
    "categories",
)
SPLIT_NAMES = ("split", "subset")


class LabelColumns(NamedTuple):
    """The names of a table's columns; "" for none.

    Attributes:
      path, label, split: their names.
      features: the other columns.
    """

    path: str
    label: str
    split: str
    features: tuple[str, ...]


def known_names(asked: AskedLabels) -> list[str]:
    """Returns the names that path, label and split may have."""
    given = (asked.path_column, asked.label_column, asked.table_split_column)
    names = [name for name in given if name not in (AUTO, NONE)]
    return [*names, *PATH_NAMES, *LABEL_NAMES, *SPLIT_NAMES]


def find_columns(
    names: Sequence[str], asked: AskedLabels, uri: str, *, splits_elsewhere: bool
) -> LabelColumns:
    """Finds the columns, by what the options say or by usual names.

    Args:
      names: of all columns.
      asked: what the options say.
      uri: of the table, for messages.
      splits_elsewhere: whether something else says the splits.

    Raises:
      InputError: there is no such column.
    """
    path = _find("path_column", asked.path_column, PATH_NAMES, names, uri)
    if not path:
        raise InputError(
            f"{uri}: no column is named like a path ({first_names(PATH_NAMES, 5)}); "
            f"its columns are {first_names(names)}: say with `path_column` which one has "
            "the paths of the pictures, or add a header line if there is none"
        )
    label = split = ""
    if not asked.without_labels:
        label = _find("label_column", asked.label_column, LABEL_NAMES, names, uri)
        if not label and asked.label_column != NONE:
            raise InputError(
                f"{uri}: no column is named like a label ({first_names(LABEL_NAMES)}); "
                f"its columns are {first_names(names)}: say with `label_column` which "
                "one it is, or use `label_column=none` if there is none"
            )
    if asked.table_split_column != AUTO or not splits_elsewhere:
        split = _find(
            "table_split_column", asked.table_split_column, SPLIT_NAMES, names, uri
        )
    taken = [name for name in (path, label, split) if name]
    if twice := {name for name in taken if taken.count(name) > 1}:
        raise InputError(
            f"{uri}: column {min(twice)!r} cannot be two of path, label and split: give "
            "another one in `path_column`, `label_column` or `table_split_column`"
        )
    others = tuple(name for name in names if name not in taken)
    return LabelColumns(path, label, split, others)


def _find(
    option: str, asked: str, usual: Sequence[str], names: Sequence[str], uri: str
) -> str:
    if asked == NONE:
        return ""
    if asked != AUTO:
        if asked not in names:
            raise InputError(
                f"{uri}: has no column {asked!r}, which `{option}` names; its columns "
                f"are {first_names(names)}"
            )
        return asked
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(name.strip().casefold(), name)
    return next((folded[name] for name in usual if name in folded), "")
