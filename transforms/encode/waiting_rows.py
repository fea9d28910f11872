"""Stores deferred rows: as a RecordBatch, which is encoded when their shard is written.

A row of a table with 40 columns takes 200 bytes as values, and 940 as a framed record,
most of which are the names of its features. So a batch of deferred rows has the columns

    size      bytes of the row's Features message
    a, b ..   the values of the features, in the order in which they are written; integers
              have as few bytes as the largest needs

in memory, and as Arrow IPC in the runner's shuffle. If the values take about as much
space as the records, as with lists and large values, the records are stored instead: as
the only column, of binary or of views. References to rows are stored in the same way.

Records are written in windows. A large value, such as an image, is a separate part of its
window and is not copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import Kind, Schema
from recordmill.transforms import native
from recordmill.transforms.arrow import (
    I64,
    MAX_CELL_BYTES,
    U8,
    array_parts,
    binary_array,
    empty_bytes,
    has_views,
    offsets_of,
    require_fit,
    take_views,
    value_lengths,
    value_offsets,
    view_lengths,
    viewed_values,
)
from recordmill.transforms.encode.examples import (
    TAGS,
    load_columns,
    measure,
    write_rows,
)
from recordmill.transforms.native import Buffer, Column
from recordmill.transforms.native.numpy_loops import U32, combine_crcs, varint_lengths
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    TAIL_BYTES,
    crc32c,
    frame_records,
)

# Values are stored instead of records if they take at most this share of the bytes.
_MAX_VALUE_SHARE = 0.7
_TYPES = {TAGS[Kind.BYTES]: pa.binary(), TAGS[Kind.FLOAT]: pa.float32()}
_INTEGERS = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}  # their bytes
_TAG_OF = {kind: tag for tag, kind in _TYPES.items()}


def payload_rows(payloads: pa.Array) -> pa.RecordBatch:
    """Returns framed records, or references to rows, as deferred rows."""
    return pa.RecordBatch.from_arrays([payloads], [""])


def defer_rows(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Returns the examples of a batch as deferred rows; raises the errors of `encode`."""
    columns = load_columns(batch, schema.features)
    sizes, lengths = measure(columns, batch.num_rows, FRAME_BYTES)
    num_bytes = int(lengths.sum())
    require_fit(num_bytes)
    if all(column[4] is None for column in columns):
        arrays = [_integers(sizes), *map(_array_of, columns)]
        names = ["", *(column[0].decode() for column in columns)]
        rows = pa.RecordBatch.from_arrays(arrays, names)
        if rows.nbytes <= _MAX_VALUE_SHARE * num_bytes:
            return rows
    records = write_rows(columns, sizes, lengths, HEAD_BYTES, TAIL_BYTES)
    frame_records(records)
    return payload_rows(records)


def has_values(rows: pa.RecordBatch) -> bool:
    """Checks whether deferred rows are stored as values instead of payloads."""
    return rows.schema.field(0).type in _INTEGERS


def lengths_of(rows: pa.RecordBatch) -> I64:
    """Returns the size of each row's payload; for values, of the framed record."""
    first = rows.column(0)
    if has_values(rows):
        return _lengths(_numbers(first).astype(np.int64))
    return view_lengths(first) if has_views(first) else value_lengths(first)


def payloads_of(rows: pa.RecordBatch) -> pa.Array:
    """Returns the payload of each row, binary or views; encodes rows stored as values."""
    if not has_values(rows):
        return rows.column(0)
    sizes = _numbers(rows.column(0)).astype(np.int64)
    offsets = offsets_of(_lengths(sizes))
    require_fit(int(offsets[-1]))
    data = empty_bytes(int(offsets[-1]))
    columns = list(map(_column_of, rows.schema.names[1:], rows.columns[1:]))
    native.loops.write(columns, 0, sizes, offsets, HEAD_BYTES, TAIL_BYTES, data)
    native.loops.seal(data, offsets)
    return binary_array(offsets, data)


def binary_payloads(rows: pa.RecordBatch) -> pa.BinaryArray:
    """Returns the payloads of rows as plain binary; views are copied once."""
    payloads = payloads_of(rows)
    return payloads.cast(pa.binary()) if has_views(payloads) else payloads


def join_rows(
    parts: Sequence[pa.RecordBatch], order: npt.NDArray[np.integer] | None = None
) -> pa.RecordBatch:
    """Joins deferred rows: as values if all parts are values of the same features.

    Payloads are not copied: they become views. `order` has the index of each row of the
    result among the rows of all parts.
    """
    schema = _common_schema(parts)
    if schema is not None:
        parts = [part if part.schema == schema else part.cast(schema) for part in parts]
        if order is None or not len(order):
            return pa.concat_batches(parts)
        # One column at a time, so that only one exists twice in memory.
        joined, indices = pa.Table.from_batches(parts), pa.array(order)
        ordered_columns = (
            pc.take(c, indices, boundscheck=False).chunk(0) for c in joined.columns
        )
        return pa.RecordBatch.from_arrays(list(ordered_columns), schema=schema)
    views = pa.concat_arrays(
        [payloads_of(part).cast(pa.binary_view()) for part in parts]
    )
    return payload_rows(views if order is None else take_views(views, order))


def _common_schema(parts: Sequence[pa.RecordBatch]) -> pa.Schema | None:
    """Returns a schema that can store the values of all parts; None if there is none.

    The same features may have integers of several widths. Records of more than 2 GiB
    together, which may be from one column, cannot be joined.
    """
    first = parts[0].schema
    if not all(map(has_values, parts)):
        return None
    sizes = (_numbers(part.column(0)).sum(dtype=np.int64) for part in parts)
    if sum(map(int, sizes)) > MAX_CELL_BYTES:
        return None
    if all(part.schema == first for part in parts):
        return first
    schemas = {part.schema for part in parts}
    if any(schema.names != first.names for schema in schemas):
        return None
    types = []
    for column_types in zip(*(schema.types for schema in schemas), strict=True):
        if len({_TAG_OF.get(kind) for kind in column_types}) > 1:
            return None
        types.append(max(column_types, key=lambda kind: _INTEGERS.get(kind, 0)))
    return pa.schema(map(pa.field, first.names, types))


def _lengths(sizes: I64) -> I64:
    """Returns the sizes of framed records, from the sizes of their Features messages."""
    return FRAME_BYTES + 1 + varint_lengths(sizes) + sizes


def _integers(values: I64, bitmap: pa.Buffer | None = None) -> pa.Array:
    """Returns integers in the smallest type that can represent them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    values = values.astype(np.min_scalar_type(min(low, ~high)), copy=False)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def _array_of(column: Column) -> pa.Array:
    """Returns the values of a feature without lists as an Arrow array."""
    _, tag, values, offsets, _, valid = column
    bitmap = None
    if valid is not None:
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    if tag == TAGS[Kind.INT64]:
        return _integers(values, bitmap)
    buffers = [bitmap, pa.py_buffer(values)]
    num_rows = len(values)
    if offsets is not None:
        buffers.insert(1, pa.py_buffer(offsets))
        num_rows = len(offsets) - 1
    return pa.Array.from_buffers(_TYPES[tag], num_rows, buffers)


def _column_of(name: str, array: pa.Array) -> Column:
    """Returns the values of a feature in the form that the native functions expect."""
    key, tag = name.encode(), _TAG_OF.get(array.type, TAGS[Kind.INT64])
    valid = None
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
    if tag == TAGS[Kind.BYTES]:
        return key, tag, array.buffers()[2] or b"", value_offsets(array), None, valid
    numbers = _numbers(array)
    if tag == TAGS[Kind.INT64]:
        numbers = numbers.astype(np.int64)
    return key, tag, numbers, None, None, valid


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Returns the numbers of an array; missing ones are undefined."""
    width = _INTEGERS.get(array.type)
    dtype = f"<i{width}" if width else "<f4"
    numbers = np.frombuffer(array.buffers()[1] or b"", dtype)
    return numbers[array.offset : array.offset + len(array)]


# An image of 75 kB is nearly all of its record. Copying it into the record, and the
# record into its frame, took more time than reading the image. So the record is encoded
# without the image, and both are joined when they are written. Two records:
#
#     frames   h h h h e e|e e t t h h h h e e e|e t t     h head, e example, t tail
#     cuts                6                    17          | position of each value
#     values   "first image", "second image"
#
# The values are not read again for checksums: the checksums of a record and of its file
# are combined from the known checksum of the value and the checksums of the few bytes
# around it.


@dataclass(frozen=True, slots=True)
class RecordWindow:
    """Framed records that are written together, each whole or around one large value."""

    frames: U8  # all bytes except the large values, record after record
    starts: I64  # start of each record in `frames`, and the end of the last one
    cuts: I64 | None = None  # position of each large value in `frames`
    values: Sequence[memoryview] = ()  # the large values
    known_crc: int | None = None  # the CRC-32C of all records with their values

    @classmethod
    def from_records(cls, records: pa.BinaryArray | RecordWindow) -> RecordWindow:
        """Returns framed records as a window; returns a window unchanged."""
        if isinstance(records, RecordWindow):
            return records
        starts, frames = array_parts(records)
        return cls(frames, starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> I64:
        """Returns the size of each record, including its value."""
        frames = np.diff(self.starts)
        return frames if self.cuts is None else frames + _sizes(self.values)

    def crc32c_after(self, previous_crc: int) -> int:
        """Returns the CRC-32C of all bytes after preceding bytes with `previous_crc`."""
        if self.known_crc is not None:
            return combine_crcs(previous_crc, self.known_crc, int(self.lengths.sum()))
        (piece,) = self.iterate_pieces()
        return crc32c(piece, previous_crc)

    def iterate_pieces(self) -> Iterator[memoryview]:
        """Yields the bytes of all records in order; large values are separate pieces."""
        frames, start = self.frames.data, int(self.starts[0])
        cuts = [] if self.cuts is None else self.cuts.tolist()
        for cut, value in zip(cuts, self.values, strict=True):
            yield frames[start:cut]
            yield value
            start = cut
        yield frames[start : self.starts[-1]]

    def join_records(self) -> pa.BinaryArray:
        """Returns the records with copies of their values."""
        if self.cuts is None:
            return binary_array(self.starts, self.frames)
        data = np.frombuffer(b"".join(self.iterate_pieces()), np.uint8)
        return binary_array(offsets_of(self.lengths), data)


def _sizes(values: Sequence[memoryview]) -> I64:
    return np.array(list(map(len, values)), np.int64)


# The bytes of the value are only copied: all headers depend on its length alone. So a
# column of the same lengths replaces it, and is left out when the values of a row are
# written. A row with the values a, image and z:
#
#     whole    0a len | a | header of image | image | z
#     frames   0a len | a | header of image |       | z
#     cut      -----------------------------^


def large_column(batch: pa.RecordBatch, schema: Schema) -> str | None:
    """Returns the only column of views, if its values are stored unchanged."""
    viewed = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if has_views(column)
    ]
    features = [feature for feature in schema.features if feature.column in viewed]
    if len(viewed) != 1 or len(features) != 1:
        return None
    (feature,) = features
    is_stored = feature.kind is Kind.BYTES and feature.dtype != "string"
    is_whole = is_stored and not feature.is_sequence and not batch[viewed[0]].null_count
    return viewed[0] if is_whole else None


def encode_without_values(
    batch: pa.RecordBatch,
    schema: Schema,
    column: str,
    values: Sequence[bytes] | None = None,
    crcs: U32 | None = None,
) -> RecordWindow:
    """Encodes the records of all rows without the value of one column.

    Raises the errors of `encode`.

    Args:
      batch: the rows.
      schema: the features.
      column: the column from `large_column`.
      values: its values, if they are not in the batch.
      crcs: the CRC-32C of each value, if known.
    """
    if values is None:
        cells = viewed_values(batch[column])
    else:
        cells = [memoryview(value) for value in values]
    lengths = _sizes(cells)
    offsets = offsets_of(lengths)
    # These bytes are never read, so the system allocates no pages for them.
    absent = binary_array(offsets, np.empty(int(offsets[-1]), np.uint8))
    column_index = batch.schema.get_field_index(column)
    batch = batch.set_column(column_index, column, absent)
    cuts = np.empty(batch.num_rows, np.int64)
    columns = [
        (column[0], native.loops.LEFT_OUT, cuts, column[3], None, None)
        if column[3] is not None and _is_buffer_of(column[2], absent)
        else column
        for column in load_columns(batch, schema.features)
    ]
    sizes, record_lengths = measure(columns, batch.num_rows, FRAME_BYTES)
    framed = write_rows(
        columns, sizes, record_lengths - lengths, HEAD_BYTES, TAIL_BYTES
    )
    starts, frames = array_parts(framed)
    if crcs is None:
        crcs = np.fromiter(map(crc32c, cells), np.uint32, len(cells))
    whole_crc = native.loops.seal_around(frames, starts, cuts, lengths, crcs)
    return RecordWindow(frames, starts, cuts, cells, whole_crc)


def _is_buffer_of(buffer: Buffer, array: pa.BinaryArray) -> bool:
    """Checks whether a buffer is the buffer of the values of an array."""
    value_buffer = array.buffers()[2]  # None if there are no bytes
    return (
        bool(buffer)
        and value_buffer is not None
        and buffer.address == value_buffer.address
    )
