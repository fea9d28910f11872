"""The index of a shard is made window by window."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.dataset.record_index import index_text
from recordmill.transforms.tasks.write_shard import iterate_index_parts


@given(st.lists(st.lists(st.integers(16, 10**5), max_size=6), max_size=6))
def test_windows_make_one_index(windows: list[list[int]]) -> None:
    lengths = np.array([n for each in windows for n in each], np.int64)
    text = b"".join(iterate_index_parts([np.array(each, np.int64) for each in windows]))
    assert text == index_text(offsets_of(lengths))
    starts = np.cumsum([0, *lengths]).tolist()
    lines = [f"{a} {n}" for a, n in zip(starts, lengths.tolist(), strict=False)]
    assert text.decode().splitlines() == lines


def test_more_lines_than_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = np.arange(0, 101 * 20, 20)
    whole = index_text(offsets)
    monkeypatch.setattr("recordmill.transforms.dataset.record_index._LINES", 7)
    assert index_text(offsets) == whole
    assert whole.count(b"\n") == 100
