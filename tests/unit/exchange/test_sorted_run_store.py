"""Sorted runs in a folder and in a store: the same contract."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import KEY_SPACE, ShardTask, SortedRunRef
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.encode.waiting_rows import payload_rows
from recordmill.transforms.exchange.sorted_runs import (
    NO_BUDGET,
    Block,
    MemoryBudget,
    SortedRunFolder,
    merge_shard_rows,
)
from recordmill.transforms.storage import LocalStore, Store, open_store

ROOM = MemoryBudget(1 << 20)
EVERYTHING = ShardTask("s", 0, 0, 1, 0, KEY_SPACE)


@pytest.fixture(params=["folder", "store", "memory"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[SortedRunFolder, Store]:
    """The folder under test, and a store by which its files can be reached."""
    if request.param == "folder":
        return SortedRunFolder(str(tmp_path)), LocalStore(str(tmp_path))
    root = str(tmp_path) if request.param == "store" else f"memory:/{tmp_path}"
    store = open_store(root)
    return SortedRunFolder("runs", store=store), store


def save(folder: SortedRunFolder, stem: str, keys: list[int]) -> SortedRunRef:
    payloads = pa.array([b"row %d" % key for key in keys], pa.binary())
    block = Block(
        payload_rows(payloads),
        np.array(keys, np.uint64),
        np.zeros(len(keys), np.uint8),
        np.full(len(keys), 5, np.int64),
    )
    return folder.save(stem, [block], 1)


def file_of(store: Store, ending: str) -> str:
    (name,) = [name for name in store.list() if name.endswith(ending)]
    return name


def test_runs_are_read_as_they_were_written(
    place: tuple[SortedRunFolder, Store],
) -> None:
    folder, _ = place
    folder = pickle.loads(pickle.dumps(folder))
    runs = [save(folder, "a", [7, 1, 4]), save(folder, "b", [2, 4])]
    assert all(folder.is_whole(run) for run in runs)
    assert folder.keys_and_sizes(runs[0])[0].tolist() == [1, 4, 7]
    windows = list(merge_shard_rows(folder, runs, EVERYTHING, window_bytes=10))
    assert len(windows) == 3
    rows = [row for window in windows for row in window.to_pylist()]
    assert rows == [b"row 1", b"row 2", b"row 4", b"row 4", b"row 7"]


def test_nothing_of_a_run_is_left_where_it_was_made(
    place: tuple[SortedRunFolder, Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    near = tmp_path / "near"
    near.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(near))
    save(place[0], "a", [1])
    assert list(near.iterdir()) == []


@pytest.mark.parametrize("ending", [".records", ".index"])
@pytest.mark.parametrize("change", ["gone", "shorter", "longer"])
def test_a_run_that_is_not_whole(
    place: tuple[SortedRunFolder, Store], ending: str, change: str
) -> None:
    folder, store = place
    run = save(folder, "a", [1, 2])
    name = file_of(store, ending)
    data = store.read(name)
    store.delete([name])
    if change != "gone":
        store.put_bytes(data[:-1] if change == "shorter" else data + b"x", name)
    assert not folder.is_whole(run)
    if change != "longer":
        with pytest.raises((RecordmillError, OSError)):
            list(merge_shard_rows(folder, [run], EVERYTHING))


def test_an_index_that_was_changed(place: tuple[SortedRunFolder, Store]) -> None:
    folder, store = place
    run = save(folder, "a", [1, 2])
    name = file_of(store, ".index")
    store.put_bytes(store.read(name)[:-1] + b"\x01", name)
    assert not folder.is_whole(run)
    with pytest.raises(RecordmillError) as caught:
        folder.keys_and_sizes(run)
    assert str(caught.value).endswith(".index: the scratch file is damaged; run again")


def test_a_run_with_other_facts_is_not_whole(
    place: tuple[SortedRunFolder, Store],
) -> None:
    folder, _ = place
    run = save(folder, "a", [1])
    assert not folder.is_whole(replace(run, stem="b"))
    assert not folder.is_whole(replace(run, payload_bytes=9))
    if folder.store is None:  # others keep checksums, or none
        assert not folder.is_whole(replace(run, payload_crc32c=0))


@pytest.mark.parametrize(
    ("budget", "gone"),
    [
        (ROOM, "a is no longer in memory"),
        (ROOM.shared_by(2), "a cannot be read in the memory of another process"),
    ],
)
def test_runs_in_memory_are_read_as_they_were_made(
    tmp_path: Path, budget: MemoryBudget, gone: str
) -> None:
    folder = SortedRunFolder(str(tmp_path), budget)
    runs = [save(folder, "a", [7, 1, 4]), save(folder, "b", [2, 4])]
    assert list(tmp_path.iterdir()) == []
    folder = pickle.loads(pickle.dumps(folder))
    assert all(folder.is_whole(run) for run in runs)
    assert folder.keys_and_sizes(runs[0])[0].tolist() == [1, 4, 7]
    [window] = merge_shard_rows(folder, runs, EVERYTHING)
    assert window.to_pylist() == [b"row 1", b"row 2", b"row 4", b"row 4", b"row 7"]
    folder.release()
    assert not any(folder.is_present(run) for run in runs)
    save(folder, "c", [7, 1, 4])  # its file may have the number of the first one's
    assert not folder.is_present(runs[0])
    with pytest.raises(RecordmillError, match=gone):
        list(merge_shard_rows(folder, runs, EVERYTHING))
    folder.release()


def test_processes_share_a_budget_of_bytes() -> None:
    share = MemoryBudget(1000, 30.0).shared_by(4)
    assert (share.num_bytes, share.seconds, share.is_shared) == (250, 30.0, True)


@pytest.mark.parametrize(
    ("budget", "in_memory"),
    [
        (MemoryBudget(1 << 20), [True, True, True]),
        (MemoryBudget(200), [True, False, True]),  # the second is too large
        (MemoryBudget(1 << 20, seconds=25), [True, True, False]),
        (NO_BUDGET, [False, False, False]),
    ],
)
def test_a_budget_bounds_bytes_and_work(
    tmp_path: Path, budget: MemoryBudget, in_memory: list[bool]
) -> None:
    folder = SortedRunFolder(str(tmp_path), budget)
    sizes = {"a": 1, "b": 100, "c": 1}
    runs = []
    for stem, rows in sizes.items():
        payloads = pa.array([b"row"] * rows, pa.binary())
        blocks = [Block(payload_rows(payloads), *columns_of(rows))]
        runs.append(folder.save(stem, blocks, 1, seconds=10))
    assert [run.in_memory for run in runs] == in_memory
    assert (
        sum(len(window) for window in merge_shard_rows(folder, runs, EVERYTHING)) == 102
    )
    folder.release()


def test_a_run_that_is_made_again_takes_the_room_of_the_first(tmp_path: Path) -> None:
    folder = SortedRunFolder(str(tmp_path), MemoryBudget(120))
    for _ in range(5):
        assert save(folder, "a", [1, 2]).in_memory
    assert not save(folder, "b", [1, 2]).in_memory
    folder.release()
    assert save(folder, "b", [1, 2]).in_memory
    folder.release()


def columns_of(rows: int) -> tuple[U64, npt.NDArray[np.uint8], I64]:
    keys = np.arange(rows, dtype=np.uint64)
    return keys, np.zeros(rows, np.uint8), np.full(rows, 3, np.int64)
