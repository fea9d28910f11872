"""Serializes tensors, arrays and length-delimited fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import format_shape
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import (
    I64,
    array_parts,
    binary_array,
    offsets_of,
    require_fit,
    value_lengths,
)
from recordmill.transforms.encode.columns import (
    BYTES,
    NestedColumn,
    StoredColumn,
    byte_values,
    dims_of,
    family_of,
    numbers,
    wrong_counts,
)
from recordmill.transforms.encode.row_errors import flag_invalid
from recordmill.transforms.native.numpy_loops import (
    distinct_lengths,
    field_header,
    varint,
)


def header_cells(
    make_header: Callable[[int], bytes],
    lengths: I64,
    valid: npt.NDArray[np.bool_] | None = None,
) -> pa.BinaryArray:
    """Returns the header of each row's payload; empty if the row has none.

    `make_header` is called once for each payload length.
    """
    distinct, length_indices = distinct_lengths(lengths)
    headers = pa.array(map(make_header, distinct.tolist()), pa.binary())
    missing = None if valid is None else ~valid
    return headers.take(pa.array(length_indices, mask=missing)).fill_null(b"")


def delimited_stream(values: pa.BinaryArray, tag: bytes) -> pa.BinaryArray:
    """Returns each value as a length-delimited field.

    The values "ab", "c" with tag 0a become 0a 02 61 62 and 0a 01 63.
    """
    headers = header_cells(lambda n: field_header(tag, n), value_lengths(values))
    return pc.binary_join_element_wise(headers, values, b"")


def join_cells(arrays: list[pa.BinaryArray], tail_room: int) -> pa.BinaryArray:
    """Joins the arrays' cells row by row, with `tail_room` zero bytes after each row."""
    num_bytes = sum(int(value_lengths(array).sum()) for array in arrays)
    # Arrow's own error would not describe the excess.
    require_fit(num_bytes + tail_room * len(arrays[0]))
    if tail_room:
        arrays = [*arrays, pa.repeat(pa.scalar(bytes(tail_room)), len(arrays[0]))]
    return pc.binary_join_element_wise(*arrays, b"")


#     TensorProto   08 dtype | 12 len TensorShapeProto | content
#     shape         (12 len dim)*      dim     08 size, empty for size 0
#     content       22 len row-major little-endian numbers, empty if there are none
#                   (42 len bytes)* for text and bytes
#
# The int32 rows [1, 2] and [3] become
#
#     08 03 | 12 04 12 02 08 02 | 22 08 01 00 00 00 02 00 00 00    int32, [2], 8 bytes
#     08 03 | 12 04 12 02 08 01 | 22 04 03 00 00 00                int32, [1], 4 bytes
#
# The bytes are equal to those of tf.io.serialize_tensor; tf.io.parse_tensor reads them.
# Source: tensorflow/core/framework/{tensor,tensor_shape,types}.proto. The output of the
# function shows that scalars are stored in tensor_content as well.

TENSOR_CONTENT, STRING_VAL = b"\x22", b"\x42"
TEXT_DTYPES = ("string", "bytes")
# tensorflow/core/framework/types.proto
DATA_TYPES = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "bytes": 7,
    "int64": 9,
    "bool": 10,
    "uint16": 17,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}


def tensor_column(nested: NestedColumn) -> StoredColumn:
    """Serializes the column's values as one TensorProto for each row."""
    content = _content(nested)
    dims, shape_indices = _distinct_rows(dims_of(nested))
    # One head per distinct shape, not per row.
    heads = pa.array(
        [tensor_head(nested.feature.dtype, sizes) for sizes in dims], pa.binary()
    )
    missing = None if nested.valid is None else ~nested.valid
    heads = heads.take(pa.array(shape_indices, mask=missing)).fill_null(b"")
    return StoredColumn(
        pc.binary_join_element_wise(heads, content, b""), None, nested.valid
    )


def array_column(nested: NestedColumn) -> StoredColumn:
    """Returns the row-major little-endian bytes of each row's array.

    Binary columns already have such bytes.
    """
    if family_of(nested.leaf.type) != BYTES:
        return StoredColumn(_content(nested), None, nested.valid)
    values = byte_values(nested)
    feature = nested.feature
    if feature.dtype in TEXT_DTYPES:  # elements of unknown size
        return StoredColumn(values, None, nested.valid)
    lengths = value_lengths(values)
    wrong = wrong_counts(lengths, feature.shape, np.dtype(feature.dtype).itemsize)
    if nested.valid is not None:
        wrong &= nested.valid
    nested.reject(
        flag_invalid(
            wrong,
            lambda i: (
                f"{format_count(int(lengths[i]), 'byte')} are not an array of "
                f"{feature.dtype} of shape {format_shape(feature.shape)}"
            ),
        )
    )
    return StoredColumn(values, None, nested.valid)


def _content(nested: NestedColumn) -> pa.BinaryArray:
    """Creates each row's content: numbers as bytes, or length-delimited values."""
    starts = nested.starts
    if starts is None:
        starts = np.arange(nested.num_rows + 1)
        if nested.valid is not None:
            starts = offsets_of(nested.valid.astype(np.int64))
            nested = replace(nested, leaf=nested.leaf.drop_null(), starts=starts)
    if nested.feature.dtype in TEXT_DTYPES:
        offsets, data = array_parts(delimited_stream(byte_values(nested), STRING_VAL))
        return binary_array(offsets[starts], data)
    dtype = np.dtype(nested.feature.dtype)
    values = np.ascontiguousarray(numbers(nested, dtype), dtype.newbyteorder("<"))
    return binary_array(starts * dtype.itemsize, values.view(np.uint8))


def tensor_head(dtype: str, dims: Sequence[int]) -> bytes:
    """Returns the bytes of a tensor before its content."""
    sides = (b"\x08" + varint(size) if size else b"" for size in dims)
    shape = b"".join(field_header(b"\x12", len(side)) + side for side in sides)
    head = b"\x08" + varint(DATA_TYPES[dtype])
    head += field_header(b"\x12", len(shape)) + shape
    num_values = math.prod(dims)
    if dtype in TEXT_DTYPES or not num_values:
        return head
    return head + field_header(TENSOR_CONTENT, num_values * np.dtype(dtype).itemsize)


def _distinct_rows(dims: I64) -> tuple[list[list[int]], I64]:
    """Finds the distinct rows of a matrix, and the index of each row among them.

    The rows [2, 3], [1, 3], [2, 3] become [[1, 3], [2, 3]] and [1, 0, 1].
    """
    row_ids = np.zeros(len(dims), np.int64)
    for column in dims.T:
        if len(column) and (column != column[0]).any():
            # Ids stay below the square of the number of rows, so no hash is needed.
            _, number = np.unique(column, return_inverse=True)
            _, row_ids = np.unique(row_ids * len(dims) + number, return_inverse=True)
    _, first = np.unique(row_ids, return_index=True)
    return dims[first].tolist(), row_ids
