"""Protobuf's wire format on whole Arrow arrays.

A column becomes an Arrow binary array of *cells*: the bytes it adds to each row.
Three operations make every cell without a Python loop over rows: varints of an
integer array, a length-delimited header looked up by length, and `scatter`, which
lays rows of differing length end to end.

    varint            7 bits a byte, least significant first, high bit = more follow
    length-delimited  tag | varint length | bytes

Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from schemas.errors import RecordmillError

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

MAX_VARINT_BYTES = 10
MAX_CELL_BYTES = (1 << 31) - 1  # Arrow binary arrays have 32-bit offsets


def varint(value: int) -> bytes:
    """The varint of one non-negative integer.

    >>> varint(300)
    b'\\xac\\x02'
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_lengths(values: U64) -> I64:
    """Bytes that the varint of each value takes, 1 to 10."""
    lengths = np.ones(len(values), np.int64)
    largest = int(values.max()) if len(values) else 0
    for num_bytes in range(1, MAX_VARINT_BYTES):
        smallest = 1 << (7 * num_bytes)
        if smallest > largest:
            break
        lengths += values >= np.uint64(smallest)
    return lengths


def varint_rows(values: U64, lengths: I64) -> U8:
    """Varints left-aligned in a matrix of shape (values, longest varint)."""
    width = int(lengths.max()) if len(lengths) else 1
    rows = np.empty((len(values), width), np.uint8)
    if width == 1:
        rows[:, 0] = values
        return rows
    for place in range(width):
        low = (values >> np.uint64(7 * place)).astype(np.uint8) & np.uint8(0x7F)
        rows[:, place] = low | ((lengths > place + 1).astype(np.uint8) << np.uint8(7))
    return rows


def binary_array(offsets: npt.NDArray[np.integer], data: U8) -> pa.BinaryArray:
    """An Arrow binary array over `data`; row i is data[offsets[i]:offsets[i + 1]].

    Raises:
      RecordmillError: if the bytes do not fit Arrow's 32-bit offsets.
    """
    if len(offsets):
        require_fit(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


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
    anywhere = np.ndarray((total + 1,), rows.dtype, buffer=out.data, strides=(1,))
    anywhere[offsets[:-1]] = rows
    return out[:total]


def headers_by_length(
    make_header: Callable[[int], bytes], lengths: I64
) -> tuple[npt.NDArray[np.void], I64]:
    """The header of each row when it depends on the row's length alone.

    Args:
      make_header: the header for one payload length.
      lengths: payload bytes of each row.

    Returns:
      Left-aligned headers, one item per row, and the bytes each really has.
    """
    distinct, which = distinct_lengths(lengths)
    # One call per distinct length, not per row.
    headers = [make_header(int(length)) for length in distinct]
    width = max(map(len, headers), default=1)
    padded = b"".join(header.ljust(width, b"\0") for header in headers)
    table = np.frombuffer(padded, np.dtype(f"V{width}"))
    header_lengths = np.fromiter(map(len, headers), np.int64, len(headers))
    return table[which], header_lengths[which]


def header_cells(
    make_header: Callable[[int], bytes], lengths: I64
) -> tuple[pa.BinaryArray, I64]:
    """The headers of `headers_by_length` as an Arrow array, and their lengths."""
    rows, header_lengths = headers_by_length(make_header, lengths)
    offsets = offsets_of(header_lengths)
    return binary_array(offsets, scatter(rows, offsets)), header_lengths


_SMALL = 1 << 16  # below this a table indexed by length beats sorting


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
