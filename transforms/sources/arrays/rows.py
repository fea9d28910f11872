"""Reads rows of arrays as matrices of bytes, and converts them to Arrow columns.

The ranges of an input cover every byte of its files exactly once, so the checksums of all
ranges cover the whole files. An array covers the bytes from the end of the previous array
in the file to its own end. The range of the first row includes the bytes before that row,
and the last range includes the bytes after the last row. In Fortran order the rows of a
range are not contiguous, so each range computes the checksum of an equal share of the
bytes.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms import native
from recordmill.transforms.arrow import U8, binary_array, empty_bytes, offsets_of
from recordmill.transforms.sources.arrays.array_parts import (
    ArrayGroup,
    ClassNames,
    Field,
    RowArray,
)
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import open_input, open_stream

_STEP_BYTES = 4 << 20  # unpacked at once after the last row
# maximum number of planes of an image that are copied one by one
_MAX_COPIED_PLANES = 4
_HALF_CHARACTERS = (0xD800, 0xDFFF)
RejectReasons = dict[int, str]


def open_array(
    array: RowArray, storage: StorageOptions, part: tuple[int, int] | None = None
) -> InputStream:
    """Opens a part of an array's file, or the unpacked data of a compressed array."""
    file = array.file
    source = open_input(file.uri, storage, file.stat)

    def read(start: int, stop: int) -> Any:
        buffer = empty_bytes(stop - start)
        return buffer[: source.read_into(start, buffer)].data

    if not array.compression:
        return InputStream(read, file.size, uri=file.uri, part=part)
    part = (array.compressed_start, array.compressed_stop)
    # The end of the packed data counts as the end of the file, so that missing bytes
    # before it are reported as damage.
    return InputStream(
        source.read, part[1], uri=file.uri, part=part, compression=array.compression
    )


class ArrayRows:
    """A reader of the rows of an array in one range, and of the bytes that they cover."""

    def __init__(
        self,
        array: RowArray,
        rows: tuple[int, int],
        bounds: tuple[int, int],
        storage: StorageOptions,
    ) -> None:
        """Opens an array.

        Args:
          array: The array.
          rows: Index of the first row, and one after the last row.
          bounds: First byte, and one after the last byte, that all rows of the array
            cover in the file.
          storage: Options of the storage.
        """
        self._array, self._rows = array, rows
        self._bounds, self._storage = bounds, storage
        (first, last), (begin, end), num_rows = rows, bounds, array.num_rows
        if array.is_sequential:
            start, stop = (array.start + row * array.row_bytes for row in rows)
            part = start if first else begin, end if last == num_rows else stop
        elif num_rows:
            size = end - begin
            part = begin + size * first // num_rows, begin + size * last // num_rows
        self._stream = open_array(array, storage, part)

    def read_matrices(self, step: int) -> Iterator[U8]:
        """Yields matrices of shape (rows, bytes per row), with `step` rows each."""
        array, (start, stop) = self._array, self._rows
        if array.compression:
            yield from self._read_compressed(step)
            return
        if array.is_sequential:
            self._stream.part(self._stream.start, array.start)  # for the checksum
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if array.fortran_value_bytes:
                yield _transposed_rows(array, first, last, self._storage)
                continue
            begin, end = (array.start + row * array.row_bytes for row in (first, last))
            row_bytes = np.frombuffer(self._stream.part(begin, end), np.uint8)
            yield row_bytes.reshape(last - first, array.row_bytes)

    def read_tail(self, num_bytes: int) -> bytes:
        """Returns the last `num_bytes` bytes of the file."""
        size = self._array.file.size
        return bytes(self._stream.part(size - num_bytes, size))

    def read_checksums(self) -> Iterator[FileChecksum]:
        """Reads the covered bytes that hold no rows, and yields the checksums."""
        file, stream = self._array.file, self._stream
        if self._array.compression:
            yield compute_checksum(file, self._bounds[0], stream.start, self._storage)
            yield compute_checksum(file, stream.stop, self._bounds[1], self._storage)
        yield FileChecksum(
            file.path, stream.start, stream.stop, stream.checksum_of_part()
        )
        stream.part(0, 0)  # an empty part: releases the memory of the last rows

    def _read_compressed(self, step: int) -> Iterator[U8]:
        array, stream = self._array, self._stream
        size, num_rows, uri = array.row_bytes, array.num_rows, array.file.uri
        crc = zlib.crc32(stream.read(array.start))
        for first in range(0, num_rows, step):
            rows = min(step, num_rows - first)
            row_bytes = stream.read(rows * size)
            crc = zlib.crc32(row_bytes, crc)
            if len(row_bytes) < rows * size:
                raise InputError(
                    f"{uri}: its header declares {format_count(num_rows, 'row')} of {size:,} "
                    "bytes, but the data ends after "
                    f"{array.start + first * size + len(row_bytes):,} bytes. The file is "
                    "cut short: copy it again"
                )
            yield np.frombuffer(row_bytes, np.uint8).reshape(rows, size)
        num_extra_bytes = 0
        while extra_bytes := stream.read(_STEP_BYTES):
            num_extra_bytes, crc = (
                num_extra_bytes + len(extra_bytes),
                zlib.crc32(extra_bytes, crc),
            )
        if num_extra_bytes and array.compression == "gzip":
            raise InputError(
                f"{uri}: {format_count(num_extra_bytes, 'byte')} after its {format_count(num_rows, 'row')} of "
                f"{size:,} bytes: the header is wrong, or another file was joined to it"
            )
        if array.crc32 is not None and crc != array.crc32:
            raise InputError(
                f"{uri}: the checksum of the data differs from the checksum in the "
                "file. The file is damaged: copy it again"
            )


def compute_checksum(
    file: InputFile, start: int, stop: int, storage: StorageOptions
) -> FileChecksum:
    """Reads a part of a file and returns its checksum."""
    crc = open_stream(file, storage, part=(start, stop)).checksum_of_part()
    return FileChecksum(file.path, start, stop, crc)


def _transposed_rows(
    array: RowArray, first: int, last: int, storage: StorageOptions
) -> U8:
    """Reads rows of an array in Fortran order.

    An array of 3 rows and 2 columns, a b | c d | e f, is stored as a c e b d f. For its
    last two rows the pieces c e and d f are read and joined: c d | e f.
    """
    value_bytes = array.fortran_value_bytes
    columns = array.row_bytes // value_bytes
    pieces = np.empty((columns, (last - first) * value_bytes), np.uint8)
    offsets = array.start + (np.arange(columns) * array.num_rows + first) * value_bytes
    file = array.file
    source = open_input(file.uri, storage, file.stat)
    source.read_rows(offsets, pieces, np.arange(columns))
    cells = pieces.reshape(columns, last - first, value_bytes).transpose(1, 0, 2)
    return np.ascontiguousarray(cells).reshape(last - first, array.row_bytes)


def create_batch(
    part: ArrayGroup,
    matrices: Sequence[U8],
    class_names: ClassNames,
    is_wanted: Callable[[Field], bool] = lambda _: True,
) -> tuple[pa.RecordBatch, RejectReasons]:
    """Converts rows of all arrays of a part to a batch.

    Args:
      part: The part.
      matrices: The rows of each array, as matrices of bytes.
      class_names: Class names by column.
      is_wanted: Predicate that selects the fields.

    Returns:
      The batch, and the reasons to reject rows, by row index. A reason names the file
        of the field if it differs from the file in the origin of the row.
    """
    classes = dict(class_names)
    columns: dict[str, pa.Array] = {}
    reasons: RejectReasons = {}
    for array, records in zip(part.arrays, matrices, strict=True):
        location = f"{array.file.path}: " if array.file != part.file else ""
        for field in filter(is_wanted, array.fields):
            num_classes = len(classes.get(field.name, ()))
            columns[field.name], row_reasons = _create_column(
                records, field, num_classes
            )
            for row, reason in row_reasons.items():
                reasons.setdefault(row, location + reason)
    return pa.RecordBatch.from_pydict(columns), reasons


def _create_column(
    records: U8, field: Field, classes: int
) -> tuple[pa.Array, Mapping[int, str]]:
    num_rows = len(records)
    if field.constant_value is not None:
        return pa.array(np.full(num_rows, field.constant_value, np.int64)), {}
    if field.is_bytes:
        offsets = np.arange(num_rows + 1, dtype=np.int64) * field.num_bytes
        return binary_array(offsets, _interleave_pixels(records, field)), {}
    cells = np.ascontiguousarray(
        records[:, field.offset : field.offset + field.num_bytes]
    )
    stored = np.dtype(field.dtype)
    if classes:
        return _convert_labels(cells.view(stored).reshape(num_rows), field, classes)
    is_text = stored.kind in "SVU"
    cell_dtype = np.dtype(f"V{stored.itemsize}") if is_text else stored
    cell_array = cells.view(cell_dtype).reshape(num_rows, *field.shape)
    if field.axes:
        cell_array = _transpose_axes(cell_array, field.axes)
    reasons: RejectReasons = {}
    if is_text:
        text_bytes = cell_array.reshape(-1).view(np.uint8).reshape(-1, stored.itemsize)
        flat, reasons = _convert_texts(text_bytes, num_rows, stored)
    else:
        flat = pa.array(to_native_dtype(cell_array.reshape(-1), stored))
    if field.shape:
        flat = pa.FixedSizeListArray.from_arrays(flat, math.prod(field.shape))
    return flat, reasons


def to_native_dtype(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Converts values to the native byte order and to a dtype that encoders accept."""
    if dtype.kind == "b":
        # NumPy treats every byte other than 0 as true; Arrow expects 0 or 1.
        return np.asarray(array.view(np.uint8) != 0)
    if dtype.kind == "f":
        return array.astype(np.float64 if dtype.itemsize == 8 else np.float32)
    if dtype.kind == "u" and dtype.itemsize == 8:
        return array.astype(np.uint64)
    return array.astype(np.int64)


def _interleave_pixels(records: U8, field: Field) -> U8:
    num_rows, is_planes = len(records), field.axes == (1, 2, 0) and field.shape[0] == 3
    if is_planes:
        pixels = empty_bytes(num_rows * field.num_bytes)
        rows = np.ascontiguousarray(records)
        native.loops.interleave(rows, field.offset, num_rows, pixels)
        return pixels
    cells = records[:, field.offset : field.offset + field.num_bytes]
    if field.axes:
        cells = _transpose_axes(cells.reshape(num_rows, *field.shape), field.axes)
    return np.ascontiguousarray(cells).reshape(-1)


def _transpose_axes(array: npt.NDArray[Any], axes: Sequence[int]) -> npt.NDArray[Any]:
    """Transposes the axes of each row, and returns a row-major array.

    Planes of red, green and blue become pixels: r0 r1 g0 g1 b0 b1 -> r0 g0 b0 r1 g1 b1.
    """
    permuted_array = array.transpose(0, *(axis + 1 for axis in axes))
    if permuted_array.shape[-1] > _MAX_COPIED_PLANES:
        return np.ascontiguousarray(permuted_array)
    transposed = np.empty(permuted_array.shape, permuted_array.dtype)
    for plane in range(permuted_array.shape[-1]):  # a few strided copies are faster
        transposed[..., plane] = permuted_array[..., plane]
    return transposed


def _convert_labels(
    stored_labels: npt.NDArray[Any], field: Field, classes: int
) -> tuple[pa.Array, RejectReasons]:
    """Converts labels to class indices; an invalid label gets a reason and index 0."""
    with np.errstate(invalid="ignore"):
        labels = stored_labels.astype(np.int64)
        is_wrong = labels != stored_labels
    labels -= field.first_label
    is_wrong |= (labels < 0) | (labels >= classes)
    reasons = {
        row: f"{field.name}: {stored_labels[row].item()} is not a class label "
        f"({field.first_label} to {field.first_label + classes - 1})"
        for row in np.flatnonzero(is_wrong).tolist()
    }
    labels[is_wrong] = 0
    return pa.array(labels), reasons


def _convert_texts(
    text_bytes: U8, num_rows: int, stored: np.dtype[Any]
) -> tuple[pa.Array, RejectReasons]:
    """Converts text and bytes of fixed size; strips zeros unless they are raw bytes."""
    size = stored.itemsize
    if stored.kind == "U":
        return _convert_unicode(text_bytes, num_rows, stored)
    if stored.kind == "V":
        offsets = np.arange(len(text_bytes) + 1, dtype=np.int64) * size
        return binary_array(offsets, text_bytes.reshape(-1)), {}
    lengths = size - np.argmax(text_bytes[:, ::-1] != 0, axis=1)
    lengths[~text_bytes.any(axis=1)] = 0
    inside = np.arange(size) < lengths[:, np.newaxis]
    return binary_array(offsets_of(lengths), text_bytes[inside]), {}


def _convert_unicode(
    text_bytes: U8, num_rows: int, stored: np.dtype[Any]
) -> tuple[pa.Array, RejectReasons]:
    points = text_bytes.view(stored.byteorder.replace("|", "=") + "u4")
    num_characters = text_bytes.size // 4 // max(1, num_rows)
    points = points.astype(np.uint32).reshape(num_rows, num_characters)
    low, high = _HALF_CHARACTERS
    is_wrong = (points > 0x10FFFF) | ((points >= low) & (points <= high))
    reasons = {
        row: f"U+{points[row][is_wrong[row]][0]:X} is not a character of Unicode"
        for row in np.flatnonzero(is_wrong.any(axis=1)).tolist()
    }
    points[is_wrong] = 0
    # Converted one by one, because Arrow ends a text at its first zero; such arrays are
    # small.
    length = stored.itemsize // 4
    texts = points.reshape(len(text_bytes), length).view(f"=U{length}")
    return pa.array(texts.reshape(-1).tolist(), pa.string()), reasons
