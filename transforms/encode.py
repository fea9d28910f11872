"""Arrow batch + schema -> serialized tf.train.Example, without Python per row.

    Example   0a len Features
    Features  entry*                         sorted by key
    entry     0a len | 0a len key | 12 len Feature
    Feature   0a len BytesList | 12 len FloatList | 1a len Int64List
    BytesList (0a len bytes)*    FloatList, Int64List  0a len packed values

Neighbouring features of fixed size share one matrix, one template row and one copy;
all others become a header (by payload length) and a payload. The element-wise join
in C++ then lays the cells of a row end to end.

The bytes equal protobuf's SerializeToString(deterministic=True).
Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from schemas.errors import SchemaError
from schemas.features import FeatureSpec, Kind, Schema
from transforms.columns import Column, load_column
from transforms.wire import (
    I64,
    U8,
    binary_array,
    header_cells,
    headers_by_length,
    offsets_of,
    require_fit,
    scatter,
    varint,
    varint_lengths,
    varint_rows,
    view_rows,
)

_KIND_TAG = {Kind.BYTES: b"\x0a", Kind.FLOAT: b"\x12", Kind.INT64: b"\x1a"}


@dataclass(slots=True)
class _Fixed:
    """A cell of the same size in every row: a template and where values go."""

    template: bytes
    values: npt.NDArray[np.float32] | U8 | None = None


@dataclass(slots=True)
class _Cells:
    """Cells of differing size: arrays to lay end to end, and the sum's lengths."""

    arrays: list[pa.Array]
    lengths: I64


@dataclass(slots=True)
class _Row:
    """The cells of all features so far, with neighbouring fixed ones in one block."""

    num_rows: int
    arrays: list[pa.Array] = field(default_factory=list)
    lengths: I64 = field(init=False)
    block: list[_Fixed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lengths = np.zeros(self.num_rows, np.int64)

    def add(self, cells: _Fixed | _Cells) -> None:
        if isinstance(cells, _Fixed):
            self.block.append(cells)
            return
        self.flush()
        self.arrays.extend(cells.arrays)
        self.lengths += cells.lengths

    def flush(self) -> None:
        if self.block:
            matrix = _fill_block(self.block, self.num_rows)
            width = matrix.shape[1]
            self.arrays.append(_fixed_array(matrix))
            self.lengths += width
            self.block = []


def encode(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """The serialized example of every row.

    Args:
      batch: the columns that the schema's features name.
      schema: features; a null cell leaves its feature out of the example.
      head_room: zero bytes to leave before each example (for a record's frame).
      tail_room: zero bytes to leave behind each example.

    Returns:
      A binary array of batch.num_rows rows, its buffers fresh and writable.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows with a value that the feature cannot hold.
      RecordmillError: the examples together are beyond 2 GiB.
    """
    row = _Row(batch.num_rows)
    for feature in schema.features:
        if batch.schema.get_field_index(feature.column) < 0:
            names = batch.schema.names
            found = "two columns" if feature.column in names else "no column"
            raise SchemaError(
                f"feature {feature.name!r}: {found} {feature.column!r} in "
                f"{', '.join(names)}"
            )
        row.add(_cells(feature, load_column(batch[feature.column], feature)))
    row.flush()
    outer, outer_lengths = header_cells(
        partial(_example_header, head_room), row.lengths
    )
    # The join below would end in an Arrow error without a word on what is too big.
    require_fit(int((outer_lengths + row.lengths + tail_room).sum()))
    arrays = [outer, *row.arrays]
    if tail_room:
        tails = np.zeros((batch.num_rows, tail_room), np.uint8)
        arrays.append(_fixed_array(tails))
    return pc.binary_join_element_wise(*arrays, b"")


def _example_header(head_room: int, features_length: int) -> bytes:
    return bytes(head_room) + b"\x0a" + varint(features_length)


def entry_header(
    key: bytes, kind: Kind, payload_length: int, *, delimited: bool
) -> bytes:
    """Everything of a feature's map entry that stands before its payload.

    Args:
      key: the feature's name.
      kind: which list holds the payload.
      payload_length: bytes.
      delimited: whether the payload is one length-delimited field of the list
        (packed numbers, one bytes value) and not a series of such fields.
    """
    # An empty packed field is left out by protobuf, an empty bytes value is not.
    inner = b""
    if delimited and (payload_length or kind is Kind.BYTES):
        inner = b"\x0a" + varint(payload_length)
    list_header = _KIND_TAG[kind] + varint(len(inner) + payload_length) + inner
    feature_header = b"\x12" + varint(len(list_header) + payload_length) + list_header
    entry = b"\x0a" + varint(len(key)) + key + feature_header
    return b"\x0a" + varint(len(entry) + payload_length) + entry


def _cells(feature: FeatureSpec, column: Column) -> _Fixed | _Cells:
    key = feature.name.encode()
    if column.lists is None and feature.kind is not Kind.BYTES:
        return _scalar_number_cells(key, feature.kind, column)
    if column.lists is None:
        payload, delimited = column.values, True
        lengths = _binary_lengths(payload)
    else:
        payload = _list_payload(feature.kind, column)
        lengths, delimited = _binary_lengths(payload), feature.kind is not Kind.BYTES
    make_header = partial(entry_header, key, feature.kind, delimited=delimited)
    if column.valid is None:
        headers, header_lengths = header_cells(make_header, lengths)
        return _Cells([headers, payload], lengths + header_lengths)
    rows, header_lengths = headers_by_length(make_header, lengths[column.valid])
    offsets, headers = _sparse(rows, header_lengths, column.valid)
    return _Cells([headers, payload], lengths + np.diff(offsets))


def _scalar_number_cells(key: bytes, kind: Kind, column: Column) -> _Fixed | _Cells:
    """A header and one packed value: fixed in size unless nulls or varints differ."""
    values = column.values if column.valid is None else column.values[column.valid]
    if kind is Kind.FLOAT:
        lengths = np.full(len(values), 4, np.int64)
        payload = np.ascontiguousarray(values, "<f4").view(np.uint8).reshape(-1, 4)
    else:
        unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)
        lengths = varint_lengths(unsigned)
        payload = varint_rows(unsigned, lengths)
    make_header = partial(entry_header, key, kind, delimited=True)
    width = payload.shape[1]
    if column.valid is None and (len(lengths) == 0 or lengths.min() == width):
        return _Fixed(make_header(width), payload)
    headers, header_lengths = headers_by_length(make_header, lengths)
    header_width = headers.dtype.itemsize
    rows = np.empty((len(values), header_width + width), np.uint8)
    rows[:, :header_width] = headers.view(np.uint8).reshape(-1, header_width)
    if len(values) and header_lengths.min() < header_width:
        # Only names near a varint's limit: the payload's place differs by row.
        places = header_lengths[:, None] + np.arange(width)
        np.put_along_axis(rows, places, payload, axis=1)
    else:
        rows[:, header_width:] = payload
    if column.valid is None:
        offsets = offsets_of(header_lengths + lengths)
        cells = binary_array(offsets, scatter(view_rows(rows), offsets))
    else:
        offsets, cells = _sparse(
            view_rows(rows), header_lengths + lengths, column.valid
        )
    return _Cells([cells], np.diff(offsets))


def _list_payload(kind: Kind, column: Column) -> pa.BinaryArray:
    """Per row, the list's content: packed numbers or length-delimited values."""
    assert column.lists is not None  # the caller's branch
    if kind is Kind.FLOAT:
        data = np.ascontiguousarray(column.values, "<f4").view(np.uint8)
        return binary_array(column.lists * 4, data)
    if kind is Kind.INT64:
        unsigned = np.ascontiguousarray(column.values, np.int64).view(np.uint64)
        lengths = varint_lengths(unsigned)
        offsets = offsets_of(lengths)
        data = scatter(view_rows(varint_rows(unsigned, lengths)), offsets)
        return binary_array(offsets[column.lists], data)
    lengths = _binary_lengths(column.values)
    headers, header_lengths = header_cells(_value_header, lengths)
    joined = pc.binary_join_element_wise(headers, column.values, b"")
    offsets = offsets_of(lengths + header_lengths)
    data = np.frombuffer(joined.buffers()[2] or b"", np.uint8)
    return binary_array(offsets[column.lists], data)


def _value_header(length: int) -> bytes:
    return b"\x0a" + varint(length)


def _fill_block(block: list[_Fixed], num_rows: int) -> U8:
    template = np.frombuffer(
        b"".join(
            cell.template + bytes(0 if cell.values is None else cell.values.shape[1])
            for cell in block
        ),
        np.uint8,
    )
    matrix = np.empty((num_rows, len(template)), np.uint8)
    matrix[:] = template
    place = 0
    for cell in block:
        place += len(cell.template)
        if cell.values is not None and num_rows:
            width = cell.values.shape[1]
            # One item per row copies three times faster than single bytes.
            item = np.dtype("<u4") if width == 4 else np.dtype(f"V{width}")
            target = np.ndarray((num_rows,), item, matrix.data, place, (len(template),))
            target[:] = np.ascontiguousarray(cell.values).view(item).ravel()
            place += width
    return matrix


def _fixed_array(matrix: U8) -> pa.BinaryArray:
    num_rows, width = matrix.shape
    offsets = np.arange(num_rows + 1, dtype=np.int64) * width
    return binary_array(offsets, matrix.reshape(-1))


def _sparse(
    rows: npt.NDArray[np.void], row_lengths: I64, valid: npt.NDArray[np.bool_]
) -> tuple[I64, pa.BinaryArray]:
    """Cells for the valid rows, empty ones for the others."""
    lengths = np.zeros(len(valid), np.int64)
    lengths[valid] = row_lengths
    offsets = offsets_of(lengths)
    data = scatter(rows, offsets_of(row_lengths))
    return offsets, binary_array(offsets, data)


def _binary_lengths(array: pa.BinaryArray) -> I64:
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    window = offsets[array.offset : array.offset + len(array) + 1]
    return np.diff(window).astype(np.int64)
