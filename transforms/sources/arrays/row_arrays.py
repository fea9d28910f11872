"""Describes arrays of rows in files, and the parts of an input that they are.

A part is what belongs side by side: row i of the images and row i of the labels.

    train-images   row 0 | row 1 | ...     784 bytes each, from byte 16 on
    train-labels   row 0 | row 1 | ...     1 byte each, from byte 8 on
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.storage_options import StorageOptions

Packing = Literal["", "gzip", "zlib", "deflate"]
MAX_ROW_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a row.

    Attributes:
      name: of the column.
      dtype: NumPy's text of the stored type, such as "<f4"; "|V10" for raw bytes.
      shape: as stored, row by row (C order); () for a single value.
      axes: the stored axis that each axis of the value is; () if it stays as it is.
      offset: first byte in the row of its array.
      wraps: the class of each stored label, -1 for none; () if the label is the class.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    axes: tuple[int, ...] = ()
    offset: int = 0
    wraps: tuple[int, ...] = ()

    @property
    def value_shape(self) -> tuple[int, ...]:
        """Returns the shape of the value."""
        return tuple(self.shape[axis] for axis in self.axes) or self.shape

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of a row that it takes."""
        return int(np.dtype(self.dtype).itemsize) * math.prod(self.shape)

    @property
    def described(self) -> str:
        """Returns name, type and shape in words."""
        found = np.dtype(self.dtype)
        name = {"S": "bytes", "V": "bytes", "U": "text"}.get(found.kind, found.name)
        return " ".join(filter(None, (self.name, name, _shape_text(self.value_shape))))


def _shape_text(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else ""


def feature_of(field: Field, class_names: tuple[str, ...]) -> FeatureSpec:
    """Returns how a field is stored; with the names of classes it is a class label.

    Bytes of pixels stay bytes, as all readers of image arrays expect.
    """
    found = np.dtype(field.dtype)
    shape = field.value_shape
    if class_names:
        return FeatureSpec(field.name, Kind.INT64, class_names=class_names)
    if found == np.uint8 and shape:
        return FeatureSpec(
            field.name, Kind.BYTES, dtype="uint8", shape=shape, content=Content.ARRAY
        )
    kind, dtype = {
        "b": (Kind.INT64, "bool"),
        "f": (Kind.FLOAT, "float32"),
        "S": (Kind.BYTES, "bytes"),
        "V": (Kind.BYTES, "bytes"),
        "U": (Kind.BYTES, "string"),
    }.get(found.kind, (Kind.INT64, "int64"))
    return FeatureSpec(field.name, kind, dtype=dtype, shape=shape)


@dataclass(frozen=True, slots=True)
class RowArray:
    """Rows of equal size, one after the other in a file.

    Attributes:
      file: where they are.
      start: the byte of the first row: in the file, or in what is unpacked.
      row_bytes: size of a row.
      fields: the values of a row.
      packing: how the bytes from `packed_start` to `packed_stop` are compressed.
      packed_start: first byte of what is compressed.
      packed_stop: one after its last byte.
      crc32: of all that is unpacked, or None where the packing itself checks it.
      transposed: bytes of a value whose first axis is that of the rows, so that a file
        holds the first value of all rows, then the second one (Fortran order); or 0.
    """

    file: InputFile
    start: int
    row_bytes: int
    fields: tuple[Field, ...]
    packing: Packing = ""
    packed_start: int = 0
    packed_stop: int = 0
    crc32: int | None = None
    transposed: int = 0

    @property
    def is_sequential(self) -> bool:
        """Tells whether following rows are following bytes of the file."""
        return not self.packing and not self.transposed


@dataclass(frozen=True)
class Part:
    """Arrays of as many rows, side by side.

    Attributes:
      arrays: what they are; rejects are told by the file of the first one.
      num_rows: of each.
      split: that the file names tell, or "".
      first: the position of the first row in the first file.
      scale: positions that a row takes: 1, or its bytes.
      tail: bytes at the end of the file that are not a whole row.
      constants: columns with one value in all rows.
    """

    arrays: tuple[RowArray, ...]
    num_rows: int
    split: str = ""
    first: int = 0
    scale: int = 1
    tail: int = 0
    constants: tuple[tuple[str, int], ...] = ()

    @cached_property
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


class Found(NamedTuple):
    """What a format made of its input.

    Attributes:
      parts: in the order of the input.
      class_names: of each column that is a class label.
      told: what the input was taken for, beside columns, rows and splits.
      read: the checksums of files that hold no rows, but what rows depend on.
      tail_reason: what a tail of a file is, for its reject.
    """

    parts: tuple[Part, ...]
    class_names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    told: Understood = NOTHING
    read: tuple[FileChecksum, ...] = ()
    tail_reason: str = ""


class Finder(Protocol):
    """Finds the arrays of one format; a frozen value that holds the format's options."""

    def find(self, files: Sequence[InputFile], storage: StorageOptions) -> Found:
        """Returns the arrays of files.

        Raises:
          InputError: the files cannot be of the format, or do not fit each other.
        """
