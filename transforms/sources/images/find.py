"""Finds the images among the input files, and the files that options name.

A file with a usual ending is an image, and a reject if its content is not. Any other
file is one if its first bytes are; the rest is skipped and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import PassedOver
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.images.header import (
    SIGNATURE_BYTES,
    is_certain_image,
    other_image_format,
)
from recordmill.transforms.sources.images.options import TableRows, Unlisted, by_split
from recordmill.transforms.sources.named_files import NamedFile, find_named
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

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


# A file with a usual ending is a picture, and a reject if its content is not. Any other
# file is one if its first bytes say so; the rest is passed over and counted.

ENDINGS = (".jpeg", ".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
_THREADS = 16  # most of the time is waiting for the store
_AT_ONCE = 4096
_SHOWN_ENDINGS = 5


@dataclass(frozen=True, slots=True)
class FoundPictures:
    """The pictures among the input files, and the other files.

    Attributes:
      pictures: in the order of the listing.
      others: the files that are not pictures, each with the reason.
      signatures: the checksums of the first bytes that decided, where they were read.
    """

    pictures: tuple[InputFile, ...]
    others: tuple[tuple[InputFile, str], ...]
    signatures: tuple[FileChecksum, ...] = ()

    def __add__(self, more: FoundPictures) -> FoundPictures:
        return FoundPictures(
            self.pictures + more.pictures,
            self.others + more.others,
            self.signatures + more.signatures,
        )

    def passed_over(self) -> tuple[PassedOver, ...]:
        """Counts the other files by reason; rare endings count together."""
        endings = Counter(reason for _, reason in self.others if reason[:1] == ".")
        shown = {ending for ending, _ in endings.most_common(_SHOWN_ENDINGS)}

        def told(reason: str) -> str:
            if reason[:1] != ".":
                return reason
            return f"{reason if reason in shown else 'other endings'}, no picture in it"

        return PassedOver.counted((told(why), file.path) for file, why in self.others)


def ending_of(path: str) -> str:
    """Returns the suffix of a path as pathlib gives it, in a tenth of the time.

    >>> ending_of("a.b/c.tar.gz"), ending_of("a.b/.gz"), ending_of("c.")
    ('.gz', '', '')
    """
    name = path.rpartition("/")[2]
    place = name.rfind(".")
    return name[place:] if 0 < place < len(name) - 1 else ""


def find_pictures(files: Sequence[InputFile], storage: StorageOptions) -> FoundPictures:
    """Finds the pictures; reads the first bytes of files with other endings.

    Args:
      files: the inventory.
      storage: options of their storage.

    Raises:
      InputError: a file cannot be read.
    """
    unknown = [f for f in files if not f.path.lower().endswith(ENDINGS)]
    if not unknown:
        return FoundPictures(tuple(files), ())
    signatures: list[FileChecksum] = []
    told = _reasons(unknown, storage, signatures)
    reasons = dict(zip((f.path for f in unknown), told, strict=True))
    pictures = tuple(file for file in files if not reasons.get(file.path))
    return FoundPictures(
        pictures,
        tuple((file, reasons[file.path]) for file in unknown if reasons[file.path]),
        tuple(sorted(signatures)),
    )


def _reasons(
    files: Iterable[InputFile],
    storage: StorageOptions,
    signatures: list[FileChecksum],
) -> Iterator[str]:
    """Yields why each file is not an image: its ending or some words; "" if it is.

    Args:
      files: with other endings.
      storage: options of their storage.
      signatures: are given the checksums of what was read.
    """

    def reason(file: InputFile) -> str:
        if file.problem:
            return f"{file.problem.partition(' (')[0]}, not named as a picture"
        if not file.size:
            return "empty"
        size = min(file.size, SIGNATURE_BYTES)
        head = read_range(file.uri, 0, size, storage, file.seen)
        signatures.append(FileChecksum(file.path, 0, len(head), crc32c(head)))
        if is_certain_image(head):
            return ""
        if other := other_image_format(head):
            return f"{other} is not supported"
        return PurePosixPath(file.path).suffix.lower() or "no ending, no picture in it"

    left = iter(files)
    with ThreadPoolExecutor(_THREADS) as threads:
        while part := list(islice(left, _AT_ONCE)):
            yield from threads.map(reason, part)


@dataclass(frozen=True, slots=True)
class NamedInputs:
    """The files of an input that options name.

    Attributes:
      tables, lists: (split, file) of each.
      label_map: the file of the classes, or None.
    """

    tables: tuple[tuple[str, InputFile], ...] = ()
    lists: tuple[tuple[str, InputFile], ...] = ()
    label_map: InputFile | None = None

    @property
    def paths(self) -> frozenset[str]:
        """Returns the paths of all of them."""
        files = [file for _, file in (*self.tables, *self.lists)]
        files += [self.label_map] if self.label_map else []
        return frozenset(file.path for file in files)


def find_named_inputs(asked: AskedLabels, files: Sequence[InputFile]) -> NamedInputs:
    """Returns the tables, lists and classes among the files of an input.

    Raises:
      InputError: one of them is not there, or cannot be read.
    """

    def find(option: str, name: str) -> list[InputFile]:
        found = find_named(name, files)
        if not found:
            raise InputError(f"`{option}`: no input file is named {name!r}")
        for each in found:
            if each.problem:
                raise InputError(f"`{option}`: {each.uri}: {each.problem}")
        return found

    def of_splits(
        option: str, named: Iterable[tuple[str, str]]
    ) -> tuple[tuple[str, InputFile], ...]:
        return tuple((split, f) for split, name in named for f in find(option, name))

    label_map = find("label_map", asked.label_map)[0] if asked.label_map else None
    return NamedInputs(
        of_splits("label_table", asked.tables),
        of_splits("split_lists", asked.lists),
        label_map,
    )
