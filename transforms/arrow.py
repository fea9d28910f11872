"""Array types, offsets and rows of bytes, as all of transforms/ uses them.

A binary array is an offsets buffer and a data buffer:

    ["ab", "", "cde"]  ->  offsets [0, 2, 2, 5], data b"abcde"

Row i is data[offsets[i] : offsets[i + 1]]. A slice shares both buffers, so its first
offset need not be 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import RecordmillError

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

MAX_CELL_BYTES = (1 << 31) - 1  # Arrow binary arrays have 32-bit offsets
_SMALL = 1 << 16  # below this a table indexed by length is faster than sorting


def binary_array(offsets: npt.NDArray[np.integer], data: U8) -> pa.BinaryArray:
    """Builds an Arrow binary array; row i is data[offsets[i] : offsets[i + 1]].

    Raises:
      RecordmillError: the bytes do not fit Arrow's 32-bit offsets.
    """
    if len(offsets):
        require_fit(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def array_parts(array: pa.BinaryArray) -> tuple[I64, U8]:
    """Returns offsets (rows + 1) and data buffer of a binary array, without a copy."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    window = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return window, np.frombuffer(array.buffers()[2] or b"", np.uint8)


def value_offsets(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Returns where each value starts in the data buffer, and the end; rows + 1."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def value_lengths(array: pa.BinaryArray) -> I64:
    """Returns the length in bytes of each value of a plain binary array."""
    return np.diff(value_offsets(array)).astype(np.int64)


def require_fit(num_bytes: int) -> None:
    """Checks that an Arrow binary array can hold this number of bytes.

    Raises:
      RecordmillError: it cannot.
    """
    if num_bytes > MAX_CELL_BYTES:
        raise RecordmillError(
            f"a batch has {num_bytes} bytes; Arrow can hold at most {MAX_CELL_BYTES}"
        )


def offsets_of(lengths: npt.NDArray[np.integer]) -> I64:
    """Returns the offsets of concatenated rows: lengths [2, 0, 3] give [0, 2, 2, 5]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def distinct_lengths(lengths: I64) -> tuple[I64, I64]:
    """Returns the distinct lengths, ascending, and the index into them for each row.

    Lengths [7, 3, 7] give ([3, 7], [1, 0, 1]).
    """
    longest = int(lengths.max()) if len(lengths) else 0
    if longest >= _SMALL:
        distinct, which = np.unique(lengths, return_inverse=True)
        return distinct, which
    distinct = np.flatnonzero(np.bincount(lengths))
    index_of = np.zeros(longest + 1, np.int64)
    index_of[distinct] = np.arange(len(distinct))
    return distinct, index_of[lengths]


def unaligned_rows(data: U8, item: npt.DTypeLike) -> npt.NDArray[Any]:
    """Views a buffer as overlapping items, one that begins at every byte."""
    dtype = np.dtype(item)
    num_items = len(data) - dtype.itemsize + 1
    return np.ndarray((num_items,), dtype, buffer=data.data, strides=(1,))
