"""Sorts the rows of a job into runs, saves them, and merges the rows of a shard.

A run has the sorted rows of one input range. In memory it is a SortedRows object; in a
folder or a store it has two files:

    STEM.records   payload of row 0 | payload of row 1 | ...
    STEM.index     "recmill3" | a block: u64 first order key, u64 start, u64 crc32c | ...
                   | a row: u64 order key, u64 length, u64 planned bytes | ...

All numbers are little-endian. Rows are sorted by split, and within a split by order key.
A payload is a framed record, or a reference to a row in the reference exchange. Payloads
are not stored as deferred rows: a shard reads a few rows of every run, and there are as
many runs as input ranges, so it must be able to read exactly its bytes of each run.

In the index, a shard reads all blocks, and then only the rows of the blocks that it
needs. `start` is the offset of a block's first payload. The checksum of a block covers
its rows in the index. The SortedRunRef contains the checksum of all bytes before the
rows. A run of one split with the keys 1, 5, 9 and payloads of 4 bytes has one block,
because a block has at least 64 rows:

    0    "recmill3"                  magic
    8    1 0 crc of bytes 32 to 104  block 0: first key, start, checksum
    32   1 4 4 | 5 4 4 | 9 4 4       rows: key, length, planned bytes
    104  end
"""

from __future__ import annotations

import math
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import MissingFileError, RecordmillError
from recordmill.schemas.names import check_file_name
from recordmill.schemas.ranges import ShardTask, SortedRunRef
from recordmill.transforms.arrow import (
    I64,
    U64,
    array_parts,
    binary_array,
    empty_bytes,
    has_views,
    offsets_of,
    viewed_values,
)
from recordmill.transforms.encode.waiting_rows import (
    binary_payloads,
    has_values,
    join_rows,
    lengths_of,
    payload_rows,
)
from recordmill.transforms.native.numpy_loops import U32
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.local import LocalStore, write_windows
from recordmill.transforms.storage.reading import fill_from
from recordmill.transforms.tfrecord import crc32c

WINDOW_BYTES = 8 << 20


ReadRows = Callable[[int, int], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of deferred rows of one input range, in row order."""

    rows: pa.RecordBatch  # the rows (see encode/waiting_rows.py)
    keys: U64  # order key of each row
    splits: npt.NDArray[np.uint8]  # split index of each row
    planned_bytes: I64  # planned bytes of each row

    @classmethod
    def join_blocks(cls, blocks: list[Block]) -> Block:
        """Returns one block with the rows of all blocks; clears the list."""
        block = cls(
            join_rows([block.rows for block in blocks]),
            np.concatenate([block.keys for block in blocks]),
            np.concatenate([block.splits for block in blocks]),
            np.concatenate([block.planned_bytes for block in blocks]),
        )
        blocks.clear()  # so that no row is in memory twice while the block is written
        return block


@dataclass(frozen=True, slots=True)
class RowSegment:
    """A contiguous part of a shard's rows, sorted by order key."""

    keys: U64  # order key of each row
    planned_bytes: I64  # planned bytes of each row, which limit the size of windows
    # size of all payloads; less than the planned bytes if they are references
    num_bytes: int
    read: ReadRows  # returns the rows from a first row to an end
    # order of rows with equal keys; None for the order of the parts
    ranks: U32 | None = None


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Deferred rows, sorted by split, and within a split by order key."""

    counts: tuple[int, ...]  # number of rows of each split
    rows: pa.RecordBatch  # the rows
    keys: U64  # order key of each row
    planned_bytes: I64  # planned bytes of each row

    @classmethod
    def from_blocks(cls, blocks: Sequence[Block], num_splits: int) -> SortedRows:
        """Returns the sorted rows of blocks."""
        keys = np.concatenate([block.keys for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        planned_bytes = np.concatenate([block.planned_bytes for block in blocks])
        order = sort_order(keys, splits, num_splits)
        rows = join_rows([block.rows for block in blocks], order)
        if order is not None:
            keys, planned_bytes = keys[order], planned_bytes[order]
        counts = np.bincount(splits, minlength=num_splits)
        return cls(tuple(counts.tolist()), rows, keys, planned_bytes)

    def part(self, row_slice: slice = slice(None)) -> RowSegment:
        """Returns the part with a slice of the rows, by default with all rows."""
        first, end, _ = row_slice.indices(len(self.keys))
        rows, planned_bytes = self.rows.slice(first, end - first), self.planned_bytes
        lengths = planned_bytes[row_slice] if has_values(rows) else lengths_of(rows)
        return RowSegment(
            self.keys[row_slice],
            planned_bytes[row_slice],
            int(lengths.sum()),
            lambda start, stop: rows.slice(start, stop - start),
        )


def find_rows(
    keys: U64, counts: Sequence[int], task: ShardTask, skipped: int = 0
) -> slice:
    """Returns the slice of a shard's rows among rows sorted by (split, key).

    `keys` may begin `skipped` rows after the first row, if they include all rows of the
    shard.
    """
    begin = sum(counts[: task.split_index]) - skipped
    end = min(begin + counts[task.split_index], len(keys))
    begin = min(max(begin, 0), len(keys))
    split_keys = keys[begin:end]
    first = begin + int(np.searchsorted(split_keys, np.uint64(task.low)))
    if task.high < 1 << 64:
        end = begin + int(np.searchsorted(split_keys, np.uint64(task.high)))
    return slice(first, max(first, end))


def stable_order(keys: U64, ranks: U32 | None = None) -> npt.NDArray[np.intp]:
    """Returns the stable order by key, and by rank for equal keys.

    Equal keys are rare. Without equal keys there is only one order, which NumPy finds in
    a quarter of the time of a stable sort.
    """
    order = np.argsort(keys)
    rising = keys[order]
    if bool((rising[1:] == rising[:-1]).any()):
        return np.lexsort((keys,) if ranks is None else (ranks, keys))
    return order


def sort_order(
    keys: U64, splits: npt.NDArray[np.uint8], num_splits: int
) -> npt.NDArray[np.intp] | None:
    """Returns the stable order by (split, key); None if the rows are sorted."""
    if num_splits == 1:
        if bool(np.all(keys[:-1] <= keys[1:])):
            return None
        return stable_order(keys)
    rows = [np.flatnonzero(splits == split) for split in range(num_splits)]
    return np.concatenate(
        [split_rows[stable_order(keys[split_rows])] for split_rows in rows]
    )


# A shard's rows are in many parts, each sorted by order key. For equal keys the earlier
# part comes first, so the order is total. Every exchange ends here: exchanges differ only
# in the location of the parts. Rows of the parts a, b with the keys
#
#     a  1 5 9      b  2 3 7
#
# and windows of two rows are read as: a[0:1] b[0:1], then a[1:2] b[1:2], then a[2:3]
# b[2:3].


def merge_windows(
    parts: Sequence[RowSegment],
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """Yields the payloads of a shard in order, in windows.

    A window has at most `window_bytes` planned bytes, or one larger record.
    `break_ties_by_content` orders records with equal keys by their bytes, not by their
    parts.
    """
    if not parts:
        return
    keys = np.concatenate([part.keys for part in parts])
    planned_bytes = np.concatenate([part.planned_bytes for part in parts])
    num_bytes = sum(part.num_bytes for part in parts)
    ranks = None
    if parts[0].ranks is not None:
        ranks = np.concatenate([part.ranks for part in parts if part.ranks is not None])
    firsts = offsets_of(np.array([len(part.keys) for part in parts]))
    readers = [part.read for part in parts]
    del parts  # there may be very many small parts
    order = stable_order(keys, ranks)
    keys = keys[order] if break_ties_by_content else keys[:0].copy()
    ends = np.cumsum(planned_bytes[order])
    all_planned = int(planned_bytes.sum())
    del planned_bytes, ranks  # a large shard has millions of rows
    starts = [0]
    while starts[-1] < len(order):
        bytes_before = ends[starts[-1] - 1] if starts[-1] else 0
        limit = bytes_before + window_bytes
        stop = max(starts[-1] + 1, int(np.searchsorted(ends, limit, side="right")))
        if break_ties_by_content and stop < len(order):
            stop = _before_tie(keys, starts[-1], stop)
        starts.append(stop)
    # References take a thousandth of the planned bytes of their records. Reading them
    # window by window, a few from each part, took 7 us per image.
    at_once = max(1, all_planned // max(1, num_bytes))
    groups = (starts[i : i + at_once + 1] for i in range(0, len(starts) - 1, at_once))

    def read(edges: list[int]) -> list[pa.BinaryArray]:
        window = slice(edges[0], edges[-1])
        records = _read_rows(readers, firsts, order[window])
        if break_ties_by_content:
            records = _order_ties(records, keys[window])
        return [records.slice(a - edges[0], b - a) for a, b in pairwise(edges)]

    # The next windows are read while the caller processes these.
    for records in map_ahead(groups, read, 1, most=1):
        yield from records


def _before_tie(keys: U64, start: int, stop: int) -> int:
    """Returns an end at or before `stop` that does not separate equal keys.

    Equal keys that fill more than a window are separated: only equal records can be so
    many, and their order does not matter.
    """
    first = int(np.searchsorted(keys, keys[stop]))
    return first if first > start else stop


def _read_rows(
    readers: Sequence[ReadRows], firsts: I64, window: npt.NDArray[np.intp]
) -> pa.BinaryArray:
    """Returns the payloads of a window, in the order of their keys.

    `firsts` are the numbers of each part's first row among all rows. `window` contains
    such numbers by ascending key.
    """
    # Rows of one part are consecutive, because parts and windows are sorted.
    by_place = np.argsort(window)
    stored = window[by_place]
    part_of = np.searchsorted(firsts, stored, side="right") - 1
    edges = [*np.flatnonzero(np.diff(part_of, prepend=-1)).tolist(), len(stored)]
    batches = []
    for first, end in pairwise(edges):
        part = int(part_of[first])
        begin = int(stored[first] - firsts[part])
        batches.append(readers[part](begin, begin + end - first))
    positions = np.empty(len(window), np.intp)
    positions[by_place] = np.arange(len(window))
    is_sorted = bool(np.all(positions[:-1] < positions[1:]))
    return binary_payloads(join_rows(batches, None if is_sorted else positions))


def _order_ties(records: pa.BinaryArray, keys: U64) -> pa.BinaryArray:
    """Returns the records, with records of equal keys ordered by their bytes."""
    tied = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(tied):
        return records
    order = np.arange(len(records))
    for group in np.split(tied, np.flatnonzero(np.diff(tied) > 1) + 1):
        tie = slice(int(group[0]), int(group[-1]) + 2)
        order[tie] = sorted(
            order[tie].tolist(), key=lambda index: records[index].as_py()
        )
    return records.take(pa.array(order))


READ_WHOLE_BYTES = 1 << 13  # one read of this size costs no more than two small ones

_MAGIC = b"recmill3"
_BLOCK_ROWS = 64  # rows of the smallest block, except for the last one
_BLOCKS = 256  # most blocks of a run, so that the index is short
_BLOCK_DTYPE = np.dtype([("key", "<u8"), ("start", "<u8"), ("crc32c", "<u8")])
_ROW_DTYPE = np.dtype([("key", "<u8"), ("length", "<u8"), ("planned", "<u8")])
_WRITTEN_BYTES = 4 << 20  # size of the payloads written at once

ReadRange = Callable[[int, int], bytes]
"""Reads the bytes from start to stop of the index's file; fewer if it ends before."""


@dataclass(frozen=True, slots=True)
class SortedRunIndex:
    """The index of some rows of a run, in the run's order."""

    keys: U64  # order key of each row
    offsets: I64  # start of each row's payload, and end of the last payload
    planned_bytes: I64  # planned bytes of each row


def pack_index(keys: U64, offsets: I64, planned_bytes: I64) -> tuple[bytes, int]:
    """Returns the index of sorted rows as bytes, and the checksum of its head."""
    rows = np.empty(len(keys), _ROW_DTYPE)
    rows["key"], rows["length"] = keys, np.diff(offsets)
    rows["planned"] = planned_bytes
    body, size = rows.tobytes(), _block_rows(len(keys))
    crcs = _block_crcs(body, size)
    blocks = np.empty(len(crcs), _BLOCK_DTYPE)
    blocks["key"], blocks["start"] = keys[::size], offsets[:-1:size]
    blocks["crc32c"] = crcs
    head = _MAGIC + blocks.tobytes()
    return head + body, crc32c(head)


def read_index(
    read: ReadRange, run: SortedRunRef, uri: str, task: ShardTask | None = None
) -> SortedRunIndex:
    """Reads the index of a shard's rows in a run, or of all rows."""
    num_rows = sum(run.counts)
    size = _block_rows(num_rows)
    first, end = 0, -(-num_rows // size)
    head_bytes = len(_MAGIC) + end * _BLOCK_DTYPE.itemsize
    num_bytes = head_bytes + num_rows * _ROW_DTYPE.itemsize
    few = max(head_bytes, min(READ_WHOLE_BYTES, num_bytes))
    data = read(0, num_bytes + 1 if task is None else few)
    is_damaged = task is None and len(data) != num_bytes
    if is_damaged or crc32c(data[:head_bytes]) != run.index_crc32c:
        raise _damaged_scratch_error(uri)
    blocks = np.frombuffer(data[:head_bytes], _BLOCK_DTYPE, offset=len(_MAGIC))
    if task is not None:
        first, end = _find_blocks(blocks["key"], size, run.counts, task)
    start, stop = (
        head_bytes + min(block * size, num_rows) * _ROW_DTYPE.itemsize
        for block in (first, end)
    )
    data = read(start, stop) if stop > len(data) else data[start:stop]
    if _block_crcs(data, size) != blocks["crc32c"][first:end].tolist():
        raise _damaged_scratch_error(uri)
    rows = np.frombuffer(data, _ROW_DTYPE)
    offsets = offsets_of(rows["length"])
    if first < end:
        offsets += blocks["start"][first].astype(np.int64)
    row_slice = slice(0, len(rows))
    if task is not None:
        row_slice = find_rows(rows["key"], run.counts, task, skipped=first * size)
    # Copies, so that the bytes that were read can be freed.
    return SortedRunIndex(
        rows["key"][row_slice].copy(),
        offsets[row_slice.start : row_slice.stop + 1].copy(),
        rows["planned"][row_slice].astype(np.int64),
    )


def _find_blocks(
    first_keys: U64, size: int, counts: Sequence[int], task: ShardTask
) -> tuple[int, int]:
    """Returns the start and the end of the blocks that may have rows of a shard."""
    begin = sum(counts[: task.split_index])
    first, end = begin // size, -(-(begin + counts[task.split_index]) // size)
    # The first block may begin with rows of another split. Each block may end with rows
    # of the key with which the next block begins.
    inner = first_keys[first + 1 : end]
    if task.high < 1 << 64:
        end = min(end, first + 1 + int(inner.searchsorted(np.uint64(task.high))))
    return first + int(inner.searchsorted(np.uint64(task.low))), end


def _block_rows(num_rows: int) -> int:
    return max(_BLOCK_ROWS, -(-num_rows // _BLOCKS))


def _block_crcs(rows: bytes, size: int) -> list[int]:
    step, view = size * _ROW_DTYPE.itemsize, memoryview(rows)
    return [crc32c(view[at : at + step]) for at in range(0, len(rows), step)]


def _damaged_scratch_error(uri: str) -> RecordmillError:
    return RecordmillError(f"{uri}: the scratch file is damaged; run again")


def write_sorted_run(stem: Path, run: SortedRows) -> SortedRunRef:
    """Writes a run to files that appear completely or not at all.

    `stem` is their path without the ending.
    """
    offsets = offsets_of(lengths_of(run.rows))
    index, index_crc = pack_index(run.keys, offsets, run.planned_bytes)
    path = stem.with_name(f"{stem.name}.records")
    _, payload_crc = write_windows(path, _windows(run.rows, offsets))
    write_windows(stem.with_name(f"{stem.name}.index"), [index])
    return SortedRunRef(stem.name, run.counts, int(offsets[-1]), index_crc, payload_crc)


def append_run(file: IO[bytes], run: SortedRows) -> RowSegment:
    """Appends the payloads of a run to an open file; returns a part that reads them."""
    begin = file.tell()
    offsets = offsets_of(lengths_of(run.rows))
    file.writelines(_windows(run.rows, offsets))
    file.flush()

    def fill(target: memoryview, offset: int) -> None:
        fill_from(file.fileno(), begin + offset, target)

    return _part_at(run.keys, run.planned_bytes, offsets, fill)


def _part_at(
    keys: U64, planned_bytes: I64, offsets: I64, fill: Callable[[memoryview, int], None]
) -> RowSegment:
    """Returns a part whose payloads begin at `offsets`; `fill` reads from an offset."""
    read = partial(_read_payloads, offsets, fill)  # small, for very many parts
    return RowSegment(keys, planned_bytes, int(offsets[-1] - offsets[0]), read)


def _read_payloads(
    offsets: I64, fill: Callable[[memoryview, int], None], first: int, end: int
) -> pa.RecordBatch:
    starts = offsets[first : end + 1] - offsets[first]
    data = empty_bytes(int(starts[-1]))
    fill(data.data, int(offsets[first]))
    return payload_rows(binary_array(starts, data))


def _windows(rows: pa.RecordBatch, offsets: I64) -> Iterator[memoryview]:
    """Yields the bytes of payloads in windows, to save memory."""
    num_windows = max(1, int(offsets[-1]) // _WRITTEN_BYTES)
    targets = np.linspace(0, offsets[-1], num_windows + 1)[1:-1]
    edges = [0, *np.searchsorted(offsets, targets).tolist(), len(offsets) - 1]
    for first, end in pairwise(edges):
        window = rows.slice(first, end - first)
        if end - first == 1 and has_views(window.column(0)):
            yield from viewed_values(window.column(0))  # may be large: not copied
            continue
        starts, data = array_parts(binary_payloads(window))
        yield data.data[starts[0] : starts[-1]]


# Runs in memory belong to this process. The launcher of a job sets their budget, and
# releases all of them at the end. A run in the memory of a killed process is lost: its
# range is read again. So the budget also bounds the work to create held runs.


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The limits on all held runs of a job together."""

    num_bytes: int  # memory
    # time that workers took to create the held runs, which a killed run loses
    seconds: float = math.inf
    # whether other processes read the runs, which are then files in memory
    is_shared: bool = False

    def shared_by(self, processes: int) -> MemoryBudget:
        """Returns the budget of one of several processes that read each other's runs."""
        if not hasattr(os, "memfd_create"):  # only Linux has it
            return NO_BUDGET
        return MemoryBudget(self.num_bytes // processes, self.seconds, is_shared=True)


NO_BUDGET = MemoryBudget(0)


# Processes read each other's runs in files in memory without a name in any folder. So
# they take no space in /dev/shm, which is small in containers, and need not be removed.
# They exist as long as the process that created them and keeps them open:
#
#     /proc/4242/fd/9 -> /memfd:recordmill-0f3c... (deleted)
#
# Such a file is one batch of Arrow IPC: order keys, planned bytes, the columns of the rows.
# Readers map its pages without copying them.


_MEMORY_PATH = re.compile(r"/proc/\d+/fd/\d+", re.ASCII)
_MEMORY_LINK = "/memfd:recordmill-"


class MemoryFile:
    """A sorted run in a file in memory, which other processes can read."""

    def __init__(self, run: SortedRows) -> None:
        name = f"recordmill-{uuid.uuid4().hex}"
        self._file = os.fdopen(os.memfd_create(name), "wb", buffering=0)
        columns = map(pa.array, (run.keys, run.planned_bytes))
        names = ["key", "planned", *run.rows.schema.names]
        batch = pa.RecordBatch.from_arrays([*columns, *run.rows.columns], names)
        with pa.ipc.new_file(self._file, batch.schema) as writer:
            writer.write_batch(batch)
        path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        self.path_and_link = path, str(Path(path).readlink())

    @staticmethod
    def read(run: SortedRunRef) -> SortedRows:
        """Returns the run in such a file; raises OSError if the file does not exist."""
        path, link = run.memory_file or ("", "")
        # The path comes from a checkpoint in the output, so it is checked before use.
        is_made_here = _MEMORY_PATH.fullmatch(path) and link.startswith(_MEMORY_LINK)
        if not is_made_here or str(Path(path).readlink()) != link:
            raise FileNotFoundError(path)
        batch = pa.ipc.open_file(pa.memory_map(path)).get_batch(0)
        keys, planned_bytes = (column.to_numpy() for column in batch.columns[:2])
        names = batch.schema.names[2:]
        rows = pa.RecordBatch.from_arrays(batch.columns[2:], names)
        return SortedRows(run.counts, rows, keys, planned_bytes)


def max_memory_files() -> int:
    """Returns the most files in memory per process: half of its limit on open files."""
    import resource  # not on Windows, which has no such files

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


class RunsInMemory:
    """The held runs of this process, by folder and stem."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[
            tuple[str, str], tuple[SortedRows | MemoryFile, int, float]
        ] = {}
        self._size_bytes = 0
        self._seconds = 0.0

    def hold(
        self,
        folder: str,
        stem: str,
        run: SortedRows,
        seconds: float,
        budget: MemoryBudget,
    ) -> bool:
        """Holds a run in memory if the budget allows; replaces a run of this name.

        `seconds` is the time that it took to create its rows. Returns whether the run is
        held.
        """
        # Slices and rows of views may share buffers: each buffer counts once.
        needed = run.rows.get_total_buffer_size()
        needed += run.keys.nbytes + run.planned_bytes.nbytes
        self._drop((folder, stem))
        with self._lock:
            if (
                self._size_bytes + needed > budget.num_bytes
                or self._seconds + seconds > budget.seconds
                or (budget.is_shared and len(self._runs) >= max_memory_files())
            ):
                return False
            self._size_bytes += needed
            self._seconds += seconds
            self._runs[folder, stem] = (run, needed, seconds)
        if budget.is_shared:
            try:
                self._runs[folder, stem] = (MemoryFile(run), needed, seconds)
            except OSError:  # no memory, or no permission to create such files
                self._drop((folder, stem))
                return False
        return True

    def get(self, folder: str, stem: str) -> SortedRows | MemoryFile | None:
        """Returns a held run, or None."""
        held_run = self._runs.get((folder, stem))
        return held_run[0] if held_run else None

    def release(self, folder: str) -> None:
        """Releases all runs of a folder."""
        for key in [key for key in self._runs if key[0] == folder]:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        with self._lock:
            _, num_bytes, seconds = self._runs.pop(key, (None, 0, 0.0))
            self._size_bytes -= num_bytes
            self._seconds -= seconds


RUNS_IN_MEMORY = RunsInMemory()

# Non-blocking, in case that the path is a FIFO.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SortedRunFolder:
    """A folder of sorted runs; small, so that it can be pickled."""

    # its path, or its name in the store, for workers without a shared file system
    folder: str
    # the limits on runs that this process holds in memory instead
    budget: MemoryBudget = NO_BUDGET
    store: Store | None = None  # the store of the folder; None for a local folder
    # a local parent, below which no link is followed; "" for the folder itself
    anchor: str = field(default="", kw_only=True)

    def save(
        self, stem: str, blocks: Sequence[Block], num_splits: int, seconds: float = 0.0
    ) -> SortedRunRef:
        """Sorts rows and saves them as a run, in memory if the budget allows.

        `seconds` is the time that it took to create the blocks.
        """
        run, budget = SortedRows.from_blocks(blocks, num_splits), self.budget
        if budget.num_bytes and RUNS_IN_MEMORY.hold(
            self.folder, stem, run, seconds, budget
        ):
            num_bytes = int(lengths_of(run.rows).sum())
            held_run = RUNS_IN_MEMORY.get(self.folder, stem)
            place = held_run.path_and_link if isinstance(held_run, MemoryFile) else None
            return SortedRunRef(stem, run.counts, num_bytes, 0, 0, True, place)
        if self.store is None:
            store = LocalStore(self.folder, anchor=self.anchor or self.folder)
            with store.open_to_write() as folder:
                return write_sorted_run(folder.path_of(stem), run)
        with TemporaryDirectory(prefix="run-") as near:
            saved = write_sorted_run(Path(near, stem), run)
            for ending in ("records", "index"):  # the index last: it describes both
                file = f"{stem}.{ending}"
                self.store.put_file(Path(near, file), f"{self.folder}/{file}")
        return saved

    def run_in_memory(self, run: SortedRunRef) -> SortedRows | None:
        """Returns a run in memory; None if the run is in files."""
        if not run.in_memory:
            return None
        if run.memory_file is not None:
            try:
                return MemoryFile.read(run)
            except OSError as error:
                raise MissingFileError(
                    f"the sorted run {run.stem} cannot be read in the memory of another "
                    f"process ({error}): set `memory=0`"
                ) from error
        held_run = RUNS_IN_MEMORY.get(self.folder, run.stem)
        if not isinstance(held_run, SortedRows):
            raise MissingFileError(f"the sorted run {run.stem} is no longer in memory")
        return held_run

    def _name(self, run: SortedRunRef, ending: str) -> str:
        """Returns the path of a run's file; checks the stem, which may be unsafe."""
        return f"{self.folder}/{check_file_name(run.stem, self.folder)}.{ending}"

    def release(self) -> None:
        """Releases the runs in memory."""
        RUNS_IN_MEMORY.release(self.folder)

    def keys_and_sizes(self, run: SortedRunRef) -> tuple[U64, I64]:
        """Returns the order key and the planned bytes of each row of a run."""
        run_or_index = self.run_in_memory(run) or self._index(run)
        return run_or_index.keys, run_or_index.planned_bytes

    def part(self, run: SortedRunRef, task: ShardTask) -> RowSegment:
        """Returns the part of a run that belongs to a shard."""
        held_run = self.run_in_memory(run)
        if held_run is not None:
            return held_run.part(find_rows(held_run.keys, held_run.counts, task))
        index = self._index(run, task)
        fill = partial(self.read_into, run)
        return _part_at(index.keys, index.planned_bytes, index.offsets, fill)

    def _index(
        self, run: SortedRunRef, task: ShardTask | None = None
    ) -> SortedRunIndex:
        name = self._name(run, "index")
        if self.store is not None:
            read: ReadRange = partial(self.store.read_range, name)
            return read_index(read, run, self.store.uri_of(name), task)
        # Each shard reads a part of each run: with pathlib, this took twice as long.
        file = os.open(name, _READ_FLAGS)
        try:
            read = lambda start, stop: os.pread(file, stop - start, start)  # noqa: E731
            return read_index(read, run, name, task)
        finally:
            os.close(file)

    def read_into(self, run: SortedRunRef, target: memoryview, offset: int) -> None:
        """Fills `target` with bytes of the run's payloads from byte `offset` on."""
        uri = name = self._name(run, "records")
        if self.store is not None:
            uri = self.store.uri_of(name)
            data = self.store.read_range(name, offset, offset + len(target))
            done = len(data)
            target[:done] = data
        else:
            file = os.open(name, _READ_FLAGS)
            try:
                done = fill_from(file, offset, target)
            finally:
                os.close(file)
        if done < len(target):
            raise RecordmillError(
                f"{uri}: the scratch file ends before byte {offset + len(target)}"
            )

    def is_present(self, run: SortedRunRef) -> bool:
        """Returns whether a run's files have the right sizes, and the index its checksum.

        The payloads are not read: framed records have checksums, which are verified when
        they are gathered.
        """
        try:
            name = self._name(run, "records")
            self.keys_and_sizes(run)
            if run.in_memory:
                return True
            size = (
                Path(name).stat().st_size
                if self.store is None
                else self.store.size(name)
            )
        except (OSError, RecordmillError):  # MissingFileError is a RecordmillError
            return False
        return size == run.payload_bytes

    def is_whole(self, run: SortedRunRef) -> bool:
        """Returns whether both files of a run exist, unchanged."""
        if not self.is_present(run):
            return False
        if run.in_memory:
            return True
        name = self._name(run, "records")
        if self.store is not None:  # checksum None: the store keeps no checksums
            return self.store.checksum(name) in (None, run.payload_crc32c)
        try:
            return crc32c(Path(name).read_bytes()) == run.payload_crc32c
        except OSError:
            return False


def merge_shard_rows(
    folder: SortedRunFolder,
    runs: Sequence[SortedRunRef],
    task: ShardTask,
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """Yields the payloads of a shard in order, from all sorted runs of the job.

    `runs` are in range order. For the other arguments see `merge_windows`.
    """
    parts = (folder.part(run, task) for run in runs if run.counts[task.split_index])
    return merge_windows(
        [part for part in parts if len(part.keys)],
        window_bytes,
        break_ties_by_content=break_ties_by_content,
    )
