"""Arrow and NumPy arrays as all of transforms/ uses them: types, offsets, rows of bytes.

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
_SMALL = 1 << 16  # below this a table indexed by length beats sorting


def binary_array(offsets: npt.NDArray[np.integer], data: U8) -> pa.BinaryArray:
    """An Arrow binary array over `data`; row i is data[offsets[i]:offsets[i + 1]].

    Raises:
      RecordmillError: if the bytes do not fit Arrow's 32-bit offsets.
    """
    if len(offsets):
        require_fit(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def array_parts(array: pa.BinaryArray) -> tuple[I64, U8]:
    """Offsets (rows + 1) and the data buffer of a binary array; no copy of the data."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    window = offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return window, np.frombuffer(array.buffers()[2] or b"", np.uint8)


def value_offsets(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Where each value starts in the array's data buffer; one more for the end."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def value_lengths(array: pa.BinaryArray) -> I64:
    """Bytes of each value of a plain binary array."""
    return np.diff(value_offsets(array)).astype(np.int64)


def require_fit(num_bytes: int) -> None:
    """Makes sure that an Arrow binary array can hold so many bytes.

    Raises:
      RecordmillError: if not.
    """
    if num_bytes > MAX_CELL_BYTES:
        raise RecordmillError(
            f"a batch of {num_bytes} bytes is over {MAX_CELL_BYTES}, what Arrow can hold"
        )


def offsets_of(lengths: npt.NDArray[np.integer]) -> I64:
    """Where each row starts when rows of these lengths lie end to end; one more."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def distinct_lengths(lengths: I64) -> tuple[I64, I64]:
    """The lengths there are, ascending, and for each row which of them it has."""
    longest = int(lengths.max()) if len(lengths) else 0
    if longest >= _SMALL:
        distinct, which = np.unique(lengths, return_inverse=True)
        return distinct, which
    distinct = np.flatnonzero(np.bincount(lengths, minlength=1))
    place = np.zeros(longest + 1, np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[lengths]


def view_rows(matrix: U8) -> npt.NDArray[np.void]:
    """A contiguous (rows, width) matrix as one opaque item per row."""
    return matrix.view(f"V{matrix.shape[1]}").ravel()


def scatter(rows: npt.NDArray[np.void], offsets: I64) -> U8:
    """Lays left-aligned rows end to end, each cut to its own length.

    Every row is copied at its full width and the next one overwrites what stands
    over, so one pass copies all (NumPy assigns in index order). Rows of length 0
    must be left out by the caller: nothing would overwrite a last one's excess.
    """
    width = rows.dtype.itemsize
    total = int(offsets[-1])
    out = np.empty(total + width, np.uint8)
    unaligned_rows(out, rows.dtype)[offsets[:-1]] = rows
    return out[:total]


def unaligned_rows(data: U8, item: npt.DTypeLike) -> npt.NDArray[Any]:
    """The buffer as items that begin at every byte, so they overlap."""
    dtype = np.dtype(item)
    num_items = len(data) - dtype.itemsize + 1
    return np.ndarray((num_items,), dtype, buffer=data.data, strides=(1,))
