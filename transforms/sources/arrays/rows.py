"""Reads rows of arrays as matrices of bytes, and makes Arrow columns of them.

Each range says which bytes of its files it stands for, with their checksums. A file whose
rows follow each other is read once, by the ranges of its rows: what stands before the
first row belongs to the first range, what follows the last row to the last one. Of
another file (compressed, with several arrays, in Fortran order) each range reads a
share, whatever the bytes hold.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms import native
from recordmill.transforms.arrow import U8, binary_array, empty_bytes, offsets_of
from recordmill.transforms.sources.arrays.array_parts import (
    ClassNames,
    Field,
    Part,
    RowArray,
)
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import (
    open_input,
    read_into,
    read_range,
    read_rows,
)
from recordmill.transforms.tfrecord import crc32c

STEP_BYTES = 4 << 20  # of a file that are read at once
_FEW = 4  # planes of an image that are copied one by one
_HALF_CHARACTERS = (0xD800, 0xDFFF)
Reasons = dict[int, str]


def unpacked(array: RowArray, storage: StorageOptions) -> InputStream:
    """Returns the bytes that a compressed array unpacks to."""
    file, part = array.file, (array.packed_start, array.packed_stop)
    read = open_input(file.uri, storage, file.seen).read
    # Its end counts as that of the file: what is missing before it is damage.
    return InputStream(
        read, part[1], uri=file.uri, part=part, compression=array.packing
    )


def matrices(
    array: RowArray,
    num_rows: int,
    rows: tuple[int, int],
    step: int,
    storage: StorageOptions,
) -> Iterator[U8]:
    """Yields rows as matrices of shape (rows, bytes of one), some at a time.

    The array has so many rows; of a packed one all are read.
    """
    if array.packing:
        yield from _unpacked_matrices(array, num_rows, step, storage)
        return
    start, stop = rows
    for first in range(start, stop, step):
        last = min(first + step, stop)
        if array.transposed:
            yield _transposed_rows(array, num_rows, first, last, storage)
            continue
        size = array.row_bytes
        begin, data = array.start + first * size, empty_bytes((last - first) * size)
        file = array.file
        found = read_into(file.uri, begin, data, storage, file.seen)
        _require_bytes(file, begin, found, len(data))
        yield data.reshape(last - first, size)


def _transposed_rows(
    array: RowArray, num_rows: int, first: int, last: int, storage: StorageOptions
) -> U8:
    """Reads rows of an array in Fortran order.

    An array of 3 rows and 2 columns, a b | c d | e f, is stored as a c e b d f. For its
    last two rows two pieces are read, c e and d f, and laid side by side.
    """
    item = array.transposed
    columns = array.row_bytes // item
    pieces = np.empty((columns, (last - first) * item), np.uint8)
    offsets = array.start + (np.arange(columns) * num_rows + first) * item
    file = array.file
    read_rows(file.uri, offsets, pieces, np.arange(columns), storage, file.seen)
    cells = pieces.reshape(columns, last - first, item).transpose(1, 0, 2)
    return np.ascontiguousarray(cells).reshape(last - first, array.row_bytes)


def _unpacked_matrices(
    array: RowArray, num_rows: int, step: int, storage: StorageOptions
) -> Iterator[U8]:
    stream = unpacked(array, storage)
    size, uri = array.row_bytes, array.file.uri
    crc = zlib.crc32(stream.read(array.start))
    for first in range(0, num_rows, step):
        rows = min(step, num_rows - first)
        data = stream.read(rows * size)
        crc = zlib.crc32(data, crc)
        if len(data) < rows * size:
            raise InputError(
                f"{uri}: its header says {count(num_rows, 'row')} of {size:,} bytes, but "
                f"the data ends after {array.start + first * size + len(data):,} bytes. "
                "The file is cut short: copy it again"
            )
        yield np.frombuffer(data, np.uint8).reshape(rows, size)
    left = 0
    while more := stream.read(STEP_BYTES):
        left, crc = left + len(more), zlib.crc32(more, crc)
    if left and array.packing == "gzip":
        raise InputError(
            f"{uri}: {count(left, 'byte')} after its {count(num_rows, 'row')} of "
            f"{size:,} bytes: the header is wrong, or another file was joined to it"
        )
    if array.crc32 is not None and crc != array.crc32:
        raise InputError(
            f"{uri}: the data has not the checksum that the file states. It is damaged: "
            "copy it again"
        )


def rows_of(part: Part, input_range: InputRange) -> tuple[int, int]:
    """Returns the first row of a range, and one after its last."""
    first = max(0, input_range.start - part.first) // part.scale
    last = min(part.num_rows, (input_range.stop - part.first) // part.scale)
    return first, max(first, last)


class PartIndex:
    """The parts of an input by their files."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._by_first: dict[str, list[Part]] = {}
        for part in parts:
            self._by_first.setdefault(part.file.path, []).append(part)
        self._parts = parts

    @cached_property
    def _by_file(self) -> dict[str, list[Part]]:
        found: dict[str, list[Part]] = {}
        for part in self._parts:
            for path in {array.file.path for array in part.arrays}:
                found.setdefault(path, []).append(part)
        return found

    @cached_property
    def _users(self) -> Counter[str]:
        return Counter(a.file.path for part in self._parts for a in part.arrays)

    def part_of(self, input_range: InputRange) -> Part:
        """Returns the part that a range is of."""
        for part in self._by_first.get(input_range.path, ()):
            if part.stop >= input_range.stop:
                return part
        raise ValueError(f"{input_range.uri}: no part holds {input_range.stop}")

    def reads_once(self, array: RowArray) -> bool:
        """Tells whether the ranges of rows read each byte of an array's file once."""
        return self._users[array.file.path] == 1 and array.is_sequential

    def share(
        self, file: InputFile, part: Part, first: int, last: int
    ) -> tuple[int, int]:
        """Returns the bytes of a file whose checksum some rows of a part tell.

        Of a file with two parts of 100 and 300 rows, those of the first one tell the
        first quarter.
        """
        parts = self._by_file[file.path]
        total = sum(each.num_rows for each in parts)
        before = sum(each.num_rows for each in parts[: parts.index(part)])
        start = file.size * (before + first) // total
        return start, file.size * (before + last) // total


class RangeChecksums:
    """Computes the checksums of what a range stands for, while its rows are read.

    Attributes:
      tail: bytes after the last row of the first array, in the last range.
    """

    def __init__(
        self,
        index: PartIndex,
        part: Part,
        rows: tuple[int, int],
        storage: StorageOptions,
    ) -> None:
        self._index, self._part, self._storage = index, part, storage
        self._rows = rows
        self._crcs: dict[int, int] = {}
        self.tail = b""
        for number, array in enumerate(part.arrays):
            if index.reads_once(array):
                begin, first_row, _, _ = self._edges(array)
                head = _read_exactly(array.file, begin, first_row, storage)
                self._crcs[number] = crc32c(head, 0)

    def _edges(self, array: RowArray) -> tuple[int, int, int, int]:
        """Returns where what belongs to the rows begins, the rows, their end, its end."""
        first, last = self._rows
        start, stop = (array.start + row * array.row_bytes for row in self._rows)
        end = array.file.size if last == self._part.num_rows else stop
        return start if first else 0, start, stop, end

    def add(self, found: Sequence[U8]) -> None:
        """Adds rows of all arrays that were read."""
        for number, crc in self._crcs.items():
            self._crcs[number] = crc32c(found[number].data, crc)

    def finish(self) -> Iterator[FileChecksum]:
        """Reads what no row is made of, and yields the checksums."""
        shared = {}
        for number, array in enumerate(self._part.arrays):
            if number in self._crcs:
                begin, _, last_row, end = self._edges(array)
                rest = _read_exactly(array.file, last_row, end, self._storage)
                self.tail = self.tail or rest
                crc = crc32c(rest, self._crcs[number])
                yield FileChecksum(array.file.path, begin, end, crc)
            else:
                shared[array.file.path] = array.file
        for file in shared.values():
            share = self._index.share(file, self._part, *self._rows)
            yield checksum_of(file, *share, self._storage)


def checksum_of(
    file: InputFile, start: int, stop: int, storage: StorageOptions
) -> FileChecksum:
    """Reads a part of a file for its checksum."""
    crc = 0
    for begin in range(start, stop, STEP_BYTES):
        end = min(begin + STEP_BYTES, stop)
        crc = crc32c(_read_exactly(file, begin, end, storage), crc)
    return FileChecksum(file.path, start, stop, crc)


def _read_exactly(
    file: InputFile, start: int, stop: int, storage: StorageOptions
) -> bytes:
    data = read_range(file.uri, start, stop, storage, file.seen)
    _require_bytes(file, start, len(data), stop - start)
    return data


def _require_bytes(file: InputFile, start: int, found: int, expected: int) -> None:
    if found < expected:
        raise ChangedInputError(
            f"{file.uri}: ends at byte {start + found}, but had {file.size} bytes when "
            "the run began; did it change meanwhile?"
        )


def part_batch(
    part: Part,
    found: Sequence[U8],
    class_names: ClassNames,
    is_wanted: Callable[[Field], bool] = lambda _: True,
) -> tuple[pa.RecordBatch, Reasons]:
    """Returns columns of the fields that are wanted, and the reasons of rejects."""
    classes = dict(class_names)
    columns: dict[str, pa.Array] = {}
    reasons: Reasons = {}
    for array, records in zip(part.arrays, found, strict=True):
        for field in filter(is_wanted, array.fields):
            num_classes = len(classes.get(field.name, ()))
            columns[field.name], wrong = _column_of(records, field, num_classes)
            for row, reason in wrong.items():
                reasons.setdefault(row, f"{array.file.path}: {reason}")
    return pa.RecordBatch.from_pydict(columns), reasons


def _column_of(
    records: U8, field: Field, classes: int
) -> tuple[pa.Array, Mapping[int, str]]:
    """Returns a column, and the reasons of rows without a valid value."""
    num_rows = len(records)
    if field.constant is not None:
        return pa.array(np.full(num_rows, field.constant, np.int64)), {}
    if field.is_bytes:
        offsets = np.arange(num_rows + 1, dtype=np.int64) * field.num_bytes
        return binary_array(offsets, _pixels(records, field)), {}
    cells = np.ascontiguousarray(
        records[:, field.offset : field.offset + field.num_bytes]
    )
    stored = np.dtype(field.dtype)
    if classes:
        return _labels(cells.view(stored).reshape(num_rows), field, classes)
    is_text = stored.kind in "SVU"
    item = np.dtype(f"V{stored.itemsize}") if is_text else stored
    values = cells.view(item).reshape(num_rows, *field.shape)
    if field.axes:
        values = _with_axes(values, field.axes)
    reasons: Reasons = {}
    if is_text:
        items = values.reshape(-1).view(np.uint8).reshape(-1, stored.itemsize)
        flat, reasons = _texts(items, num_rows, stored)
    else:
        flat = pa.array(plain_values(values.reshape(-1), stored))
    if field.shape:
        flat = pa.FixedSizeListArray.from_arrays(flat, math.prod(field.shape))
    return flat, reasons


def plain_values(values: npt.NDArray[Any], stored: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns values in the byte order of this machine, of a type that encoders take."""
    if stored.kind == "b":
        # A byte other than 0 and 1 is true, too, but Arrow would not know.
        return np.asarray(values.view(np.uint8) != 0)
    if stored.kind == "f":
        return values.astype(np.float64 if stored.itemsize == 8 else np.float32)
    if stored.kind == "u" and stored.itemsize == 8:
        return values.astype(np.uint64)
    return values.astype(np.int64)


def _pixels(records: U8, field: Field) -> U8:
    """Returns the bytes of arrays of uint8, one after the other, with their axes."""
    num_rows, is_planes = len(records), field.axes == (1, 2, 0) and field.shape[0] == 3
    if is_planes:
        result = empty_bytes(num_rows * field.num_bytes)
        rows = np.ascontiguousarray(records)
        native.loops.interleave(rows, field.offset, num_rows, result)
        return result
    cells = records[:, field.offset : field.offset + field.num_bytes]
    if field.axes:
        cells = _with_axes(cells.reshape(num_rows, *field.shape), field.axes)
    return np.ascontiguousarray(cells).reshape(-1)


def _with_axes(values: npt.NDArray[Any], axes: Sequence[int]) -> npt.NDArray[Any]:
    """Returns values with other axes, row-major again.

    Planes of red, green and blue become pixels: r0 r1 g0 g1 b0 b1 -> r0 g0 b0 r1 g1 b1.
    """
    turned = values.transpose(0, *(axis + 1 for axis in axes))
    if turned.shape[-1] > _FEW:
        return np.ascontiguousarray(turned)
    result = np.empty(turned.shape, turned.dtype)
    for plane in range(turned.shape[-1]):  # some strided copies beat one transpose
        result[..., plane] = turned[..., plane]
    return result


def _labels(
    values: npt.NDArray[Any], field: Field, classes: int
) -> tuple[pa.Array, Reasons]:
    """Returns class indices; a label that is none has a reason, and index 0."""
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int64)
        wrong = (labels != values) | (labels < 0)
    if field.wraps:
        table = np.array(field.wraps, np.int64)
        wrong |= labels >= len(table)
        labels = table[np.where(wrong, 0, labels)]
    wrong |= (labels < 0) | (labels >= classes)
    if not wrong.any():
        return pa.array(labels), {}
    valid = [n for n, found in enumerate(field.wraps) if found >= 0]
    least, most = (valid[0], valid[-1]) if valid else (0, classes - 1)
    reasons = {
        row: f"{field.name}: {values[row].item()} is not the label of a class "
        f"({least} to {most})"
        for row in np.flatnonzero(wrong).tolist()
    }
    labels[wrong] = 0
    return pa.array(labels), reasons


def _texts(items: U8, num_rows: int, stored: np.dtype[Any]) -> tuple[pa.Array, Reasons]:
    """Returns raw bytes, or bytes or text without the zeros that fill it up."""
    size = stored.itemsize
    if stored.kind == "U":
        return _unicode(items, num_rows, stored)
    if stored.kind == "V":
        offsets = np.arange(len(items) + 1, dtype=np.int64) * size
        return binary_array(offsets, items.reshape(-1)), {}
    lengths = size - np.argmax(items[:, ::-1] != 0, axis=1)
    lengths[~items.any(axis=1)] = 0
    inside = np.arange(size) < lengths[:, np.newaxis]
    return binary_array(offsets_of(lengths), items[inside]), {}


def _unicode(
    items: U8, num_rows: int, stored: np.dtype[Any]
) -> tuple[pa.Array, Reasons]:
    points = items.view(stored.byteorder.replace("|", "=") + "u4")
    each = items.size // 4 // max(1, num_rows)
    points = points.astype(np.uint32).reshape(num_rows, each)
    low, high = _HALF_CHARACTERS
    wrong = (points > 0x10FFFF) | ((points >= low) & (points <= high))
    reasons = {
        row: f"U+{points[row][wrong[row]][0]:X} is not a character of Unicode"
        for row in np.flatnonzero(wrong.any(axis=1)).tolist()
    }
    points[wrong] = 0
    # Values one by one: Arrow would end a text at its first zero. Such arrays are small.
    length = stored.itemsize // 4
    texts = points.reshape(len(items), length).view(f"=U{length}")
    return pa.array(texts.reshape(-1).tolist(), pa.string()), reasons
