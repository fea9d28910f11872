"""Serializes Arrow batches as tf.train.SequenceExample.

    SequenceExample  0a len Features | 12 len FeatureLists
    FeatureLists     list*                   sorted by key
    list             0a len | 0a len key | 12 len FeatureList
    FeatureList      (0a len Feature)*       a Feature for each step

Both parts are always written, also without an entry. The first is an Example, so
examples.py writes it; and the Feature of a step is what an Example of one feature without
a name ends with:

    Example   0a len | 0a len | 0a 00 | 12 len Feature      its 12 becomes the step's 0a

The bytes equal protobuf's SerializeToString(deterministic=True).
Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import RowsError
from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.transforms.arrow import (
    array_parts,
    binary_array,
    offsets_of,
    value_lengths,
)
from recordmill.transforms.binary_views import views_at
from recordmill.transforms.encode.arrow_types import require_column
from recordmill.transforms.encode.examples import (
    column_of,
    load_columns,
    measure,
    write_rows,
)
from recordmill.transforms.encode.feature_map import Entry, load_steps
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    errors_in,
    merge,
    raise_errors,
)
from recordmill.transforms.encode.wire import header_cells, join_cells
from recordmill.transforms.native.numpy_loops import field_header, varint_lengths


def encode_sequences(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Serializes every row as a sequence example; the rest is as in `encode`.

    Features with `sequence` are feature lists, all others are context.
    """
    context = load_columns(batch, [f for f in schema.features if not f.sequence])
    lists: list[pa.BinaryArray] = []
    errors: RowErrors = {}
    for feature in schema.features:
        if feature.sequence:
            require_column(batch.schema, feature)
            try:
                lists += _list_cells(batch[feature.column], feature)
            except RowsError as error:
                errors = merge(errors, errors_in(error))
    raise_errors(errors)
    sizes, lengths = measure(context, batch.num_rows, head_room)
    examples = write_rows(context, sizes, lengths, head_room, 0)
    list_bytes = sum(map(value_lengths, lists), np.zeros(batch.num_rows, np.int64))
    inner = header_cells(lambda length: field_header(b"\x12", length), list_bytes)
    return join_cells([examples, inner, *lists], tail_room)


def _list_cells(array: pa.Array, feature: FeatureSpec) -> list[pa.BinaryArray]:
    """Makes a feature list's map entry of each row: its header, and all steps."""
    nested, column = load_steps(array, feature)
    assert nested.starts is not None
    columns = [column_of(Entry("", feature.kind, column))]
    sizes, lengths = measure(columns, len(nested.leaf), 0)
    offsets, data = array_parts(write_rows(columns, sizes, lengths, 0, 0))
    inside = sizes - 1 - varint_lengths(sizes)  # the entry's length, or nearly
    starts = offsets[:-1] + varint_lengths(sizes) + varint_lengths(inside) + 4
    data = data.copy()
    data[starts] = 0x0A
    lengths = offsets[1:] - starts
    buffers = [pa.py_buffer(data)]
    cells = views_at(buffers, np.zeros_like(starts), starts, lengths).cast(pa.binary())
    steps = binary_array(offsets_of(lengths)[nested.starts], array_parts(cells)[1])
    key = field_header(b"\x0a", len(feature.name.encode())) + feature.name.encode()

    def header(steps_length: int) -> bytes:
        entry = key + field_header(b"\x12", steps_length)
        return field_header(b"\x0a", len(entry) + steps_length) + entry

    if nested.valid is not None:
        steps = pc.if_else(pa.array(nested.valid), steps, b"")
    return [header_cells(header, value_lengths(steps), nested.valid), steps]
