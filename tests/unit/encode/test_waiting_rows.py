"""Rows that wait become the records that would have been written at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from waiting_zoo import NUMBER, PARTS, TYPES, at_once, batch_of, loaded_from, schema_of

from recordmill.transforms import native
from recordmill.transforms.encode import waiting_rows
from recordmill.transforms.encode.waiting_rows import (
    binary_payloads,
    defer_rows,
    has_values,
    join_rows,
    lengths_of,
    payload_rows,
    payloads_of,
)
from recordmill.transforms.native import numpy_loops


@examples(150)
@given(PARTS, st.booleans(), st.data())
def test_any_rows_in_any_order(
    parts: list[list[Any]], is_compiled: bool, data: st.DataObject
) -> None:
    """Workers with the native extension and without it share a job."""
    schema = schema_of(TYPES)
    batches = [batch_of(rows) for rows in parts]
    expected = [record for batch in batches for record in at_once(batch, schema)]
    loaded = [loaded_from(batch, schema) for batch in batches]
    if data.draw(st.booleans()):  # some wait as records
        loaded[0] = payload_rows(payloads_of(loaded[0]))
    order = np.array(data.draw(st.permutations(range(len(expected)))), np.intp)
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            patch.setattr(native, "loops", numpy_loops)
        joined = join_rows(loaded)
        assert binary_payloads(joined).to_pylist() == expected
        assert lengths_of(joined).tolist() == [*map(len, expected)]
        shuffled = [expected[row] for row in order.tolist()]
        taken = join_rows(loaded, order)
        assert binary_payloads(taken).to_pylist() == shuffled
        assert lengths_of(taken).tolist() == [*map(len, shuffled)]
        first, end = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
        some = taken.slice(first, end - first)
        assert binary_payloads(some).to_pylist() == shuffled[first:end]
        assert lengths_of(some).tolist() == [*map(len, shuffled[first:end])]


@pytest.mark.parametrize(
    ("number", "width"),
    [(127, 1), (-128, 1), (128, 2), (-32769, 4), (1 << 31, 8), (-(1 << 63), 8)],
)
def test_integers_have_the_bytes_that_the_largest_needs(
    number: int, width: int
) -> None:
    batches = [batch_of([(value, 0.5, "", b"")]) for value in (0, number)]
    schema = schema_of(TYPES)
    joined = join_rows([loaded_from(batch, schema) for batch in batches])
    assert joined.schema.field(NUMBER).type.bit_width == 8 * width
    expected = [record for batch in batches for record in at_once(batch, schema)]
    assert payloads_of(joined).to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.list_(pa.int64()), [1, 2]), (pa.binary(), b"x" * 1000)]
)
def test_written_at_once(kind: pa.DataType, value: object) -> None:
    """Lists, and values that take about as much as their records."""
    types = pa.schema([("a", kind)])
    batch, schema = batch_of([(value,)] * 3, types), schema_of(types)
    loaded = defer_rows(batch, schema)
    assert not has_values(loaded)
    assert payloads_of(loaded).to_pylist() == at_once(batch, schema)


def test_only_rows_with_the_same_features_are_joined_as_values() -> None:
    """As of a column without a value in the first rows, which becomes text later."""
    numbers, words = (pa.schema([(NUMBER, kind)]) for kind in (pa.int64(), pa.string()))
    number, word, nothing = (
        loaded_from(batch_of([(value,)], types), schema_of(types))
        for types, value in ((numbers, 1), (words, "a"), (words, None))
    )
    assert not has_values(join_rows([number, word]))
    joined = join_rows([word, nothing])
    assert has_values(joined)
    assert joined.num_rows == 2


def test_more_than_a_column_can_hold_is_not_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = schema_of(TYPES)
    batches = [batch_of([(number, 0.5, "a", b"b")]) for number in range(3)]
    loaded = [loaded_from(batch, schema) for batch in batches]
    monkeypatch.setattr(
        waiting_rows, "MAX_CELL_BYTES", sum(r.nbytes for r in loaded) - 1
    )
    joined = join_rows(loaded)
    assert not has_values(joined)
    expected = [record for batch in batches for record in at_once(batch, schema)]
    assert binary_payloads(joined).to_pylist() == expected
