"""Serializes Arrow batches as tf.train.Example, without Python per row.

    Example   0a len Features
    Features  entry*                         sorted by key
    entry     0a len | 0a len key | 12 len Feature
    Feature   0a len BytesList | 12 len FloatList | 1a len Int64List
    BytesList (0a len bytes)*    FloatList, Int64List  0a len packed values

The columns are loaded and checked first (feature_map.py); the native functions lay out
their bytes, which equal protobuf's SerializeToString(deterministic=True).
Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms import native
from recordmill.transforms.arrow import (
    I64,
    binary_array,
    offsets_of,
    require_fit,
    value_offsets,
)
from recordmill.transforms.encode.feature_map import Entry, load_entries
from recordmill.transforms.native import Column
from recordmill.transforms.native.numpy_loops import varint_lengths

TAGS = {Kind.BYTES: 0x0A, Kind.FLOAT: 0x12, Kind.INT64: 0x1A}
KIND_OF_TAG = {tag: kind for kind, tag in TAGS.items()}


def encode(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Serializes every row as a tf.train.Example.

    Args:
      batch: the columns that the schema's features name.
      schema: features; a null cell leaves its feature out of the example.
      head_room: zero bytes to leave before each example (for a record's frame).
      tail_room: zero bytes to leave behind each example.

    Returns:
      A binary array of batch.num_rows rows, its buffers fresh and writable.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows with a value that a feature cannot hold.
      RecordmillError: the examples together are beyond 2 GiB.
    """
    columns = load_columns(batch, schema.features)
    sizes, lengths = measure(columns, batch.num_rows, head_room + tail_room)
    return write_rows(columns, sizes, lengths, head_room, tail_room)


def load_columns(
    batch: pa.RecordBatch, features: Sequence[FeatureSpec]
) -> list[Column]:
    """Returns what the native functions need of every feature.

    Raises:
      SchemaError, RowsError: see `encode`.
    """
    return [column_of(entry) for entry in load_entries(batch, features)]


def column_of(entry: Entry) -> Column:
    """Returns a column's buffers in the form that the native functions take."""
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


def measure(columns: Sequence[Column], num_rows: int, room: int) -> tuple[I64, I64]:
    """Returns the size of each row's Features message, and of its example with room."""
    sizes = np.empty(num_rows, np.int64)
    native.loops.measure(list(columns), sizes)
    return sizes, room + 1 + varint_lengths(sizes) + sizes


def write_rows(
    columns: Sequence[Column], sizes: I64, lengths: I64, head_room: int, tail_room: int
) -> pa.BinaryArray:
    """Writes the examples of all rows, whose sizes and lengths were measured.

    Raises:
      RecordmillError: together they are beyond 2 GiB.
    """
    offsets = offsets_of(lengths)
    require_fit(int(offsets[-1]))
    data = np.empty(int(offsets[-1]), np.uint8)
    native.loops.write(list(columns), 0, sizes, offsets, head_room, tail_room, data)
    return binary_array(offsets, data)
