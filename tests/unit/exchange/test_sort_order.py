"""The order of rows in a run is the stable one, with equal keys or without."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.exchange.sorted_runs import sort_order, stable_order

KEYS = st.integers(0, 3) | st.integers(0, (1 << 64) - 1)
ROWS = st.lists(st.tuples(st.integers(0, 3), KEYS), max_size=40)


@given(ROWS)
def test_rows_are_sorted_by_split_and_key_and_stay_in_their_order(
    rows: list[tuple[int, int]],
) -> None:
    splits = np.array([split for split, _ in rows], np.uint8)
    keys = np.array([key for _, key in rows], np.uint64)
    expected = sorted(range(len(rows)), key=lambda row: rows[row])
    found = sort_order(keys, splits, 4)
    assert found is not None
    assert found.tolist() == expected
    expected = sorted(range(len(rows)), key=lambda row: rows[row][1])
    assert stable_order(keys).tolist() == expected
    found = sort_order(keys, splits * np.uint8(0), 1)
    assert (list(range(len(rows))) if found is None else found.tolist()) == expected
