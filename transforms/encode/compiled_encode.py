"""Serializes batches as tf.train.Example by the compiled loops, row by row.

The columns are loaded and checked as everywhere (feature_map.py); the loops only lay out
their bytes. Those are the same as examples.py makes, which is used without them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Kind, Schema
from recordmill.transforms.arrow import (
    I64,
    binary_array,
    offsets_of,
    require_fit,
    value_lengths,
    value_offsets,
)
from recordmill.transforms.compiled import Column, Loops
from recordmill.transforms.encode.feature_map import Entry, load_entries
from recordmill.transforms.encode.wire import varint_lengths

TAGS = {Kind.BYTES: 0x0A, Kind.FLOAT: 0x12, Kind.INT64: 0x1A}
KIND_OF_TAG = {tag: kind for kind, tag in TAGS.items()}


def encode_compiled(
    loops: Loops, batch: pa.RecordBatch, schema: Schema, head_room: int, tail_room: int
) -> pa.BinaryArray:
    """Serializes every row; arguments, result and errors are those of `encode`."""
    columns = load_columns(batch, schema)
    sizes, lengths = measure(loops, columns, batch.num_rows, head_room, tail_room)
    return write_rows(loops, columns, sizes, lengths, head_room, tail_room)


def load_columns(batch: pa.RecordBatch, schema: Schema) -> list[Column]:
    """Returns what the loops need of every feature.

    Raises:
      SchemaError, RowsError: see `encode`.
    """
    return [_column_of(entry) for entry in load_entries(batch, schema.features)]


def encode_around_compiled(
    loops: Loops,
    batch: pa.RecordBatch,
    schema: Schema,
    absent: pa.BinaryArray,
    head_room: int,
    tail_room: int,
) -> tuple[pa.BinaryArray, I64]:
    """Serializes every row without the values of one column of the batch.

    Args:
      loops: the compiled module.
      batch: the columns that the schema's features name.
      schema: features.
      absent: that column, which has only the lengths of its values.
      head_room: see `encode`.
      tail_room: see `encode`.

    Returns:
      The examples, and how many bytes of each row stand before the missing value.
    """
    cuts = np.empty(batch.num_rows, np.int64)
    columns = [
        (entry.key.encode(), loops.LEFT_OUT, cuts, value_offsets(absent), None, None)
        if entry.kind is Kind.BYTES and same_bytes(entry.column.values, absent)
        else _column_of(entry)
        for entry in load_entries(batch, schema.features)
    ]
    sizes, lengths = measure(loops, columns, batch.num_rows, head_room, tail_room)
    lengths -= value_lengths(absent)
    framed = write_rows(loops, columns, sizes, lengths, head_room, tail_room)
    before: I64 = cuts - value_offsets(framed)[:-1].astype(np.int64)
    return framed, before


def measure(
    loops: Loops, columns: list[Column], num_rows: int, head_room: int, tail_room: int
) -> tuple[I64, I64]:
    """Returns the size of each row's Features message, and of its example with room."""
    sizes = np.empty(num_rows, np.int64)
    loops.measure(columns, sizes)
    headers = 1 + varint_lengths(sizes.view(np.uint64))
    return sizes, head_room + headers + sizes + tail_room


def write_rows(
    loops: Loops,
    columns: list[Column],
    sizes: I64,
    lengths: I64,
    head_room: int,
    tail_room: int,
) -> pa.BinaryArray:
    """Writes the examples of all rows, whose sizes and lengths were measured.

    Raises:
      RecordmillError: together they are beyond 2 GiB.
    """
    offsets = offsets_of(lengths)
    require_fit(int(offsets[-1]))
    data = np.empty(int(offsets[-1]), np.uint8)
    loops.write(columns, 0, sizes, offsets, head_room, tail_room, data)
    return binary_array(offsets, data)


def same_bytes(one: pa.BinaryArray, other: pa.BinaryArray) -> bool:
    """Tells whether two arrays have their values in one buffer."""
    data = one.buffers()[2]  # None if there are no bytes
    return data is not None and bool(data.address == other.buffers()[2].address)


def _column_of(entry: Entry) -> Column:
    """Returns a column's buffers in the form that the loops take."""
    column, offsets = entry.column, None
    if entry.kind is Kind.BYTES:
        offsets = value_offsets(column.values)
        values = column.values.buffers()[2] or b""
    elif entry.kind is Kind.FLOAT:
        values = np.ascontiguousarray(column.values, "<f4")
    else:
        values = np.ascontiguousarray(column.values, np.int64)
    lists = column.lists
    if lists is not None:
        lists = np.ascontiguousarray(lists, np.int64)
    return entry.key.encode(), TAGS[entry.kind], values, offsets, lists, column.valid
