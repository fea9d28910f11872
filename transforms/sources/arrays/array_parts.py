"""Describes arrays of rows in files, and the parts of an input that they are.

A part is what belongs side by side: row i of the images and row i of the labels.

    train-images   row 0 | row 1 | ...     784 bytes each, from byte 16 on
    train-labels   row 0 | row 1 | ...     1 byte each, from byte 8 on

Names of files and arrays say what they hold:

    train-images-idx3-ubyte.gz    images, train
    x_test.npy                    x, test
    labels_0.npy, labels_1.npy    labels, one after the other

Arrays of the same folder and split are columns of one part. If one of them is there
several times, those with the same number in their names are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.sources.file_splits import split_word, without_split_word
from recordmill.transforms.storage.reading import read_summed

MAX_ROW_BYTES = 256 << 20
MAX_NAMES_BYTES = 16 << 20
ClassNames = tuple[tuple[str, tuple[str, ...]], ...]
Packing = Literal["", "gzip", "deflate"]

_SINGULAR = {"images": "image", "labels": "label"}
_STORED = {  # by NumPy's kind; others are int64
    "b": (Kind.INT64, "bool"),
    "f": (Kind.FLOAT, "float32"),
    "S": (Kind.BYTES, "bytes"),
    "V": (Kind.BYTES, "bytes"),
    "U": (Kind.BYTES, "string"),
}
_IGNORED = re.compile(r"idx\d?|ubyte|gz|npy|npz", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a row."""

    name: str  # of the column
    dtype: str  # NumPy's text of the stored type, such as "<f4"; "|V10" for raw bytes
    # as stored, row by row (C order); () for a single value
    shape: tuple[int, ...] = ()
    # the stored axis that each axis of the value is; () if it stays as it is
    axes: tuple[int, ...] = ()
    offset: int = 0  # first byte in the row of its array
    first_label: int = 0  # the stored label of the first class
    constant: int | None = None  # the value in all rows, if it is not stored; else None

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Returns the shape of the value."""
        return tuple(self.shape[axis] for axis in self.axes) or self.shape

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of a row that it takes."""
        if self.constant is not None:
            return 0
        return int(np.dtype(self.dtype).itemsize) * math.prod(self.shape)

    @property
    def is_integer(self) -> bool:
        """Tells whether it is one whole number, and so may be a label."""
        return not self.shape and self.dtype[1] in "iu"

    @property
    def is_bytes(self) -> bool:
        """Tells whether it is an array of uint8, which stays bytes."""
        return self.dtype.endswith("u1") and bool(self.shape)

    @property
    def described(self) -> str:
        """Returns name, type and shape in words."""
        found = np.dtype(self.dtype)
        name = {"S": "bytes", "V": "bytes", "U": "text"}.get(found.kind, found.name)
        shape = f" [{', '.join(map(str, self.value_shape))}]" if self.shape else ""
        return f"{self.name} {name}{shape}"

    def feature(self, class_names: tuple[str, ...]) -> FeatureSpec:
        """Returns how it is stored; with the names of classes it is a class label.

        Bytes of pixels stay bytes, as all readers of image arrays expect.
        """
        if class_names or self.constant is not None:
            return FeatureSpec(self.name, Kind.INT64, class_names=class_names)
        if self.is_bytes:
            kind, dtype, content = Kind.BYTES, "uint8", Content.ARRAY
        else:
            found, content = np.dtype(self.dtype).kind, Content.VALUES
            kind, dtype = _STORED.get(found, (Kind.INT64, "int64"))
        shape = self.value_shape
        return FeatureSpec(self.name, kind, dtype=dtype, shape=shape, content=content)

    def has_fixed_size(self, num_classes: int) -> bool:
        """Tells whether it takes as many bytes in every record."""
        if num_classes:
            return num_classes <= 128  # an index takes one byte
        kind = np.dtype(self.dtype).kind
        return self.constant is not None or self.is_bytes or kind in "bfV"


@dataclass(frozen=True, slots=True)
class RowArray:
    """Rows of equal size, one after the other in a file."""

    file: InputFile  # where they are
    start: int = 0  # the byte of the first row: in the file, or in what is unpacked
    row_bytes: int = 1  # size of a row
    num_rows: int = 0  # how many there are
    fields: tuple[Field, ...] = ()  # the values of a row
    # how the bytes from `packed_start` to `packed_stop` are compressed
    packing: Packing = ""
    packed_start: int = 0  # first byte of what is compressed
    packed_stop: int = 0  # one after its last byte
    # of all that is unpacked, or None where the packing itself checks it
    crc32: int | None = None
    # bytes of a value whose first axis is that of the rows, so that a file holds the
    # first value of all rows, then the second one (Fortran order); or 0
    transposed: int = 0

    @property
    def is_sequential(self) -> bool:
        """Tells whether following rows are following bytes of the file."""
        return not self.packing and not self.transposed

    @property
    def span(self) -> tuple[int, int]:
        """Returns where the rows begin and end in the file."""
        if self.packing:
            return self.packed_start, self.packed_stop
        return self.start, self.start + self.num_rows * self.row_bytes


@dataclass(frozen=True)
class Part:
    """Arrays of as many rows, side by side."""

    # what they are; rejects are told by the file of the first one
    arrays: tuple[RowArray, ...]
    split: str = ""  # that the file names tell, or ""
    first: int = 0  # the position of the first row in the first file
    scale: int = 1  # positions that a row takes: 1, or its bytes
    tail: int = 0  # bytes at the end of the file that are not a whole row

    @property
    def num_rows(self) -> int:
        """Returns the rows of each array."""
        return self.arrays[0].num_rows

    @property
    def row_bytes(self) -> int:
        """Returns the bytes of a row in all arrays."""
        return sum(array.row_bytes for array in self.arrays)

    @property
    def file(self) -> InputFile:
        """Returns the file that rows are told by."""
        return self.arrays[0].file

    @property
    def is_packed(self) -> bool:
        """Tells whether rows can only be read from the first one on."""
        return any(array.packing for array in self.arrays)

    @property
    def start(self) -> int:
        """Returns the first position; what stands before the rows belongs to it."""
        return self.first if self.scale == 1 else 0

    @property
    def stop(self) -> int:
        """Returns one after the last position."""
        return self.first + self.num_rows * self.scale + self.tail

    @property
    def fields(self) -> tuple[Field, ...]:
        """Returns the fields of all arrays."""
        return tuple(field for array in self.arrays for field in array.fields)


def part_of_records(
    file: InputFile, size: int, fields: tuple[Field, ...], split: str, header: int = 0
) -> Part:
    """Returns the records of a size that follow the header of a file."""
    num_rows, tail = divmod(file.size - header, size)
    array = RowArray(file, header, size, num_rows, fields)
    return Part((array,), split, first=header, scale=size, tail=tail)


class Found(NamedTuple):
    """What a format made of its input."""

    parts: tuple[Part, ...] = ()  # in the order of the input
    class_names: ClassNames = ()  # of each column that is a class label
    records: str = ""  # what the records are, in words
    skipped: Sequence[tuple[str, str]] = ()  # why and which files hold no rows
    # the checksums of files that hold no rows, but what rows depend on
    read: tuple[FileChecksum, ...] = ()
    tail_reason: str = ""  # what a tail of a file is, for its reject


NOTHING_FOUND = Found()
# Finds the arrays of one format in files, by its options.
Finder = Callable[[Any, Sequence[InputFile], StorageOptions], Found]


class Role(NamedTuple):
    """What a name says."""

    column: str  # the name without the rest; "value" if nothing is left
    split: str = ""
    number: str = ""  # digits in it


def role_of(name: str) -> Role:
    """Returns what the name of a file or an array says.

    >>> role_of("x_train_2.npy")
    Role(column='x', split='train', number='2')
    """
    words = re.split(r"[^\w]+|_", without_split_word(name))
    words = [word for word in words if word and not _IGNORED.fullmatch(word)]
    number = "-".join(word for word in words if word.isdecimal())
    column = "_".join(word for word in words if not word.isdecimal())
    column = _SINGULAR.get(column.lower(), column) or "value"
    return Role(column, split_word(name), number)


class NamedArray(NamedTuple):
    """An array, what its name says, and its folder: others never stand side by side."""

    array: RowArray
    role: Role
    folder: str


def parts_of(named: Sequence[NamedArray], *, labels_last: bool = False) -> list[Part]:
    """Returns the parts that arrays belong to, in the order of the input.

    Positions in a file go on where it has several parts.

    Raises:
      InputError: names two arrays that do not fit each other.
    """
    columns = Counter((n.folder, n.role.split, n.role.column) for n in named)
    several = {key[:2] for key, times in columns.items() if times > 1}
    groups: dict[tuple[str, str, str], list[RowArray]] = {}
    for array, role, folder in named:
        is_numbered = (folder, role.split) in several
        key = (folder, role.split, role.number if is_numbered else "")
        groups.setdefault(key, []).append(array)
    parts = []
    positions: Counter[str] = Counter()
    for (_, split, _), arrays in groups.items():
        if labels_last:
            arrays.sort(key=lambda array: array.fields[0].is_integer)
        require_fit(arrays)
        path = arrays[0].file.path
        parts.append(Part(tuple(arrays), split, positions[path]))
        positions[path] += arrays[0].num_rows
    return parts


def require_fit(arrays: Sequence[RowArray]) -> None:
    """Checks that arrays have as many rows, and columns of different names."""
    first = arrays[0]
    for array in arrays:
        if array.num_rows != first.num_rows:
            raise InputError(
                f"{_where(first)} has {count(first.num_rows, 'row')}, but {_where(array)} "
                f"has {array.num_rows:,}; expected as many in all arrays that belong "
                "together. Convert only files that belong together, or give those that "
                "do not another split in their names, or another folder"
            )
    names = Counter(field.name for array in arrays for field in array.fields)
    for name, times in names.items():
        if times > 1:
            same = [a.file.path for a in arrays if name in [f.name for f in a.fields]]
            raise InputError(
                f"{count(times, 'array')} would be the column {name!r} of the same rows "
                f"({', '.join(same)}): rename one of them, or move it to another folder"
            )


def _where(array: RowArray) -> str:
    return f"{array.file.uri} ({', '.join(field.name for field in array.fields)})"


def require_same_columns(parts: Sequence[Part], class_names: ClassNames) -> None:
    """Refuses parts whose columns or shapes differ; labels are numbers of any type."""
    classes, first = dict(class_names), parts[0]

    def features(part: Part) -> dict[str, FeatureSpec]:
        return {f.name: f.feature(classes.get(f.name, ())) for f in part.fields}

    for part in parts[1:]:
        if features(part) != features(first):
            found, expected = (
                ", ".join(sorted(field.described for field in each.fields))
                for each in (part, first)
            )
            raise InputError(
                f"{part.file.uri}: has {found}, but {first.file.uri} has {expected}; "
                "expected the same columns in all files of an input: convert such files "
                "one by one"
            )


def files_of_names(
    files: Sequence[InputFile], option: str
) -> tuple[dict[str, InputFile], list[InputFile]]:
    """Returns the file of each column that `class_names` names, and the other files.

    The option is "names.txt" for the column label, or "fine=a.txt,coarse=b.txt".
    """
    found: dict[str, InputFile] = {}
    for text in filter(None, map(str.strip, option.split(","))):
        column, _, name = text.rpartition("=")
        same = [f for f in files if f.path == name or f.path.endswith(f"/{name}")]
        if len(same) != 1:
            raise InputError(
                f"`class_names`: {len(same) or 'no'} input files are named {name!r}; "
                "expected one: name it among the inputs, by its path below them"
            )
        found[column or "label"] = same[0]
    paths = {file.path for file in found.values()}
    return found, [file for file in files if file.path not in paths]


def read_class_names(
    found: dict[str, InputFile], columns: Sequence[str], storage: StorageOptions
) -> tuple[ClassNames, tuple[FileChecksum, ...]]:
    """Reads the class names of columns, which have to be single integers."""
    names, read = [], []
    for column, file in found.items():
        if column not in columns:
            raise InputError(
                f"`class_names`: there is no column {column!r} of single integers; "
                f"expected one of {', '.join(columns) or 'none'}: write COLUMN=FILE"
            )
        own, checksum = read_names(file, storage)
        names.append((column, own))
        read.append(checksum)
    return tuple(names), tuple(read)


def read_names(
    file: InputFile, storage: StorageOptions, expected: int = 0
) -> tuple[tuple[str, ...], FileChecksum]:
    """Reads class names, one a line: as many as are expected, or any number for 0."""
    if file.size > MAX_NAMES_BYTES:
        found = f"has {file.size:,} bytes"
        raise InputError(f"{file.uri}: {found}, too many for names of classes")
    content, checksum = read_summed(file, storage)
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.uri}: class names are not UTF-8: {error}. Write one name a line, in "
            "UTF-8"
        ) from error
    names = tuple(filter(None, map(str.strip, lines)))
    if expected and len(names) != expected:
        raise InputError(f"{file.uri}: {len(names)} class names, expected {expected}")
    if not names:
        raise InputError(f"{file.uri}: has no class names; expected one a line")
    if len(set(names)) < len(names):
        twice = next(name for n, name in enumerate(names) if name in names[:n])
        raise InputError(
            f"{file.uri}: class name {twice!r} is given twice; rename one of them"
        )
    return names, checksum
