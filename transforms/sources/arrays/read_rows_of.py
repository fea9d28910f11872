"""Reads rows of arrays as matrices of bytes, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.arrow import U8
from recordmill.transforms.sources.arrays.row_arrays import RowArray
from recordmill.transforms.sources.arrays.unpack_rows import Unpacked
from recordmill.transforms.storage.reading import read_range, read_rows


def unpacked(array: RowArray, storage: StorageOptions) -> Unpacked:
    """Opens a compressed array."""
    file = array.file

    def read(start: int, stop: int) -> bytes:
        return read_range(file.uri, start, stop, storage, file.seen)

    return Unpacked(
        read, array.packed_start, array.packed_stop, array.packing, file.uri
    )


def matrices(
    array: RowArray,
    num_rows: int,
    rows: tuple[int, int],
    step: int,
    storage: StorageOptions,
) -> Iterator[U8]:
    """Yields rows as matrices of shape (rows, bytes of one).

    Args:
      array: what is read.
      num_rows: of the whole array.
      rows: the first one and one after the last; of a packed array all.
      step: how many to read at once.
      storage: options of the file's storage.

    Raises:
      ChangedInputError: the file is another one by now.
      InputError: it cannot be read, or ends too early.
    """
    start, stop = rows
    if array.packing:
        yield from _unpacked_matrices(array, num_rows, step, storage)
        return
    for first in range(start, stop, step):
        last = min(first + step, stop)
        if array.transposed:
            yield _transposed_rows(array, num_rows, first, last, storage)
        else:
            yield _plain_rows(array, first, last, storage)


def _plain_rows(array: RowArray, first: int, last: int, storage: StorageOptions) -> U8:
    file, size = array.file, array.row_bytes
    begin, end = array.start + first * size, array.start + last * size
    data = read_range(file.uri, begin, end, storage, file.seen)
    if len(data) < end - begin:
        raise ChangedInputError(
            f"{file.uri}: ends at byte {begin + len(data)}, but had {file.size} bytes "
            "when the run began; did it change meanwhile?"
        )
    return np.frombuffer(data, np.uint8).reshape(last - first, size)


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
    positions = np.arange(columns)
    file = array.file
    read_rows(file.uri, offsets, pieces, positions, storage, file.seen)
    cells = pieces.reshape(columns, last - first, item).transpose(1, 0, 2)
    return np.ascontiguousarray(cells).reshape(last - first, array.row_bytes)


def _unpacked_matrices(
    array: RowArray, num_rows: int, step: int, storage: StorageOptions
) -> Iterator[U8]:
    stream = unpacked(array, storage)
    size, uri = array.row_bytes, array.file.uri
    stream.take(array.start)
    for first in range(0, num_rows, step):
        rows = min(step, num_rows - first)
        data = stream.take(rows * size)
        if len(data) < rows * size:
            raise InputError(
                f"{uri}: its header says {count(num_rows, 'row')} of {size:,} bytes, but "
                f"the data ends after {array.start + first * size + len(data):,} bytes. "
                "The file is cut short: copy it again"
            )
        yield np.frombuffer(data, np.uint8).reshape(rows, size)
    left = stream.drain()
    if left and array.packing == "gzip":
        raise InputError(
            f"{uri}: {count(left, 'byte')} after its {count(num_rows, 'row')} of "
            f"{size:,} bytes: the header is wrong, or another file was joined to it"
        )
    if array.crc32 is not None and stream.crc32 != array.crc32:
        raise InputError(
            f"{uri}: the data has not the checksum that the file states. It is damaged: "
            "copy it again"
        )
