"""Reads CIFAR-10 and CIFAR-100 binary files: arrays of a layout found by name or size.

    CIFAR-10   label | 1024 red | 1024 green | 1024 blue        3,073 bytes
    CIFAR-100  coarse label | fine label | the same 3,072       3,074 bytes

Each colour plane is 32 x 32, row-major; all bytes unsigned.
Source: www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import first_names
from recordmill.transforms.arrow import I64, U8, U64
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.arrays.array_parts import (
    Field,
    Found,
    Part,
    part_of_records,
    read_names,
)
from recordmill.transforms.sources.arrays.rows import Reasons
from recordmill.transforms.sources.arrays.source import ArraysSource
from recordmill.transforms.sources.base import Rows, RowSink
from recordmill.transforms.sources.built_in import Variant
from recordmill.transforms.sources.listing import unreadable_error

SIDE, CHANNELS = 32, 3
IMAGE_BYTES = SIDE * SIDE * CHANNELS

_TRAIN_FILE = re.compile(r"data_batch_\d+\.bin|train\.bin", re.IGNORECASE)
_TEST_FILE = re.compile(r"test_batch(_\d+)?\.bin|test\.bin", re.IGNORECASE)
_CIFAR100_FILE = re.compile(r"(train|test)\.bin", re.IGNORECASE)


class Layout(NamedTuple):
    """The layout of one record: one byte for each label, then the pixels."""

    variant: Literal["cifar10", "cifar100"]
    title: str
    labels: tuple[tuple[str, int, str], ...]  # name, classes, file of their names

    @property
    def record_bytes(self) -> int:
        """Returns the size of a record in bytes."""
        return len(self.labels) + IMAGE_BYTES

    @property
    def fields(self) -> tuple[Field, ...]:
        """Returns the values of a record."""
        planes = (CHANNELS, SIDE, SIDE)
        sizes = {"height": SIDE, "width": SIDE, "depth": CHANNELS}
        return (
            Field("image", "|u1", planes, (1, 2, 0), offset=len(self.labels)),
            *(Field(name, "|u1", offset=n) for n, (name, *_) in enumerate(self.labels)),
            *(Field(name, "<i8", constant=size) for name, size in sizes.items()),
        )


CIFAR10 = Layout("cifar10", "CIFAR-10", (("label", 10, "batches.meta.txt"),))
CIFAR100 = Layout(
    "cifar100",
    "CIFAR-100",
    (
        ("coarse_label", 20, "coarse_label_names.txt"),
        ("label", 100, "fine_label_names.txt"),
    ),
)
_LAYOUTS = {layout.variant: layout for layout in (CIFAR10, CIFAR100)}
_NAME_FILES = {name for each in _LAYOUTS.values() for *_, name in each.labels}


@dataclass(frozen=True)
class CifarFinder:
    """Finds CIFAR records.

    Attributes:
      variant: cifar10 or cifar100; auto: by file name and size.
    """

    variant: Variant = "auto"

    def find(self, files: Sequence[InputFile], storage: StorageOptions) -> Found:
        by_name = {PurePosixPath(file.path).name: file for file in files}
        data = [file for file in files if _is_data(file)]
        for file in files:
            is_named = file.path.split("/")[-1] in _NAME_FILES
            if file.problem and (_is_data(file) or is_named):
                raise unreadable_error(file)
            if _is_data(file) and not file.size:
                raise InputError(
                    f"{file.uri}: is empty, expected CIFAR records: copy the file again, or "
                    "leave it out of the inputs"
                )
        if not data:
            raise InputError("no CIFAR data: none of the input files ends in .bin")
        layout = find_layout(data, self.variant)
        size, names, read = layout.record_bytes, [], []
        for label, number, name in layout.labels:
            own = tuple(map(str, range(number)))
            if name in by_name:
                own, checksum = read_names(by_name[name], storage, number)
                read.append(checksum)
            names.append((label, own))
        return Found(
            tuple(
                part_of_records(file, size, layout.fields, split_of(file.path))
                for file in data
            ),
            tuple(names),
            f"{layout.title}, {size:,} bytes each",
            [
                ("does not end in .bin", file.path)
                for file in files
                if not _is_data(file) and file.path.split("/")[-1] not in _NAME_FILES
            ],
            tuple(read),
            f"expected a whole {layout.variant} record of {size} ({len(layout.labels)} "
            f"label + {SIDE} x {SIDE} x {CHANNELS}): the file is cut short",
        )


def _is_data(file: InputFile) -> bool:
    return file.path.lower().endswith(".bin")


def find_layout(files: Sequence[InputFile], variant: Variant) -> Layout:
    """Returns the layout of all files, by name and size unless the variant is given."""
    if variant != "auto":
        return _LAYOUTS[variant]
    layout = detect_layout(files[0])
    for file in files[1:]:
        other = detect_layout(file)
        if other != layout:
            raise InputError(
                f"{files[0].path} is {layout.variant} and {file.path} is "
                f"{other.variant}: convert them into two datasets, or give `variant`"
            )
    return layout


def detect_layout(file: InputFile) -> Layout:
    """Returns the layout of CIFAR-10 or CIFAR-100, by the file's name, else its size."""
    name = PurePosixPath(file.path).name
    fits = [
        layout for layout in _LAYOUTS.values() if not file.size % layout.record_bytes
    ]
    if split_of(name):
        named = CIFAR100 if _CIFAR100_FILE.fullmatch(name) else CIFAR10
        if fits and named not in fits:
            raise InputError(
                f"{file.uri}: the name is one of {named.title}, but {file.size} bytes is "
                f"a whole number of {fits[0].title}'s {fits[0].record_bytes:,}-byte "
                "records; use `variant=cifar10` or `variant=cifar100`"
            )
        return named  # cut short or not
    if len(fits) == 1:
        return fits[0]
    for layout in (CIFAR100, CIFAR10):  # "cifar100" also holds "cifar10"
        if layout.variant in name.lower().replace("-", "").replace("_", ""):
            return layout
    raise InputError(
        f"{file.uri}: {file.size} bytes is a whole number of "
        f"{'both' if fits else 'neither'} 3,073-byte (CIFAR-10) {'and' if fits else 'nor'}"
        " 3,074-byte (CIFAR-100) records; use `variant=cifar10` or `variant=cifar100`"
    )


def split_of(path: str) -> str:
    """Returns the split that a file name of CIFAR stands for, or ""."""
    name = PurePosixPath(path).name
    if _TEST_FILE.fullmatch(name):
        return "test"
    return "train" if _TRAIN_FILE.fullmatch(name) else ""


@dataclass(frozen=True)
class CifarSource(ArraysSource):
    """CIFAR binary files; files that are no records may be of any kind."""

    finder: CifarFinder = CifarFinder()

    handles_unreadable = True
    refuses_roles = True

    def _facts(self) -> Iterator[tuple[str, str]]:
        for split in sorted({part.split for part in self.found.parts}):
            paths = [p.file.path for p in self.found.parts if p.split == split]
            name = f"files of split {split}" if split else "files of no split"
            yield name, first_names(paths)

    def own_splits(self) -> tuple[str, ...]:
        return ()  # the split train is there, with or without files of it

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return sum(file.size for file in files)

    def is_listed(self, field: Field) -> bool:
        return field.constant is None and not field.is_bytes

    def read_for_statistics(
        self, input_range: InputRange, sink: RowSink
    ) -> Iterator[Rows]:
        """Reads the labels of a range, without laying out the pixels."""
        return self.list_references(input_range, sink)

    def _origins(self, part: Part, input_range: InputRange, positions: I64) -> U64:
        ordinals = (positions - input_range.start) // part.scale
        return origins_in(part.file.path, input_range.start, ordinals)

    def _batch(
        self, part: Part, found: Sequence[U8], is_wanted: Callable[[Field], bool]
    ) -> tuple[pa.RecordBatch, Reasons]:
        batch, reasons = super()._batch(part, found, is_wanted)
        names = ", ".join(name for name, _ in self.found.class_names)
        counts = [len(own) for _, own in self.found.class_names]
        for row in reasons:
            labels = found[0][row, : len(counts)].tolist()
            reasons[row] = f"labels {labels} for {names}, expected below {counts}"
        return batch, reasons
