"""Serializes batches as tf.train.Example by the compiled loops, row by row.

The columns are loaded and checked as everywhere (feature_map.py); the loops only lay out
their bytes. Those are the same as examples.py makes, which is used without them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from recordmill.schemas.features.feature import Kind, Schema
from recordmill.transforms.arrow import (
    binary_array,
    offsets_of,
    require_fit,
    value_offsets,
)
from recordmill.transforms.compiled import Column, Loops
from recordmill.transforms.encode.feature_map import Entry, load_entries
from recordmill.transforms.encode.wire import varint_lengths

_TAGS = {Kind.BYTES: 0x0A, Kind.FLOAT: 0x12, Kind.INT64: 0x1A}


def encode_compiled(
    loops: Loops, batch: pa.RecordBatch, schema: Schema, head_room: int, tail_room: int
) -> pa.BinaryArray:
    """Serializes every row; arguments, result and errors are those of `encode`."""
    columns = [_column_of(entry) for entry in load_entries(batch, schema.features)]
    sizes = np.empty(batch.num_rows, np.int64)
    loops.measure(columns, sizes)
    headers = 1 + varint_lengths(sizes.view(np.uint64))
    offsets = offsets_of(head_room + headers + sizes + tail_room)
    require_fit(int(offsets[-1]))
    data = np.empty(int(offsets[-1]) + loops.SLACK_BYTES, np.uint8)
    loops.write(columns, sizes, offsets, head_room, tail_room, data)
    return binary_array(offsets, data)


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
    return entry.key.encode(), _TAGS[entry.kind], values, offsets, lists, column.valid
