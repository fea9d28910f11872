"""Records that are written later are those that would have been written at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from unwritten_zoo import (
    NUMBER,
    PARTS,
    TYPES,
    at_once,
    batch_of,
    loaded_from,
    schema_of,
)

from recordmill.transforms.encode.waiting_rows import (
    UnwrittenRecords,
    load_records,
    measured_records,
    payload_offsets,
    written_payloads,
)
from recordmill.transforms.tfrecord import seal


@examples(150)
@given(PARTS, st.data())
def test_any_rows_in_any_order(parts: list[list[Any]], data: st.DataObject) -> None:
    schema = schema_of(TYPES)
    batches = [batch_of(rows) for rows in parts]
    expected = [record for batch in batches for record in at_once(batch, schema)]
    loaded = [loaded_from(batch, schema) for batch in batches]
    joined = UnwrittenRecords.joined(loaded)
    assert joined is not None
    assert joined.written().to_pylist() == expected
    order = np.array(data.draw(st.permutations(range(len(expected)))), np.intp)
    taken = UnwrittenRecords.joined(loaded, order)
    assert taken is not None
    expected = [expected[row] for row in order.tolist()]
    assert taken.written().to_pylist() == expected
    assert np.diff(taken.offsets).tolist() == [len(record) for record in expected]
    assert taken.nbytes == sum(map(len, expected))
    first, end = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
    some = bytearray(sum(map(len, expected[first:end])))
    taken.write(first, end, memoryview(some))
    assert bytes(some) == b"".join(expected[first:end])


def test_what_is_next_to_the_rows_is_not_touched() -> None:
    schema = schema_of(TYPES)
    rows = [(number, 1.5, "text", b"b") for number in range(200)]
    records = load_records(batch_of(rows), schema)
    assert isinstance(records, UnwrittenRecords)
    whole = records.written().to_pylist()
    size = sum(map(len, whole[100:180]))
    room = bytearray(b"\xaa" * (size + 200))
    records.write(100, 180, memoryview(room)[100 : 100 + size])
    assert bytes(room) == b"\xaa" * 100 + b"".join(whole[100:180]) + b"\xaa" * 100


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.list_(pa.int64()), [1, 2]), (pa.binary(), b"x" * 1000)]
)
def test_written_at_once(kind: pa.DataType, value: object) -> None:
    """Lists, and values that take about as much as their records."""
    types = pa.schema([("a", kind)])
    batch, schema = batch_of([(value,)] * 3, types), schema_of(types)
    loaded = load_records(batch, schema)
    assert not isinstance(loaded, UnwrittenRecords)
    seal(loaded)
    records = at_once(batch, schema)
    assert written_payloads(loaded).to_pylist() == records
    assert np.diff(payload_offsets(loaded)).tolist() == [len(each) for each in records]


def test_only_records_with_the_same_features_are_joined() -> None:
    numbers, words = (pa.schema([(NUMBER, kind)]) for kind in (pa.int64(), pa.string()))
    number, word, nothing = (
        loaded_from(batch_of([(value,)], types), schema_of(types))
        for types, value in ((numbers, 1), (words, "a"), (words, None))
    )
    assert UnwrittenRecords.joined([number, word]) is None
    joined = UnwrittenRecords.joined([word, nothing])
    assert joined is not None
    assert len(joined) == 2


def test_more_than_a_column_can_hold_is_not_joined() -> None:
    text = np.zeros(800 << 20, np.uint8)  # never written: it takes no memory
    offsets = np.array([0, 800 << 20], np.int32)
    cells = [(b"text", 0x0A, text, offsets, None, None)]
    parts = [measured_records(cells, 1)] * 3
    assert UnwrittenRecords.joined(parts) is None
