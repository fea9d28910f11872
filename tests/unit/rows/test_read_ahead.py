"""Batches come in their order, whatever is read ahead of them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.arrow import I64
from recordmill.transforms.rows.open_dataset import read_ahead


def numbers(*values: int) -> I64:
    return np.array(values, np.int64)


def reading(rows: I64) -> Callable[[], list[int]]:
    return rows.tolist


@given(st.lists(st.lists(st.integers(0, 99), max_size=5)), st.integers(0, 12))
def test_the_batches_as_they_were_asked_for(
    batches: list[list[int]], window_rows: int
) -> None:
    asked = [numbers(*batch) for batch in batches]
    found = read_ahead(asked, reading, window_rows)
    assert [window[start:stop] for window, start, stop in found] == batches


@pytest.mark.parametrize(
    ("window_rows", "sizes"), [(0, [2, 2, 2]), (3, [4, 2]), (4, [4, 2]), (9, [6])]
)
def test_windows(window_rows: int, sizes: list[int]) -> None:
    batches = [numbers(5, 2), numbers(7, 1), numbers(3, 0)]
    found = read_ahead(batches, reading, window_rows)
    assert [len(window) for window, start, _ in found if start == 0] == sizes


def test_an_error_comes_where_its_batch_would() -> None:
    def begin(rows: I64) -> Callable[[], int]:
        def read() -> int:
            if rows[0] == 3:
                raise OSError("row 3")
            return int(rows[0])

        return read

    found = read_ahead(map(numbers, range(9)), begin, 1)
    assert [next(found)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="row 3"):
        next(found)


def test_who_stops_early_leaves_no_thread() -> None:
    before = threading.active_count()
    found = read_ahead(map(numbers, range(99)), reading, 1)
    assert next(found)[0] == [0]
    assert threading.active_count() > before
    found.close()  # type: ignore[attr-defined]  # a generator
    assert threading.active_count() == before
