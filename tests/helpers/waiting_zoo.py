"""Rows of all kinds of values, as rows that wait for their shard."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms.encode import waiting_rows
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.waiting_rows import defer_rows, has_values
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, frame_records

NUMBER, REAL, TEXT = "number" * 6, "real" * 9, "text" * 9  # long: values are shorter
TYPES = pa.schema(
    [
        (NUMBER, pa.int64()),
        (REAL, pa.float32()),
        (TEXT, pa.string()),
        ("b", pa.binary()),
    ]
)
KINDS = {
    pa.int64(): (Kind.INT64, "int64"),
    pa.float32(): (Kind.FLOAT, "float32"),
    pa.string(): (Kind.BYTES, "string"),
    pa.binary(): (Kind.BYTES, "bytes"),
    pa.list_(pa.int64()): (Kind.INT64, "int64"),
}
ROW = st.tuples(
    st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300),
    st.none() | st.floats(width=32, allow_nan=False),
    st.none() | st.text(max_size=5),
    st.none() | st.binary(max_size=5),
)
PARTS = st.lists(st.lists(ROW, min_size=1, max_size=5), min_size=1, max_size=3)


def batch_of(rows: list[Any], types: pa.Schema = TYPES) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column, kind)
        for column, kind in zip(columns, types.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=types)


def schema_of(types: pa.Schema) -> Schema:
    """Returns a feature for each column."""
    features = []
    for each in types:
        kind, dtype = KINDS[each.type]
        shape = (None,) if pa.types.is_list(each.type) else ()
        features.append(FeatureSpec(each.name, kind, dtype=dtype, shape=shape))
    return Schema(tuple(features))


def loaded_from(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Loads rows that wait as their values, though that may save nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting_rows, "_MAX_VALUE_SHARE", 1e9)
        loaded = defer_rows(batch, schema)
    assert has_values(loaded)
    return loaded


def at_once(batch: pa.RecordBatch, schema: Schema) -> list[bytes]:
    framed = encode(batch, schema, head_room=HEAD_BYTES, tail_room=TAIL_BYTES)
    frame_records(framed)
    found: list[bytes] = framed.to_pylist()
    return found
