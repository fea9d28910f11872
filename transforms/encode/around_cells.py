"""Serializes examples without the bytes of one large cell, which is not copied.

The cell's bytes are needed for nothing but to be copied: all headers depend on its length
alone. So a column of the same lengths stands for it, and where the cells of a row would
be joined, that one is left out. A row with the cells a, image and z:

    whole    0a len | a | header of image | image | z
    hollow   0a len | a | header of image |       | z
    before   -----------------------------^
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Kind, Schema
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, binary_array, offsets_of, value_offsets
from recordmill.transforms.binary_views import is_of_views, viewed_values
from recordmill.transforms.encode.examples import load_columns, measure, write_rows
from recordmill.transforms.native import Buffer


def large_column(batch: pa.RecordBatch, schema: Schema) -> str | None:
    """Returns the only column of views, if its values are stored as they are."""
    viewed = [
        name
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        if is_of_views(column)
    ]
    features = [feature for feature in schema.features if feature.column in viewed]
    if len(viewed) != 1 or len(features) != 1:
        return None
    (feature,) = features
    is_stored = feature.kind is Kind.BYTES and feature.dtype != "string"
    is_whole = is_stored and not feature.sequence and not batch[viewed[0]].null_count
    return viewed[0] if is_whole else None


def encode_around(
    batch: pa.RecordBatch,
    schema: Schema,
    column: str,
    values: Sequence[bytes] | None = None,
    *,
    head_room: int = 0,
    tail_room: int = 0,
) -> tuple[pa.BinaryArray, I64, list[memoryview]]:
    """Serializes every row as a tf.train.Example without the value of one column.

    Args:
      batch: the columns that the schema's features name.
      schema: features.
      column: what `large_column` returned.
      values: those of the column, if they are known apart from it.
      head_room: zero bytes to leave before each example.
      tail_room: zero bytes to leave behind each example.

    Returns:
      The examples, its buffers fresh and writable; how many bytes of each row stand
      before the missing value; and these values.

    Raises:
      SchemaError, RowsError: as `encode`.
    """
    if values is None:
        cells = viewed_values(batch[column])
    else:
        cells = [memoryview(value) for value in values]
    lengths = np.array(list(map(len, cells)), np.int64)
    offsets = offsets_of(lengths)
    # Nobody reads these bytes, so they never get pages of memory.
    absent = binary_array(offsets, np.empty(int(offsets[-1]), np.uint8))
    place = batch.schema.get_field_index(column)
    batch = batch.set_column(place, column, absent)
    cuts = np.empty(batch.num_rows, np.int64)
    columns = [
        (column[0], native.loops.LEFT_OUT, cuts, column[3], None, None)
        if column[3] is not None and _is_buffer_of(column[2], absent)
        else column
        for column in load_columns(batch, schema.features)
    ]
    sizes, whole = measure(columns, batch.num_rows, head_room + tail_room)
    framed = write_rows(columns, sizes, whole - lengths, head_room, tail_room)
    before: I64 = cuts - value_offsets(framed)[:-1].astype(np.int64)
    return framed, before, cells


def _is_buffer_of(buffer: Buffer, array: pa.BinaryArray) -> bool:
    """Returns whether it is the buffer that the values of an array lie in."""
    data = array.buffers()[2]  # None if there are no bytes
    return bool(buffer) and data is not None and buffer.address == data.address
