"""Declares the options of labels, splits and features that are not in folder names."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.job import SPLIT_PATTERN
from recordmill.schemas.source_options import SourceOptions

TableRows = Literal["picture", "object"]
Unlisted = Literal["reject", "leave_out"]


def _as_text(value: Any) -> Any:
    """Takes a list of texts, as YAML has them, for one; and a mapping for such a list."""
    if isinstance(value, dict):
        value = [f"{name}={path}" for name, path in value.items()]
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value


def by_split(text: str) -> list[tuple[str, str]]:
    """Returns (split, name of a file) of each part; a part without "=" has no split.

    >>> by_split("train=a.csv,b.csv")
    [('train', 'a.csv'), ('', 'b.csv')]
    """
    found = []
    for part in text.split(","):
        split, mark, name = part.partition("=")
        found.append((split, name) if mark else ("", part))
    return [(split.strip(), name.strip()) for split, name in found if name.strip()]


def _tables(text: str) -> str:
    for split, _ in by_split(text):
        if split and not SPLIT_PATTERN.fullmatch(split):
            raise ValueError(
                f"expected SPLIT=FILE with a split of letters, digits, '_' and '-', found "
                f"{split!r}"
            )
    return text


def _lists(text: str) -> str:
    for split, name in by_split(_tables(text)):
        if not split:
            raise ValueError(
                f"expected SPLIT=FILE, such as train=train.txt, found {name!r}"
            )
    return text


def _pattern(text: str) -> str:
    try:
        found = re.compile(text)
    except re.error as error:
        raise ValueError(
            f"expected a regular expression of Python, found {text!r}: {error}"
        ) from None
    if text and not found.groupindex:
        raise ValueError(
            "expected a regular expression with named groups, such as "
            f"(?P<label>[a-z]+)_.*, found {text!r}"
        )
    return text


_FILES = BeforeValidator(_as_text, json_schema_input_type=str | list[str])


class LabelOptions(SourceOptions):
    """Options of what is said of pictures in other places than the folders' names."""

    label_table: Annotated[str, _FILES, AfterValidator(_tables)] = Field(
        "",
        description="CSV, TSV or JSON Lines with a row for each picture: its path, its "
        "label, and columns that become features; a path below the input folder, or like "
        "those of inputs; train=a.csv,test=b.csv for a table of each split",
    )
    path_column: str = Field(
        "auto",
        description="column of `label_table` with the picture's path; auto: path, file, "
        "filename, image and the like",
    )
    label_column: str = Field(
        "auto",
        description="column of `label_table` with the label; auto: label, class, category "
        "and the like; none: no such column",
    )
    table_split_column: str = Field(
        "auto",
        description="column of `label_table` with the split; auto: split, if it is there "
        "and nothing else says the splits; none: no such column",
    )
    table_rows: TableRows = Field(
        "picture",
        description="what a row of `label_table` is of: a picture, or an object in one, "
        "such as a box; the rows of a picture then become lists, one for each column",
    )
    label_separator: str = Field(
        "",
        description="what stands between the labels of a picture that has several, such "
        "as | or a blank; lists of JSON Lines need none",
    )
    label_pattern: Annotated[str, AfterValidator(_pattern)] = Field(
        "",
        description="regular expression for the names of the pictures (with / in it, for "
        "their paths below the input folder); its groups label and split are these, "
        "others are features: (?P<label>[a-z]+)_(?P<id>\\d+)\\.jpg",
    )
    label_map: str = Field(
        "",
        description="file of the classes in their order: a name a line, CSV with id,name "
        "or label,class, or JSON; several labels may be one class, and those without a "
        "class are left out",
    )
    split_lists: Annotated[str, _FILES, AfterValidator(_lists)] = Field(
        "",
        description="files with the path of a picture in each line, which is in that "
        "split: train=train.txt,val=val.txt",
    )
    unlisted: Unlisted = Field(
        "reject",
        description="what becomes of pictures that `label_table`, `label_pattern` or "
        "`split_lists` do not name: rejects, or left out and counted",
    )
