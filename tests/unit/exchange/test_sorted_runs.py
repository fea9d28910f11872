"""Sorted runs, the exchange that gathers them, and the shard files made of them."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from example_counts import examples
from held_memory import most_held
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import MissingFileError, RecordmillError
from recordmill.schemas.names import UnsafeNameError
from recordmill.schemas.ranges import KEY_SPACE, ShardTask, SortedRunRef
from recordmill.transforms.encode.waiting_rows import payload_rows
from recordmill.transforms.exchange.sorted_runs import (
    NO_BUDGET,
    Block,
    MemoryBudget,
    SortedRows,
    SortedRunFolder,
    merge_shard_rows,
    sort_order,
    stable_order,
    write_sorted_run,
    write_windows,
)
from recordmill.transforms.tfrecord import crc32c


@dataclass(frozen=True)
class Row:
    key: int
    split: int
    payload: bytes


def save(
    folder: Path,
    name: str,
    rows: list[Row],
    num_splits: int,
    planned: int = 1,
    *,
    in_memory: bool = False,
) -> SortedRunRef:
    """Saves two blocks, planned with so many times their bytes, as references are."""
    half = len(rows) // 2
    blocks = [block_of(some, planned) for some in (rows[:half], rows[half:])]
    budget = MemoryBudget(1 << 20) if in_memory else NO_BUDGET
    run = SortedRunFolder(str(folder), budget).save(name, blocks, num_splits)
    assert run.in_memory == in_memory
    return run


def block_of(rows: list[Row], planned: int = 1) -> Block:
    payloads = pa.array([b"left out", *(row.payload for row in rows)], pa.binary())
    return Block(
        payload_rows(payloads.slice(1)),
        np.array([row.key for row in rows], np.uint64),
        np.array([row.split for row in rows], np.uint8),
        np.array([planned * len(row.payload) for row in rows], np.int64),
    )


def little(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in words)


def task_of(split: int = 0, low: int = 0, high: int = KEY_SPACE) -> ShardTask:
    return ShardTask("s", split, 0, 1, low, high)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def gathered(folder: Path, runs: list[SortedRunRef], task: ShardTask) -> list[bytes]:
    return [
        one
        for window in merge_shard_rows(SortedRunFolder(str(folder)), runs, task)
        for one in window.to_pylist()
    ]


# Few distinct keys, so that ties within and between runs are the rule.
KEYS = st.one_of(
    st.sampled_from([0, 1, 1 << 63, KEY_SPACE - 1]), st.integers(0, KEY_SPACE - 1)
)
ROWS = st.lists(
    st.builds(Row, KEYS, st.integers(0, 2), st.binary(max_size=9)), max_size=12
)
BOUNDS = st.one_of(KEYS, st.just(KEY_SPACE))


@examples(200)
@given(
    st.lists(ROWS, max_size=5),
    st.integers(0, 2),
    BOUNDS,
    BOUNDS,
    st.integers(1, 40),
    st.sampled_from([1, 3, 100]),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_gather_equals_sorting(
    batches: list[list[Row]],
    split: int,
    one: int,
    other: int,
    window_bytes: int,
    planned: int,
    in_memory: list[bool],
) -> None:
    """Of runs in files, in memory, or some here and some there."""
    low, high = sorted([min(one, KEY_SPACE - 1), other])
    with TemporaryDirectory() as name:
        folder = Path(name)
        runs = [
            save(folder, f"r{i}", rows, 3, planned, in_memory=in_memory[i])
            for i, rows in enumerate(batches)
        ]
        windows = [
            window.to_pylist()
            for window in merge_shard_rows(
                SortedRunFolder(str(folder)),
                runs,
                task_of(split, low, high),
                window_bytes,
            )
        ]
        SortedRunFolder(str(folder)).release()
    mine = [
        row
        for rows in batches
        for row in rows
        if row.split == split and low <= row.key < high
    ]
    # sorted() is stable: a tie goes to the earlier run, then to the earlier row.
    wanted = [row.payload for row in sorted(mine, key=lambda row: row.key)]
    assert [payload for window in windows for payload in window] == wanted
    for window in windows:
        assert len(window) == 1 or planned * sum(map(len, window)) <= window_bytes
    for window, following in pairwise(windows):
        held = sum(map(len, window)) + len(following[0])
        assert planned * held > window_bytes
    assert [sum(run.counts[s] for run in runs) for s in range(3)] == [
        sum(row.split == s for rows in batches for row in rows) for s in range(3)
    ]


def test_references_of_many_windows_are_read_at_once(tmp_path: Path) -> None:
    """One read of each run, though the records that they stand for fill 50 windows."""
    reads: list[int] = []

    class Counted(SortedRunFolder):
        def read_into(self, run: SortedRunRef, target: memoryview, offset: int) -> None:
            reads.append(len(target))
            super().read_into(run, target, offset)

    rows = [Row(key, 0, b"reference!") for key in range(100)]
    runs = [save(tmp_path, f"r{i}", rows[i::2], 1, planned=1000) for i in range(2)]
    windows = list(merge_shard_rows(Counted(str(tmp_path)), runs, task_of(), 20_000))
    assert [len(window) for window in windows] == [2] * 50
    assert reads == [500, 500]


def test_run_on_disk_literal(tmp_path: Path) -> None:
    rows = [Row(9, 1, b"c"), Row(5, 0, b"bb"), Row(2, 1, b""), Row(5, 0, b"a")]
    run = save(tmp_path, "r", rows, 2)
    assert (tmp_path / "r.records").read_bytes() == b"bbac"
    # One block of key, length, planned bytes; before it its first key and start.
    rows_of_index = little([5, 2, 2, 5, 1, 1, 2, 0, 0, 9, 1, 1])
    head = b"recmill3" + little([5, 0, crc32c(rows_of_index)])
    assert (tmp_path / "r.index").read_bytes() == head + rows_of_index
    assert run == SortedRunRef("r", (2, 2), 4, crc32c(head), crc32c(b"bbac"))
    assert names_in(tmp_path) == ["r.index", "r.records"]


@pytest.mark.parametrize("num_splits", [1, 3])
def test_run_without_rows(tmp_path: Path, num_splits: int) -> None:
    run = save(tmp_path, "r", [], num_splits)
    assert run.counts == (0,) * num_splits
    assert SortedRunFolder(str(tmp_path)).is_whole(run)
    assert len(SortedRunFolder(str(tmp_path)).keys_and_sizes(run)[0]) == 0
    assert gathered(tmp_path, [run], task_of()) == []


def test_dot_in_a_run_name(tmp_path: Path) -> None:
    runs = [save(tmp_path, f"a.{i}", [Row(i, 0, b"%d" % i)], 1) for i in range(2)]
    assert gathered(tmp_path, runs, task_of()) == [b"0", b"1"]
    assert all(SortedRunFolder(str(tmp_path)).is_whole(run) for run in runs)


def test_gather_keeps_no_index_it_has_read(tmp_path: Path) -> None:
    """A shard's writer holds its own records' keys, not those of the whole input."""
    num_runs, rows = 20, 5_000
    keys = np.arange(rows, dtype=np.uint64) << np.uint64(50)
    payloads, ones = pa.array([b"x"] * rows), np.ones(rows, np.int64)
    runs = [
        write_sorted_run(
            tmp_path / f"r{i}",
            SortedRows.from_blocks(
                [Block(payload_rows(payloads), keys, ones.astype(np.uint8) - 1, ones)],
                1,
            ),
        )
        for i in range(num_runs)
    ]
    index_bytes = (tmp_path / "r0.index").stat().st_size
    task = task_of(high=10 << 50)
    assert len(gathered(tmp_path, runs, task)) == num_runs * 10
    enough = 3 * index_bytes
    assert most_held(lambda: gathered(tmp_path, runs, task), enough=enough) < enough


@pytest.mark.parametrize("num_splits", [1, 2])
@pytest.mark.parametrize("in_order", [False, True])
def test_large_run(tmp_path: Path, num_splits: int, in_order: bool) -> None:
    """More than one window."""
    random = np.random.default_rng(0)
    sizes = [0, 4096, 5_000_000, *random.integers(0, 9_000, 900).tolist(), 4_500_000]
    order = range(len(sizes)) if in_order else random.permutation(len(sizes)).tolist()
    rows = [
        Row(key << 50, key * num_splits // len(sizes), random.bytes(size))
        for key, size in zip(order, sizes, strict=True)
    ]
    run = save(tmp_path, "r", rows, num_splits)
    assert SortedRunFolder(str(tmp_path)).is_whole(run)
    wanted = [row.payload for row in sorted(rows, key=lambda row: row.key)]
    assert (tmp_path / "r.records").read_bytes() == b"".join(wanted)
    found = [gathered(tmp_path, [run], task_of(split)) for split in range(num_splits)]
    assert [payload for split in found for payload in split] == wanted


def test_truncated_records(tmp_path: Path) -> None:
    run = save(tmp_path, "r", [Row(1, 0, b"abc"), Row(2, 0, b"de")], 1)
    path = tmp_path / "r.records"
    path.write_bytes(b"abcd")
    with pytest.raises(RecordmillError) as caught:
        gathered(tmp_path, [run], task_of())
    assert str(caught.value) == f"{path}: the scratch file ends before byte 5"


def test_a_payload_of_the_same_size_is_noticed(tmp_path: Path) -> None:
    run = save(tmp_path, "r", [Row(1, 0, b"abc"), Row(2, 0, b"de")], 1)
    folder = SortedRunFolder(str(tmp_path))
    assert folder.is_whole(run)
    (tmp_path / "r.records").write_bytes(b"abcdE")
    assert folder.is_present(run)
    assert not folder.is_whole(run)


def test_failed_scratch_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_rename(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "f").write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", no_rename)
    with pytest.raises(OSError, match="No space"):
        write_windows(tmp_path / "f", [b"new"])
    assert names_in(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


ANY_KEYS = st.integers(0, 3) | st.integers(0, (1 << 64) - 1)
SPLITS_AND_KEYS = st.lists(st.tuples(st.integers(0, 3), ANY_KEYS), max_size=40)


@given(SPLITS_AND_KEYS)
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


@pytest.mark.parametrize("stem", ["../x", "/x", "a/../../x"])
def test_a_checkpoint_leads_to_no_file_elsewhere(tmp_path: Path, stem: str) -> None:
    """It is a file of the output: a run that it describes so is made again."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for ending in ("records", "index"):
        (tmp_path / f"x.{ending}").write_bytes(b"")
    runs = SortedRunFolder(str(folder))
    run = SortedRunRef(stem, (0,), 0, 0, 0)
    assert not runs.is_present(run)
    with pytest.raises(UnsafeNameError):
        runs.keys_and_sizes(run)


def test_a_checkpoint_leads_to_no_memory_of_others(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/memfd:recordmill-x")
    for path, target in ((str(link), "/memfd:recordmill-x"), ("/proc/self/exe", "x")):
        memory_file = (path, target)
        run = SortedRunRef("r", (0,), 0, 0, 0, in_memory=True, memory_file=memory_file)
        with pytest.raises(MissingFileError, match="cannot be read in the memory"):
            SortedRunFolder(str(tmp_path)).run_in_memory(run)
