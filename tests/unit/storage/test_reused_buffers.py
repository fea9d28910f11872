"""Memory is given out again only when nothing points into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms import arrow
from recordmill.transforms.arrow import U8, binary_array, empty_bytes

SIZE = 1 << 19

# What may be left of an array that was given out; each still has its memory.
HOLD: list[Callable[[U8], Any]] = [
    lambda data: data,
    lambda data: data[5:],
    lambda data: data.reshape(-1, 2)[:, 1],
    lambda data: data.view("<u2"),
    lambda data: data.data[7:],
    lambda data: memoryview(data.data).cast("b"),
    lambda data: np.frombuffer(data.data, np.uint8),
    lambda data: pa.py_buffer(data).slice(3),
    lambda data: binary_array(np.array([0, len(data)]), data).slice(0, 1),
    lambda data: pa.table({"x": binary_array(np.array([0, 1, len(data)]), data)})[1:],
    lambda data: lambda: data,
]


@pytest.mark.parametrize("hold", HOLD)
def test_memory_is_given_out_again_once_nothing_points_into_it(
    hold: Callable[[U8], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow._local, "kept", [], raising=False)
    first = empty_bytes(SIZE)
    place = first.ctypes.data
    held = hold(first)
    del first
    second = empty_bytes(SIZE)
    assert second.ctypes.data != place
    del held
    assert empty_bytes(SIZE - 9).ctypes.data == place


ACTIONS = st.lists(st.tuples(st.integers(2, 12), st.integers(0, 5)), max_size=40)


@given(ACTIONS)
def test_what_is_held_is_never_written_over(actions: list[tuple[int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_MIN_POOLED_BYTES", 4)
        patch.setattr(arrow._local, "kept", [], raising=False)
        held: dict[int, tuple[U8, int]] = {}
        for number, (size, place) in enumerate(actions):
            held.pop(place, None)
            data = empty_bytes(size)
            assert data.shape == (size,)
            data[:] = number
            held[place] = (data[1:], number)
            del data
            assert all((part == value).all() for part, value in held.values())
        assert len(arrow._local.kept) <= arrow._MAX_KEPT_ARRAYS
