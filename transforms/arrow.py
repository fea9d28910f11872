"""Array types, offsets, views and reusable memory, shared by all of transforms/.

A binary array is an offsets buffer and a data buffer:

    ["ab", "", "cde"]  ->  offsets [0, 2, 2, 5], data b"abcde"

Row i is data[offsets[i] : offsets[i + 1]]. A slice shares both buffers, so its first
offset need not be 0.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.native.numpy_loops import unaligned_rows

U8 = numpy_loops.U8
U64 = numpy_loops.U64
I64 = numpy_loops.I64
offsets_of = numpy_loops.offsets_of

MAX_CELL_BYTES = (1 << 31) - 1  # Arrow binary arrays have 32-bit offsets


def nested_lists(values: pa.Array, sides: I64) -> pa.LargeListArray:
    """Returns nested lists, one array per row, from the values of all arrays.

    `sides` has a row for each array, with its length along each axis. Arrays of 2 x 1
    and 1 x 3 with the values a to e become [[a], [b]] and [[c, d, e]].
    """
    for axis in reversed(range(sides.shape[1])):
        lengths = np.repeat(sides[:, axis], sides[:, :axis].prod(axis=1))
        values = pa.LargeListArray.from_arrays(offsets_of(lengths), values)
    return values


def binary_array(offsets: npt.NDArray[np.integer], data: U8) -> pa.BinaryArray:
    """Builds an Arrow binary array; row i is data[offsets[i] : offsets[i + 1]].

    Raises:
      RecordmillError: the bytes do not fit Arrow's 32-bit offsets.
    """
    if len(offsets):
        require_fit(int(offsets[-1]))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def extract_binary(data: U8, starts: I64, lengths: I64) -> pa.BinaryArray:
    """Returns spans of bytes as an Arrow array.

    The spans must ascend and must not overlap. The spans and the gaps between them form
    one array with the offsets (edges) start, end, start, end, ...; every second element
    of it is a span.
    """
    if not len(starts):
        return pa.array([], pa.binary())
    first = int(starts[0])
    edges = np.column_stack([starts, starts + lengths]).ravel() - first
    spans = np.arange(0, len(edges), 2, dtype=np.int32)
    return binary_array(edges, data[first:]).take(pa.array(spans))


def array_parts(array: pa.BinaryArray) -> tuple[I64, U8]:
    """Returns the offsets (rows + 1) and the data buffer of a binary array, uncopied."""
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    return value_offsets(array).astype(np.int64), data


def value_offsets(array: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Returns the start of each value in the data buffer, and the end; rows + 1."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


def value_lengths(array: pa.BinaryArray) -> I64:
    """Returns the length in bytes of each value of a plain binary array."""
    return np.diff(value_offsets(array)).astype(np.int64)


def count_values(column: pa.Array) -> Counter[Any]:
    """Returns the number of occurrences of each value; lists are flattened first."""
    while pa.types.is_nested(column.type):
        column = pc.list_flatten(column)
    value_counts = pc.value_counts(column.drop_null())
    values, counts = (
        value_counts.field("values").to_pylist(),
        value_counts.field("counts"),
    )
    return Counter(dict(zip(values, counts.to_pylist(), strict=True)))


def require_fit(num_bytes: int) -> None:
    """Checks that an Arrow binary array can hold this number of bytes."""
    if num_bytes > MAX_CELL_BYTES:
        raise RecordmillError(
            f"a batch has {num_bytes} bytes; Arrow supports at most {MAX_CELL_BYTES}"
        )


# An array of views has one view of 16 bytes for each value, which names the buffer that
# holds the value. Here each value is a separate buffer. Two images of 75,000 and 68,000
# bytes:
#
#     length, first 4 bytes, buffer, offset
#     75000   ff d8 ff e0    0       0
#     68000   ff d8 ff e1    1       0

_VIEW = np.dtype(
    [("length", "<i4"), ("start", "V4"), ("buffer", "<i4"), ("offset", "<i4")]
)
_INLINE_BYTES = 12  # a value of this length or less is stored in the view itself


def views_of(values: Sequence[bytes]) -> pa.Array:
    """Returns the values as an array of views; as plain binary if any value is short."""
    if min(map(len, values), default=0) <= _INLINE_BYTES:
        return pa.array(values, pa.binary())
    views = np.zeros(len(values), _VIEW)
    views["length"] = list(map(len, values))
    views["start"] = [value[:4] for value in values]
    views["buffer"] = np.arange(len(values))
    buffers = [None, pa.py_buffer(views), *map(pa.py_buffer, values)]
    return pa.Array.from_buffers(pa.binary_view(), len(values), buffers)


def views_at(
    buffers: Sequence[pa.Buffer],
    buffer_of: npt.NDArray[np.integer],
    starts: npt.NDArray[np.integer],
    lengths: I64,
) -> pa.Array:
    """Returns values in buffers as an array of views.

    A cast to binary copies each value once, in row order: 0.3 us for 900 bytes.

    Args:
      buffers: the bytes of the values.
      buffer_of: index of the buffer of each value.
      starts: offset of each value in its buffer, below 2 GiB.
      lengths: bytes of each value.
    """
    views = np.zeros(len(lengths), _VIEW)
    views["length"] = lengths
    views["buffer"] = buffer_of
    views["offset"] = starts
    short = np.flatnonzero(lengths <= _INLINE_BYTES)
    if len(short):
        inline = views.view(np.uint8).reshape(-1, _VIEW.itemsize)[:, -_INLINE_BYTES:]
        for number in np.unique(buffer_of[short]).tolist():
            rows = short[buffer_of[short] == number]
            inline[rows] = _padded(buffers[number], starts[rows], lengths[rows])
    return pa.Array.from_buffers(
        pa.binary_view(), len(lengths), [None, pa.py_buffer(views), *buffers]
    )


def _padded(buffer: pa.Buffer, starts: I64, lengths: I64) -> U8:
    """Returns short values of a buffer as rows of _INLINE_BYTES, padded with zeros."""
    data = np.frombuffer(buffer, np.uint8)
    rows = np.zeros((len(lengths), _INLINE_BYTES), np.uint8)
    for length in np.unique(lengths).tolist():
        if length:
            row_indices = np.flatnonzero(lengths == length)
            values = unaligned_rows(data, f"V{length}")[starts[row_indices]]
            rows[row_indices, :length] = values.view(np.uint8).reshape(-1, length)
    return rows


def has_views(array: pa.Array) -> bool:
    """Checks whether an array has views of binary values."""
    return bool(array.type.id == pa.lib.Type_BINARY_VIEW)


def view_lengths(array: pa.Array) -> I64:
    """Returns the length in bytes of each value of an array of views."""
    views = np.frombuffer(array.buffers()[1] or b"", _VIEW)
    return views["length"][array.offset : array.offset + len(array)].astype(np.int64)


def take_views(array: pa.Array, order: npt.NDArray[np.integer]) -> pa.Array:
    """Returns the rows of an array of views in another order; no value is copied."""
    _, views, *buffers = array.buffers()
    views_in_order = np.frombuffer(views or b"", f"V{_VIEW.itemsize}")[
        array.offset :
    ].take(order)
    buffers = [None, pa.py_buffer(views_in_order), *buffers]
    return pa.Array.from_buffers(pa.binary_view(), len(order), buffers)


def viewed_values(array: pa.Array) -> list[memoryview]:
    """Returns the values of an array of views without nulls; none is copied."""
    buffers = array.buffers()
    views = np.frombuffer(buffers[1], _VIEW)[array.offset : array.offset + len(array)]
    # In Arrow 20, a buffer without values is None.
    buffer_views = [memoryview(buffer or b"").cast("B") for buffer in buffers[2:]]
    table = memoryview(buffers[1]).cast("B")
    values = []
    places = zip(
        views["length"].tolist(),
        views["buffer"].tolist(),
        views["offset"].tolist(),
        strict=True,
    )
    for row, (length, buffer, offset) in enumerate(places, array.offset):
        if length > _INLINE_BYTES:
            values.append(buffer_views[buffer][offset : offset + length])
        else:
            start = row * _VIEW.itemsize + 4
            values.append(table[start : start + length])
    return values


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the batch with its columns of views copied to plain binary columns."""
    for index, column in enumerate(batch.columns):
        if has_views(column):
            plain = pa.array(viewed_values(column), pa.binary())
            batch = batch.set_column(index, batch.schema.names[index], plain)
    return batch


# The C library returns large blocks to the system when they are freed. The pages of each
# new block are allocated one by one, which takes as long as filling the block. Every byte
# of CIFAR records is read into one such block and laid out in a second one.
#
# So each thread keeps a pool of a few arrays and returns views of them. A view, a view of
# a view, a memoryview and an Arrow buffer all hold a reference to the array whose memory
# they use. So an array is free if only the pool refers to it:
#
#     first = empty_bytes(n)     a new array in the pool; `first` is a view of it
#     second = empty_bytes(n)    `first` refers to that array: a second new array
#     del first
#     third = empty_bytes(n)     only the pool refers to the first array: a view of it

_MIN_POOLED_BYTES = 256 << 10  # smaller blocks stay with the C library
_MAX_KEPT_ARRAYS = 4  # arrays in the pool of each thread
_probe = [np.empty(1, np.uint8)]
_UNUSED_REFERENCES = sys.getrefcount(
    _probe[0]
)  # references to an array that only a list holds

_local = threading.local()


def empty_bytes(num_bytes: int) -> U8:
    """Returns an uninitialized array of bytes, like `numpy.empty`."""
    if num_bytes < _MIN_POOLED_BYTES:
        return np.empty(num_bytes, np.uint8)
    if not hasattr(_local, "kept"):
        _local.kept = []
    pool: list[U8] = _local.kept
    unfit = None
    for index in range(len(pool)):
        if sys.getrefcount(pool[index]) == _UNUSED_REFERENCES:
            # At most half of an array is unused, to limit the wasted memory.
            if num_bytes <= len(pool[index]) <= 2 * num_bytes:
                return pool[index][:num_bytes]
            unfit = index
    fresh = np.empty(num_bytes, np.uint8)
    if len(pool) < _MAX_KEPT_ARRAYS:
        pool.append(fresh)
    elif unfit is not None:
        pool[unfit] = fresh
    return fresh[:]
