"""Describes arrays of rows in files, and the parts of an input that they form.

A part is a group of arrays that share their rows: row i of the images belongs to row i
of the labels.

    train-images   row 0 | row 1 | ...     784 bytes each, from byte 16 on
    train-labels   row 0 | row 1 | ...     1 byte each, from byte 8 on

The name of a file or an array determines its column and its split:

    train-images-idx3-ubyte.gz    images, train
    x_test.npy                    x, test
    labels_0.npy, labels_1.npy    labels, in two consecutive parts

Arrays of the same folder and split are columns of one part. If a column occurs several
times, only arrays with the same number in their names form a part.
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
from recordmill.schemas.text import format_count
from recordmill.transforms.sources.file_splits import remove_split_word, split_word
from recordmill.transforms.storage.reading import read_summed

MAX_ROW_BYTES = 256 << 20
MAX_NAMES_BYTES = 16 << 20
ClassNames = tuple[tuple[str, tuple[str, ...]], ...]
Compression = Literal["", "gzip", "deflate"]

_SINGULAR_NAMES = {"images": "image", "labels": "label"}
_STORED_TYPES = {  # kind and dtype of features by NumPy's kind; all other kinds are int64
    "b": (Kind.INT64, "bool"),
    "f": (Kind.FLOAT, "float32"),
    "S": (Kind.BYTES, "bytes"),
    "V": (Kind.BYTES, "bytes"),
    "U": (Kind.BYTES, "string"),
}
_IGNORED_WORD = re.compile(r"idx\d?|ubyte|gz|npy|npz", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of each row: one scalar, or one array."""

    name: str  # name of the column
    dtype: str  # stored dtype as in NumPy, such as "<f4"; "|V10" for raw bytes
    # stored shape, in row-major (C) order; () for a scalar
    shape: tuple[int, ...] = ()
    # index of the stored axis for each axis of the value; () if the order is unchanged
    axes: tuple[int, ...] = ()
    offset: int = 0  # byte offset of the field in a row of its array
    first_label: int = 0  # stored label of the first class
    # value of all rows if it is not stored, else None
    constant_value: int | None = None

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Returns the shape of the value, with its axes in the requested order."""
        return tuple(self.shape[axis] for axis in self.axes) or self.shape

    @property
    def num_bytes(self) -> int:
        """Returns the number of bytes that the field takes in a row."""
        if self.constant_value is not None:
            return 0
        return int(np.dtype(self.dtype).itemsize) * math.prod(self.shape)

    @property
    def is_integer(self) -> bool:
        """Returns whether the field is a single integer, which can be a class label."""
        return not self.shape and self.dtype[1] in "iu"

    @property
    def is_bytes(self) -> bool:
        """Returns whether the field is an array of uint8, which is stored as bytes."""
        return self.dtype.endswith("u1") and bool(self.shape)

    @property
    def description(self) -> str:
        """Returns name, type and shape as text for messages."""
        dtype = np.dtype(self.dtype)
        name = {"S": "bytes", "V": "bytes", "U": "text"}.get(dtype.kind, dtype.name)
        shape = f" [{', '.join(map(str, self.value_shape))}]" if self.shape else ""
        return f"{self.name} {name}{shape}"

    def to_feature(self, class_names: tuple[str, ...]) -> FeatureSpec:
        """Returns the feature that stores the field.

        With class names, the feature is a class label. Pixels stay bytes, because readers
        of image arrays expect bytes.
        """
        if class_names or self.constant_value is not None:
            return FeatureSpec(self.name, Kind.INT64, class_names=class_names)
        if self.is_bytes:
            kind, dtype, content = Kind.BYTES, "uint8", Content.ARRAY
        else:
            numpy_kind, content = np.dtype(self.dtype).kind, Content.VALUES
            kind, dtype = _STORED_TYPES.get(numpy_kind, (Kind.INT64, "int64"))
        shape = self.value_shape
        return FeatureSpec(self.name, kind, dtype=dtype, shape=shape, content=content)

    def has_fixed_size(self, num_classes: int) -> bool:
        """Returns whether the feature takes the same number of bytes in every record."""
        if num_classes:
            return num_classes <= 128  # an index takes one byte
        kind = np.dtype(self.dtype).kind
        return self.constant_value is not None or self.is_bytes or kind in "bfV"


@dataclass(frozen=True, slots=True)
class RowArray:
    """An array whose rows have equal size and follow each other in a file."""

    file: InputFile  # file that holds the array
    start: int = 0  # byte offset of the first row, in the file or in the unpacked data
    row_bytes: int = 1  # size of a row
    num_rows: int = 0  # number of rows
    fields: tuple[Field, ...] = ()  # fields of a row
    # compression of the bytes from `compressed_start` to `compressed_stop`
    compression: Compression = ""
    compressed_start: int = 0  # first compressed byte
    compressed_stop: int = 0  # one after the last compressed byte
    # CRC-32 of the unpacked data, or None if the compression format has its own checksum
    crc32: int | None = None
    # Size in bytes of a value if the array is in Fortran order, in which a file holds the
    # first value of all rows, then the second value of all rows; 0 in C order.
    fortran_value_bytes: int = 0

    @property
    def is_sequential(self) -> bool:
        """Returns whether consecutive rows are consecutive bytes of the file."""
        return not self.compression and not self.fortran_value_bytes

    @property
    def byte_span(self) -> tuple[int, int]:
        """Returns the first byte and one after the last byte of the rows in the file."""
        if self.compression:
            return self.compressed_start, self.compressed_stop
        return self.start, self.start + self.num_rows * self.row_bytes


@dataclass(frozen=True)
class ArrayGroup:
    """A group of arrays with the same number of rows, which become one set of columns."""

    # Origins of rows and rejects name the file of the first array.
    arrays: tuple[RowArray, ...]
    split: str = ""  # split that the file names state, or ""
    first_position: int = 0  # position of the first row in the first file
    # number of positions of a row: 1, or the size of the row in bytes
    positions_per_row: int = 1
    # number of bytes at the end of the file that are not a whole row
    tail_bytes: int = 0

    @property
    def num_rows(self) -> int:
        """Returns the number of rows of each array."""
        return self.arrays[0].num_rows

    @property
    def row_bytes(self) -> int:
        """Returns the size in bytes of a row in all arrays together."""
        return sum(array.row_bytes for array in self.arrays)

    @property
    def file(self) -> InputFile:
        """Returns the file that the origins of the rows name."""
        return self.arrays[0].file

    @property
    def is_compressed(self) -> bool:
        """Returns whether an array is compressed, and must be read from its first row."""
        return any(array.compression for array in self.arrays)

    @property
    def start(self) -> int:
        """Returns the first position, which includes a header before the rows."""
        return self.first_position if self.positions_per_row == 1 else 0

    @property
    def stop(self) -> int:
        """Returns one after the last position, which includes the tail of the file."""
        return (
            self.first_position
            + self.num_rows * self.positions_per_row
            + self.tail_bytes
        )

    @property
    def fields(self) -> tuple[Field, ...]:
        """Returns the fields of all arrays."""
        return tuple(field for array in self.arrays for field in array.fields)


def create_record_group(
    file: InputFile, size: int, fields: tuple[Field, ...], split: str, header: int = 0
) -> ArrayGroup:
    """Creates the part for records of `size` bytes that follow the header of a file."""
    num_rows, tail = divmod(file.size - header, size)
    array = RowArray(file, header, size, num_rows, fields)
    return ArrayGroup(
        (array,), split, first_position=header, positions_per_row=size, tail_bytes=tail
    )


class ArrayInput(NamedTuple):
    """The arrays, class names and skipped files that a format found in its input."""

    array_groups: tuple[ArrayGroup, ...] = ()  # in the order of the input
    class_names: ClassNames = ()  # column and names of each class label
    record_description: str = ""  # description of the records, for the input report
    skipped_files: Sequence[
        tuple[str, str]
    ] = ()  # (reason, path) of each file without rows
    # checksums of the files without rows that the conversion depends on
    other_checksums: tuple[FileChecksum, ...] = ()
    # reason of the reject for an incomplete record at a file's end
    tail_reason: str = ""


NO_ARRAYS = ArrayInput()
# Finds the arrays of a format, given its options, the files and the storage options.
FindArrays = Callable[[Any, Sequence[InputFile], StorageOptions], ArrayInput]


class NameRole(NamedTuple):
    """The column, split and number that the name of a file or an array states."""

    column: str  # name without split, number and ending; "value" if nothing is left
    split: str = ""
    number: str = ""  # digits of the name, joined by "-"


def parse_name_role(name: str) -> NameRole:
    """Returns the column, split and number that the name of a file or an array states.

    >>> parse_name_role("x_train_2.npy")
    NameRole(column='x', split='train', number='2')
    """
    words = re.split(r"[^\w]+|_", remove_split_word(name))
    words = [word for word in words if word and not _IGNORED_WORD.fullmatch(word)]
    number = "-".join(word for word in words if word.isdecimal())
    column = "_".join(word for word in words if not word.isdecimal())
    column = _SINGULAR_NAMES.get(column.lower(), column) or "value"
    return NameRole(column, split_word(name), number)


class NamedArray(NamedTuple):
    """An array with its role and its folder; arrays of two folders never share a part."""

    array: RowArray
    role: NameRole
    folder: str


def group_arrays(
    named_arrays: Sequence[NamedArray], *, labels_last: bool = False
) -> list[ArrayGroup]:
    """Groups arrays into parts, in the order of the input.

    If a file belongs to several parts, the positions of a part continue the positions of
    the part before it.

    Args:
      named_arrays: The arrays, with their roles and folders.
      labels_last: Whether the columns of single integers come last in each part.

    Raises:
      InputError: two arrays of a part have different numbers of rows or the same column.
    """
    columns = Counter((n.folder, n.role.split, n.role.column) for n in named_arrays)
    repeated_columns = {key[:2] for key, times in columns.items() if times > 1}
    groups: dict[tuple[str, str, str], list[RowArray]] = {}
    for array, role, folder in named_arrays:
        is_numbered = (folder, role.split) in repeated_columns
        key = (folder, role.split, role.number if is_numbered else "")
        groups.setdefault(key, []).append(array)
    parts = []
    positions: Counter[str] = Counter()
    for (_, split, _), arrays in groups.items():
        if labels_last:
            arrays.sort(key=lambda array: array.fields[0].is_integer)
        require_same_rows(arrays)
        path = arrays[0].file.path
        parts.append(ArrayGroup(tuple(arrays), split, positions[path]))
        positions[path] += arrays[0].num_rows
    return parts


def require_same_rows(arrays: Sequence[RowArray]) -> None:
    """Checks that arrays have the same number of rows and different column names."""
    first = arrays[0]
    for array in arrays:
        if array.num_rows != first.num_rows:
            raise InputError(
                f"{_describe_location(first)} has {format_count(first.num_rows, 'row')}, but "
                f"{_describe_location(array)} has {array.num_rows:,}; expected the same number in "
                "all arrays that belong together. Convert only files that belong "
                "together, or move the others to another split (by their names) or "
                "another folder"
            )
    names = Counter(field.name for array in arrays for field in array.fields)
    for name, times in names.items():
        if times > 1:
            matching_paths = [
                a.file.path for a in arrays if name in [f.name for f in a.fields]
            ]
            raise InputError(
                f"{format_count(times, 'array')} would be the column {name!r} of the same rows "
                f"({', '.join(matching_paths)}): rename one of them, or move it to another folder"
            )


def _describe_location(array: RowArray) -> str:
    return f"{array.file.uri} ({', '.join(field.name for field in array.fields)})"


def require_same_columns(parts: Sequence[ArrayGroup], class_names: ClassNames) -> None:
    """Checks that all parts have the same features; labels may differ in integer type."""
    classes, first = dict(class_names), parts[0]

    def features(part: ArrayGroup) -> dict[str, FeatureSpec]:
        return {f.name: f.to_feature(classes.get(f.name, ())) for f in part.fields}

    for part in parts[1:]:
        if features(part) != features(first):
            actual_columns, expected_columns = (
                ", ".join(sorted(field.description for field in compared_part.fields))
                for compared_part in (part, first)
            )
            raise InputError(
                f"{part.file.uri}: has {actual_columns}, but {first.file.uri} has {expected_columns}; "
                "expected the same columns in all files of an input: convert such files "
                "one by one"
            )


def split_names_files(
    files: Sequence[InputFile], option: str
) -> tuple[dict[str, InputFile], list[InputFile]]:
    """Returns the files that `class_names` names, by column, and the other files.

    The option is "names.txt" for the column label, or "fine=a.txt,coarse=b.txt".
    """
    files_by_column: dict[str, InputFile] = {}
    for text in filter(None, map(str.strip, option.split(","))):
        column, _, name = text.rpartition("=")
        matching_files = [
            f for f in files if f.path == name or f.path.endswith(f"/{name}")
        ]
        if len(matching_files) != 1:
            raise InputError(
                f"`class_names`: {len(matching_files) or 'no'} input files are named {name!r}; "
                "expected one: name it among the inputs, by its path below them"
            )
        files_by_column[column or "label"] = matching_files[0]
    paths = {file.path for file in files_by_column.values()}
    return files_by_column, [file for file in files if file.path not in paths]


def read_class_names(
    files_by_column: dict[str, InputFile],
    columns: Sequence[str],
    storage: StorageOptions,
) -> tuple[ClassNames, tuple[FileChecksum, ...]]:
    """Reads the class names of columns, which must be columns of single integers."""
    names, checksums = [], []
    for column, file in files_by_column.items():
        if column not in columns:
            raise InputError(
                f"`class_names`: column {column!r} of single integers does not exist; "
                f"expected one of {', '.join(columns) or 'none'}: write COLUMN=FILE"
            )
        class_names, checksum = read_names(file, storage)
        names.append((column, class_names))
        checksums.append(checksum)
    return tuple(names), tuple(checksums)


def read_names(
    file: InputFile, storage: StorageOptions, expected: int = 0
) -> tuple[tuple[str, ...], FileChecksum]:
    """Reads class names, one per line; 0 as `expected` accepts any number of names."""
    if file.size > MAX_NAMES_BYTES:
        problem = f"has {file.size:,} bytes"
        raise InputError(f"{file.uri}: {problem}, too many for class names")
    content, checksum = read_summed(file, storage)
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.uri}: class names are not UTF-8: {error}. Write one name per line, "
            "in UTF-8"
        ) from error
    names = tuple(filter(None, map(str.strip, lines)))
    if expected and len(names) != expected:
        raise InputError(f"{file.uri}: {len(names)} class names, expected {expected}")
    if not names:
        raise InputError(f"{file.uri}: has no class names; expected one per line")
    if len(set(names)) < len(names):
        repeated_name = next(name for n, name in enumerate(names) if name in names[:n])
        raise InputError(
            f"{file.uri}: class name {repeated_name!r} is given twice; rename one of them"
        )
    return names, checksum
