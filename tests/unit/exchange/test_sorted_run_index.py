"""The index of a run: the same records as a naive filter finds, in few and small reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import KEY_SPACE, ShardTask, SortedRunRef
from recordmill.transforms.exchange import sorted_runs as run_index
from recordmill.transforms.exchange.sorted_runs import pack_index, read_index

KEYS = st.integers(0, 40) | st.sampled_from([1 << 63, KEY_SPACE - 1])
SPLITS = st.lists(st.lists(KEYS, max_size=30).map(sorted), min_size=1, max_size=3)
BOUNDS = st.integers(0, 42) | st.sampled_from([1 << 63, KEY_SPACE - 1])


class Reads:
    """A file in memory that notes what is read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sizes: list[int] = []

    def __call__(self, start: int, stop: int) -> bytes:
        part = self.data[start:stop]
        self.sizes.append(len(part))
        return part


def made(splits: list[list[int]]) -> tuple[Reads, SortedRunRef]:
    keys = [key for split in splits for key in split]
    offsets = np.arange(len(keys) + 1, dtype=np.int64) * 3
    counts = tuple(len(split) for split in splits)
    planned_bytes = np.arange(len(keys), dtype=np.int64)
    data, crc = pack_index(np.array(keys, np.uint64), offsets, planned_bytes)
    return Reads(data), SortedRunRef("r", counts, int(offsets[-1]), crc, 0)


def task_of(split: int, low: int, high: int) -> ShardTask:
    return ShardTask("s", split, 0, 1, low, high)


@given(SPLITS, st.integers(1, 9), BOUNDS, BOUNDS | st.just(KEY_SPACE), st.booleans())
def test_finds_what_a_naive_filter_does(
    splits: list[list[int]], block: int, low: int, high: int, in_parts: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_index, "_BLOCK_ROWS", block)
        patch.setattr(run_index, "READ_WHOLE_BYTES", 0 if in_parts else 1 << 16)
        read, run = made(splits)
        whole = read_index(read, run, "r")
        assert whole.keys.tolist() == [key for split in splits for key in split]
        assert whole.offsets.tolist() == [3 * n for n in range(len(whole.keys) + 1)]
        assert whole.planned_bytes.tolist() == list(range(len(whole.keys)))
        before = 0
        for index, keys in enumerate(splits):
            found = read_index(read, run, "r", task_of(index, low, high))
            places = [before + n for n, key in enumerate(keys) if low <= key < high]
            before += len(keys)
            assert found.planned_bytes.tolist() == places
            assert found.keys.tolist() == [whole.keys[place] for place in places]
            if places:
                ends = [*places, places[-1] + 1]
                assert found.offsets.tolist() == [3 * place for place in ends]


def test_a_small_part_of_a_large_index_is_little_to_read() -> None:
    read, run = made([list(range(100_000))])
    found = read_index(read, run, "r", task_of(0, 50_000, 50_100))
    assert found.keys.tolist() == list(range(50_000, 50_100))
    assert len(read.sizes) == 2
    assert sum(read.sizes) < len(read.data) / 50


def test_every_changed_byte_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_index, "_BLOCK_ROWS", 2)
    monkeypatch.setattr(run_index, "READ_WHOLE_BYTES", 0)
    read, run = made([[1, 2, 3], [4, 5]])
    for place in range(len(read.data)):
        changed = bytearray(read.data)
        changed[place] ^= 1
        spoilt = Reads(bytes(changed))
        with pytest.raises(RecordmillError, match="r: the scratch file is damaged"):
            read_index(spoilt, run, "r")
        with pytest.raises(RecordmillError, match="r: the scratch file is damaged"):
            [read_index(spoilt, run, "r", task_of(n, 0, KEY_SPACE)) for n in (0, 1)]
    for size in range(len(read.data)):
        with pytest.raises(RecordmillError, match="r: the scratch file is damaged"):
            read_index(Reads(read.data[:size]), run, "r")
