"""Rows that were packed as values are the records that would have been written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from unwritten_zoo import PARTS, TYPES, at_once, batch_of, loaded_from, schema_of

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms import native
from recordmill.transforms.encode.waiting_rows import (
    PackedValues,
    UnwrittenRecords,
    open_values,
    written_payloads,
)
from recordmill.transforms.native import numpy_loops


def packed(values: PackedValues, first: int, end: int) -> memoryview:
    return memoryview(b"".join(values.rows(first, end)))


def records_of(parts: list[list[Any]]) -> tuple[UnwrittenRecords, list[bytes]]:
    """Returns rows as unwritten records, and as those that were written at once."""
    schema = schema_of(TYPES)
    batches = [batch_of(rows) for rows in parts]
    joined = UnwrittenRecords.joined([loaded_from(each, schema) for each in batches])
    assert joined is not None
    return joined, [record for batch in batches for record in at_once(batch, schema)]


@examples(100)
@given(PARTS, st.booleans(), st.data())
def test_any_rows(
    parts: list[list[Any]], is_compiled: bool, data: st.DataObject
) -> None:
    """Workers with the native extension and without them share a job."""
    unwritten, expected = records_of(parts)
    values = PackedValues(unwritten)
    first, end = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
    some = packed(values, first, end)
    with pytest.MonkeyPatch.context() as patch:
        if not is_compiled:
            patch.setattr(native, "loops", numpy_loops)
        opened = open_values(some, end - first)
    assert written_payloads(opened).to_pylist() == expected[first:end]


@given(PARTS)
def test_ends_count_the_bytes_of_rows(parts: list[list[Any]]) -> None:
    unwritten, expected = records_of(parts)
    values = PackedValues(unwritten)
    for first in range(len(expected)):
        for end in range(first, len(expected) + 1):
            most = values.ends[end] - values.ends[first] + values.overhead
            assert most - 5 <= len(packed(values, first, end)) <= most


@pytest.mark.parametrize(
    ("number", "width"),
    [(127, 1), (-128, 1), (128, 2), (-32769, 4), (1 << 31, 8), (-(1 << 63), 8)],
)
def test_integers_have_the_bytes_that_the_largest_needs(
    number: int, width: int
) -> None:
    unwritten, _ = records_of([[(number, 0.5, "", b""), (0, 0.5, "", b"")]])
    ends = PackedValues(unwritten).ends
    assert np.diff(ends).tolist() == [width + 4 + 4 + 4] * 2


def test_other_bytes_are_not_opened() -> None:
    unwritten, _ = records_of([[(1, 0.5, "a", b"b"), (None, None, None, None)]])
    some = packed(PackedValues(unwritten), 0, 2)
    for size in range(len(some)):
        with pytest.raises(RecordmillError, match="packed values are damaged"):
            open_values(some[:size], 2)
    with pytest.raises(RecordmillError, match="packed values are damaged"):
        open_values(memoryview(bytes(some) + b"x"), 2)
