"""Keeps rows until their shard is written, as a RecordBatch that is encoded there.

A row of a table with 40 columns takes 200 bytes as values, and 940 as a framed record, of
which most is the names of its features. So a batch of waiting rows has the columns

    size      bytes of the row's Features message
    a, b ..   what the features hold, in the order in which they are written; integers
              have as few bytes as the largest needs

in memory, and as Arrow IPC in the runner's shuffle. Of rows whose values take about as
much as their records, as lists and large values do, the records wait: as the only column,
of binary or of views. So do references to rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    binary_array,
    empty_bytes,
    is_of_views,
    offsets_of,
    require_fit,
    take_views,
    value_lengths,
    value_offsets,
    view_lengths,
)
from recordmill.transforms.encode.examples import (
    TAGS,
    load_columns,
    measure,
    write_rows,
)
from recordmill.transforms.native import Column
from recordmill.transforms.native.numpy_loops import varint_lengths
from recordmill.transforms.tfrecord import FRAME_BYTES, HEAD_BYTES, TAIL_BYTES, seal

# Values wait in place of records if they take at most so much of their bytes.
_MOST_SHARE = 0.7
_TYPES = {TAGS[Kind.BYTES]: pa.binary(), TAGS[Kind.FLOAT]: pa.float32()}
_INTEGERS = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}  # their bytes
_TAG_OF = {kind: tag for tag, kind in _TYPES.items()}


def payload_rows(payloads: pa.Array) -> pa.RecordBatch:
    """Returns framed records, or references to rows, as waiting rows."""
    return pa.RecordBatch.from_arrays([payloads], [""])


def load_rows(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Returns the examples of a batch as waiting rows; raises what `encode` does."""
    columns = load_columns(batch, schema.features)
    sizes, lengths = measure(columns, batch.num_rows, FRAME_BYTES)
    num_bytes = int(lengths.sum())
    require_fit(num_bytes)
    if all(column[4] is None for column in columns):
        arrays = [_integers(sizes), *map(_array_of, columns)]
        names = ["", *(column[0].decode() for column in columns)]
        rows = pa.RecordBatch.from_arrays(arrays, names)
        if rows.nbytes <= _MOST_SHARE * num_bytes:
            return rows
    records = write_rows(columns, sizes, lengths, HEAD_BYTES, TAIL_BYTES)
    seal(records)
    return payload_rows(records)


def has_values(rows: pa.RecordBatch) -> bool:
    """Tells whether rows wait as their values, not as payloads."""
    return rows.schema.field(0).type in _INTEGERS


def lengths_of(rows: pa.RecordBatch) -> I64:
    """Returns the bytes of each row's payload: of its framed record, if it has values."""
    first = rows.column(0)
    if has_values(rows):
        return _lengths(_numbers(first).astype(np.int64))
    return view_lengths(first) if is_of_views(first) else value_lengths(first)


def payloads_of(rows: pa.RecordBatch) -> pa.Array:
    """Returns the payload of each row, binary or views; writes those that are values."""
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
    """Returns the payloads of rows, one behind the other; views are copied once."""
    payloads = payloads_of(rows)
    return payloads.cast(pa.binary()) if is_of_views(payloads) else payloads


def join_rows(
    parts: Sequence[pa.RecordBatch], order: npt.NDArray[np.integer] | None = None
) -> pa.RecordBatch:
    """Joins waiting rows: as values if all are and have the same features.

    Payloads are not copied: they become views. `order` has the index among all of each
    row of the result.
    """
    schema = _common_schema(parts)
    if schema is not None:
        parts = [part if part.schema == schema else part.cast(schema) for part in parts]
        # A column at a time: what was joined is still in the cache when it is ordered,
        # and only one column is there twice.
        columns: Iterable[pa.Array] = map(
            pa.concat_arrays, zip(*(part.columns for part in parts), strict=True)
        )
        if order is not None:
            indices = pa.array(order)
            columns = (pc.take(c, indices, boundscheck=False) for c in columns)
        return pa.RecordBatch.from_arrays(list(columns), schema=schema)
    views = pa.concat_arrays(
        [payloads_of(part).cast(pa.binary_view()) for part in parts]
    )
    return payload_rows(views if order is None else take_views(views, order))


def _common_schema(parts: Sequence[pa.RecordBatch]) -> pa.Schema | None:
    """Returns columns that hold the values of all parts; None if there are none.

    The same features may have integers of several widths. More than 2 GiB, which may be
    one column, cannot be joined.
    """
    first = parts[0].schema
    if not all(map(has_values, parts)):
        return None
    if sum(part.nbytes for part in parts) > MAX_CELL_BYTES:
        return None
    schemas = {part.schema for part in parts}
    if len(schemas) == 1:
        return first
    if any(schema.names != first.names for schema in schemas):
        return None
    types = []
    for found in zip(*(schema.types for schema in schemas), strict=True):
        if len({_TAG_OF.get(kind) for kind in found}) > 1:
            return None
        types.append(max(found, key=lambda kind: _INTEGERS.get(kind, 0)))
    return pa.schema(map(pa.field, first.names, types))


def _lengths(sizes: I64) -> I64:
    """Returns the bytes of framed records, from those of their Features messages."""
    return FRAME_BYTES + 1 + varint_lengths(sizes) + sizes


def _integers(values: I64, bitmap: pa.Buffer | None = None) -> pa.Array:
    """Returns integers in as few bytes as the largest needs."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    values = values.astype(np.min_scalar_type(min(low, ~high)), copy=False)
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bitmap, pa.py_buffer(values)])


def _array_of(column: Column) -> pa.Array:
    """Returns what a feature without lists holds."""
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
    """Returns what a feature holds as the native functions take it."""
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
    """Returns numbers, whatever stands where one is missing."""
    width = _INTEGERS.get(array.type)
    dtype = f"<i{width}" if width else "<f4"
    found = np.frombuffer(array.buffers()[1] or b"", dtype)
    return found[array.offset : array.offset + len(array)]
