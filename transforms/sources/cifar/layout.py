"""Describes the layout of CIFAR's binary files, and detects which one a file has.

    CIFAR-10   label | 1024 red | 1024 green | 1024 blue        3,073 bytes
    CIFAR-100  coarse label | fine label | the same 3,072       3,074 bytes

Each colour plane is 32 x 32, row-major; all bytes unsigned.
Source: www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import PassedOver, Understood
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import first_names
from recordmill.transforms.sources.cifar.options import Variant
from recordmill.transforms.sources.listing import unreadable_error
from recordmill.transforms.storage.reading import read_file
from recordmill.transforms.tfrecord import crc32c

SIDE = 32
CHANNELS = 3
PIXELS = SIDE * SIDE
IMAGE_BYTES = PIXELS * CHANNELS

_TRAIN_FILE = re.compile(r"data_batch_\d+\.bin|train\.bin", re.IGNORECASE)
_TEST_FILE = re.compile(r"test_batch(_\d+)?\.bin|test\.bin", re.IGNORECASE)
_CIFAR100_FILE = re.compile(r"(train|test)\.bin", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one record: one byte for each label, then the pixels."""

    variant: Literal["cifar10", "cifar100"]
    title: str
    labels: tuple[str, ...]  # feature names, in file order
    name_files: tuple[str, ...]  # where each label's class names stand
    num_classes: tuple[int, ...]

    @property
    def record_bytes(self) -> int:
        """Returns the size of a record in bytes."""
        return len(self.labels) + IMAGE_BYTES


CIFAR10 = Layout("cifar10", "CIFAR-10", ("label",), ("batches.meta.txt",), (10,))
CIFAR100 = Layout(
    "cifar100",
    "CIFAR-100",
    ("coarse_label", "label"),
    ("coarse_label_names.txt", "fine_label_names.txt"),
    (20, 100),
)
_NAME_FILES = {*CIFAR10.name_files, *CIFAR100.name_files}
_LAYOUTS = {layout.variant: layout for layout in (CIFAR10, CIFAR100)}


def find_layout(files: Sequence[InputFile], variant: Variant) -> Layout:
    """Returns the layout of all files, by name and size unless the variant is given.

    Raises:
      InputError: a file may have either layout, or they differ.
    """
    if variant != "auto":
        return _LAYOUTS[variant]
    first = files[0]
    layout = detect_layout(first)
    for file in files[1:]:
        other = detect_layout(file)
        if other != layout:
            raise InputError(
                f"{first.path} is {layout.variant} and {file.path} is "
                f"{other.variant}: convert them into two datasets, or give `variant`"
            )
    return layout


def detect_layout(file: InputFile) -> Layout:
    """Returns the layout of CIFAR-10 or CIFAR-100, by the file's name, else its size.

    Raises:
      InputError: both layouts are possible or none, or name and size contradict.
    """
    name = PurePosixPath(file.path).name
    fits = [
        layout for layout in _LAYOUTS.values() if not file.size % layout.record_bytes
    ]
    if _TRAIN_FILE.fullmatch(name) or _TEST_FILE.fullmatch(name):
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


def data_files(files: Sequence[InputFile]) -> list[InputFile]:
    """Returns the files that hold records."""
    return [f for f in files if f.size and f.path.lower().endswith(".bin")]


def require_whole(files: Sequence[InputFile]) -> None:
    """Refuses files of records or names that cannot be read or hold nothing.

    Raises:
      InputError: names the file.
    """
    for file in files:
        is_data = file.path.lower().endswith(".bin")
        if file.problem and (is_data or PurePosixPath(file.path).name in _NAME_FILES):
            raise unreadable_error(file)
        if is_data and not file.size:
            raise InputError(
                f"{file.uri}: is empty, expected CIFAR records: copy the file again, or "
                "leave it out of the inputs"
            )


def understand(files: Sequence[InputFile], layout: Layout) -> Understood:
    """Returns what the files were taken for, for people."""
    splits: dict[str, list[str]] = {}
    for file in data_files(files):
        splits.setdefault(split_of(file.path), []).append(file.path)
    facts = [("records", f"{layout.title}, {layout.record_bytes:,} bytes each")]
    facts += [
        (
            f"files of split {split}" if split else "files of no split",
            first_names(paths),
        )
        for split, paths in sorted(splits.items())
    ]
    passed_over = PassedOver.counted(
        ("does not end in .bin", file.path)
        for file in files
        if not file.path.lower().endswith(".bin")
        and PurePosixPath(file.path).name not in _NAME_FILES
    )
    return Understood(tuple(facts), passed_over=passed_over)


def read_names(
    file: InputFile | None,
    count: int,
    storage: StorageOptions,
    checksums: list[FileChecksum],
) -> tuple[str, ...]:
    """Reads class names, one a line; without such a file they are numbers.

    Args:
      file: of the names.
      count: how many there have to be.
      storage: options of its storage.
      checksums: are given that of the file.

    Raises:
      InputError: the file does not hold so many names.
    """
    if file is None:
        return tuple(str(label) for label in range(count))
    content = read_file(file.uri, storage, file.seen)
    checksums.append(FileChecksum(file.path, 0, len(content), crc32c(content)))
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{file.uri}: class names are not UTF-8: {error}") from error
    names = tuple(line.strip() for line in lines if line.strip())
    if len(names) != count:
        raise InputError(f"{file.uri}: {len(names)} class names, expected {count}")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise InputError(f"{file.uri}: class name {twice[0]!r} is given twice")
    return names
