"""Says where labels, splits and features of pictures come from, beside their folders."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.errors import UsageError
from recordmill.transforms.sources.images.label_options import (
    TableRows,
    Unlisted,
    by_split,
)
from recordmill.transforms.sources.named_files import NamedFile

AUTO, NONE = "auto", "none"


@dataclass(frozen=True, slots=True)
class AskedLabels:
    """What the options say of labels, splits and features.

    Attributes:
      tables: (split, file) of tables with a row for each picture; "" for no split.
      path_column, label_column, table_split_column: names, "auto" or "none".
      separator: between several labels of a cell; "" if a cell is one label.
      pattern: for names or paths of pictures; "" for none.
      label_map: the file of the classes, or "".
      lists: (split, file) of lists of paths.
      table_rows: what a row of a table is of: a picture, or an object in one.
      unlisted: what becomes of pictures that nothing names.
      without_labels: whether there are no labels at all.
      as_text: whether cells of tables stay text, because a declared schema converts
        them.
      wanted: columns that the declared schema uses.
    """

    tables: tuple[tuple[str, str], ...] = ()
    path_column: str = AUTO
    label_column: str = AUTO
    table_split_column: str = AUTO
    separator: str = ""
    pattern: str = ""
    label_map: str = ""
    lists: tuple[tuple[str, str], ...] = ()
    table_rows: TableRows = "picture"
    unlisted: Unlisted = "reject"
    without_labels: bool = False
    as_text: bool = False
    wanted: tuple[str, ...] = ()

    @property
    def is_asked(self) -> bool:
        """Tells whether anything but the folders says what pictures are."""
        return bool(
            self.tables
            or self.pattern
            or self.label_map
            or self.lists
            or self.without_labels
        )

    @property
    def groups(self) -> frozenset[str]:
        """Returns the names of the pattern's groups."""
        return frozenset(re.compile(self.pattern).groupindex)

    @property
    def labels_by_folder(self) -> bool:
        """Tells whether folders are the classes."""
        return not (self.tables or self.without_labels or "label" in self.groups)

    @property
    def named_files(self) -> tuple[NamedFile, ...]:
        """Returns the files that the options name."""
        named = [NamedFile("label_table", name) for _, name in self.tables]
        named += [NamedFile("split_lists", name) for _, name in self.lists]
        if self.label_map:
            named.append(NamedFile("label_map", self.label_map))
        return tuple(named)


def ask_labels(options: Any, *, as_text: bool) -> AskedLabels | None:
    """Returns what the options of pictures say of labels; None if nothing does.

    Args:
      options: an ImagesOptions.
      as_text: whether a declared schema converts the cells of tables.

    Raises:
      UsageError: options contradict each other.
    """
    asked = AskedLabels(
        tables=tuple(by_split(options.label_table)),
        path_column=options.path_column,
        label_column=options.label_column,
        table_split_column=options.table_split_column,
        separator=options.label_separator,
        pattern=options.label_pattern,
        label_map=options.label_map,
        lists=tuple(by_split(options.split_lists)),
        table_rows=options.table_rows,
        unlisted=options.unlisted,
        without_labels=options.label_from == NONE,
        as_text=as_text,
    )
    if problem := _contradiction(asked, options.label_from, options.split_from):
        raise UsageError(problem)
    return asked if asked.is_asked else None


def _contradiction(asked: AskedLabels, label_from: str, split_from: str) -> str:
    """Returns which options contradict each other, and the way out; "" if none do."""
    given = {
        "`path_column`": asked.path_column != AUTO,
        "`label_column`": asked.label_column != AUTO,
        "`table_split_column`": asked.table_split_column != AUTO,
    }
    if not asked.tables and any(given.values()):
        name = next(name for name, is_given in given.items() if is_given)
        return f"{name} is a column of `label_table`: give the table, or leave it out"
    if asked.table_rows == "object":
        if not asked.tables:
            return "`table_rows=object` is for `label_table`: give it, or leave it out"
        if asked.separator:
            return (
                "`table_rows=object` and `label_separator` exclude each other, as each "
                "row has one label: leave out one of them"
            )
    if asked.path_column == NONE:
        return "`path_column`: a table needs a column with the paths of the pictures"
    if asked.tables and asked.pattern:
        return "`label_table` and `label_pattern` exclude each other: leave out one of them"
    labels = ["`label_table`"] if asked.tables else []
    labels += ["a group label in `label_pattern`"] if "label" in asked.groups else []
    if label_from != AUTO and labels:
        way_out = "use `label_column=none`" if asked.tables else "rename the group"
        more = f"; for no labels {way_out}" if label_from == NONE else ""
        return (
            f"`label_from={label_from}` and {labels[0]} exclude each other, as both say "
            f"the label: leave out one of them{more}"
        )
    has_labels = not asked.without_labels and asked.label_column != NONE
    for name, is_given in (
        ("`label_map`", bool(asked.label_map)),
        ("`label_separator`", bool(asked.separator)),
    ):
        if is_given and not has_labels:
            return f"{name}: there are no labels: leave it out"
    if asked.separator and asked.labels_by_folder:
        return (
            "`label_separator` is for labels of `label_table` or `label_pattern`: leave "
            "it out"
        )
    splits = {
        "`split_lists`": bool(asked.lists),
        "a split of each `label_table`": any(split for split, _ in asked.tables),
        "`table_split_column`": asked.table_split_column not in (AUTO, NONE),
        "a group split in `label_pattern`": "split" in asked.groups,
        f"`split_from={split_from}`": split_from not in (AUTO, NONE),
    }
    both = [name for name, is_given in splits.items() if is_given]
    if len(both) > 1:
        return (
            f"{' and '.join(both)} exclude each other, as each says the split: leave out "
            "all but one"
        )
    named = {bool(split) for split, _ in asked.tables}
    if len(named) > 1:
        return (
            "`label_table`: some tables have a split and others have none: give each its "
            "split, as in train=a.csv,test=b.csv, or none"
        )
    by_name = asked.tables or asked.pattern or asked.lists
    if asked.unlisted != "reject" and not by_name:
        return (
            "`unlisted` is for `label_table`, `label_pattern` or `split_lists`: leave it "
            "out"
        )
    return ""
