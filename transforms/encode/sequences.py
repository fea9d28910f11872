"""Serializes Arrow batches as tf.train.SequenceExample.

    SequenceExample  0a len Features | 12 len FeatureLists
    FeatureLists     list*                   sorted by key
    list             0a len | 0a len key | 12 len FeatureList
    FeatureList      (0a len Feature)*       a Feature for each step

Both parts are always written, also without an entry. The bytes equal protobuf's
SerializeToString(deterministic=True).
Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import RowsError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms.arrow import binary_array, require_fit, value_offsets
from recordmill.transforms.encode.arrow_types import require_column
from recordmill.transforms.encode.cells import Cells, RowCells, cells_of, payload_cells
from recordmill.transforms.encode.examples import (
    feature_header,
    features_cells,
    join_cells,
)
from recordmill.transforms.encode.feature_map import load_steps
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    errors_in,
    merge,
    raise_errors,
)
from recordmill.transforms.encode.wire import field_header, header_cells


def encode_sequences(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Serializes every row as a sequence example; the rest is as in `encode`.

    Features with `sequence` are feature lists, all others are context.
    """
    context = features_cells(batch, [f for f in schema.features if not f.sequence])
    lists = RowCells(batch.num_rows)
    errors: RowErrors = {}
    for feature in schema.features:
        if feature.sequence:
            require_column(batch.schema, feature)
            try:
                lists.add(_list_cells(batch[feature.column], feature))
            except RowsError as error:
                errors = merge(errors, errors_in(error))
    raise_errors(errors)
    lists.flush()
    outer, outer_lengths = header_cells(
        partial(field_header, bytes(head_room) + b"\x0a"), context.lengths
    )
    inner, inner_lengths = header_cells(partial(field_header, b"\x12"), lists.lengths)
    headers = outer_lengths + inner_lengths
    require_fit(int((headers + context.lengths + lists.lengths + tail_room).sum()))
    arrays = [outer, *context.arrays, inner, *lists.arrays]
    return join_cells(arrays, tail_room)


def _list_cells(array: pa.Array, feature: FeatureSpec) -> Cells:
    """Makes a feature list's cells: in each row its map entry with all steps."""
    nested, column = load_steps(array, feature)
    steps = RowCells(len(nested.leaf))
    steps.add(cells_of(feature.kind, column, partial(_step_header, feature.kind)))
    steps.flush()
    joined = pc.binary_join_element_wise(*steps.arrays, b"")
    payload = binary_array(
        value_offsets(joined)[nested.starts],
        np.frombuffer(joined.buffers()[2] or b"", np.uint8),
    )
    return payload_cells(
        payload, nested.valid, partial(_list_header, feature.name.encode())
    )


def _step_header(kind: Kind, payload_length: int, *, delimited: bool) -> bytes:
    return b"\x0a" + feature_header(kind, payload_length, delimited=delimited)


def _list_header(key: bytes, steps_length: int) -> bytes:
    entry = field_header(b"\x0a", len(key)) + key + field_header(b"\x12", steps_length)
    return field_header(b"\x0a", len(entry) + steps_length) + entry
