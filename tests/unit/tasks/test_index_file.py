"""The index of a shard that is being written: piece by piece, and whole or not at all."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.dataset.record_index import index_text
from recordmill.transforms.tasks.write_shard import IndexFile
from recordmill.transforms.tfrecord import crc32c


@given(st.lists(st.lists(st.integers(16, 10**5), max_size=6), max_size=6))
def test_windows_make_one_index(windows: list[list[int]]) -> None:
    """Windows are slices too, whose offsets do not start at 0."""
    arrays = [pa.array([bytes(n) for n in [7, *each]]).slice(1) for each in windows]
    lengths = np.array([n for each in windows for n in each], np.int64)
    with TemporaryDirectory() as folder:
        path = Path(folder, "s.idx")
        with IndexFile(path) as index:
            assert list(index.noted(arrays)) == arrays
            result = index.finish()
        text = path.read_bytes()
        assert [path] == list(Path(folder).iterdir())
    assert text == index_text(offsets_of(lengths))
    starts = np.cumsum([0, *lengths]).tolist()
    lines = [f"{a} {n}" for a, n in zip(starts, lengths.tolist(), strict=False)]
    assert text.decode().splitlines() == lines
    assert (result.bytes, result.crc32c) == (len(text), crc32c(text))


def test_left_early_it_leaves_nothing(tmp_path: Path) -> None:
    with IndexFile(tmp_path / "s.idx") as index:
        list(index.noted([pa.array([bytes(20)])]))
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []


def test_more_lines_than_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = np.arange(0, 101 * 20, 20)
    whole = index_text(offsets)
    monkeypatch.setattr("recordmill.transforms.dataset.record_index._LINES", 7)
    assert index_text(offsets) == whole
    assert whole.count(b"\n") == 100
