"""Rows that lie near each other are read together: each row once, little in vain."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.storage.reading import row_spans


@given(
    st.lists(st.integers(0, 300), max_size=20),
    st.integers(1, 9),
    st.integers(0, 30),
    st.integers(1, 100),
)
def test_each_row_is_in_one_span(
    offsets: list[int], row_bytes: int, gap: int, size: int
) -> None:
    file = np.arange(400)
    spans = [
        (rows.tolist(), start, stop)
        for rows, start, stop in row_spans(
            np.array(offsets, np.int64), row_bytes, max_gap_bytes=gap, span_bytes=size
        )
    ]
    assert sorted(row for rows, _, _ in spans for row in rows) == [*range(len(offsets))]
    for rows, start, stop in spans:
        begins = [offsets[row] for row in rows]
        needed = {byte for begin in begins for byte in file[begin : begin + row_bytes]}
        assert (start, stop) == (min(needed), max(needed) + 1)
        assert stop - start < size + row_bytes
        assert all(b - a <= row_bytes + gap for a, b in pairwise(begins))
    for (before, _, _), (after, _, _) in pairwise(spans):  # no two could be one
        last, first = offsets[before[-1]], offsets[after[0]]
        assert first - last > row_bytes + gap or first // size > last // size
