"""Sorts rows by order key, and merges those of a shard in windows of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.ranges import ShardTask
from recordmill.transforms.arrow import I64, U64, offsets_of
from recordmill.transforms.encode.waiting_rows import (
    binary_payloads,
    has_values,
    join_rows,
    lengths_of,
)
from recordmill.transforms.parallel import ahead

WINDOW_BYTES = 8 << 20


ReadRows = Callable[[int, int], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Block:
    """Waiting rows of one input range, in row order."""

    rows: pa.RecordBatch  # the rows (see encode/waiting_rows.py)
    keys: U64  # order key of each row
    splits: npt.NDArray[np.uint8]  # split index of each row
    planned_bytes: I64  # planned bytes of each row

    @classmethod
    def joined(cls, blocks: list[Block]) -> Block:
        """Joins blocks to one; clears the list."""
        block = cls(
            join_rows([block.rows for block in blocks]),
            np.concatenate([block.keys for block in blocks]),
            np.concatenate([block.splits for block in blocks]),
            np.concatenate([block.planned_bytes for block in blocks]),
        )
        blocks.clear()  # so that no row is in memory twice while the block is written
        return block


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a shard that lie together, sorted by order key."""

    keys: U64  # order key of each row
    planned_bytes: I64  # planned bytes of each row, which limit the size of windows
    # what the payloads of all rows have; fewer, where they are references
    num_bytes: int
    read: ReadRows  # returns the rows from a first one to an end


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Waiting rows by split, within a split by order key."""

    counts: tuple[int, ...]  # rows of each split
    rows: pa.RecordBatch  # the rows
    keys: U64  # order key of each row
    planned_bytes: I64  # planned bytes of each row

    @classmethod
    def of(cls, blocks: Sequence[Block], num_splits: int) -> SortedRows:
        """Sorts the rows of blocks."""
        keys = np.concatenate([block.keys for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        planned_bytes = np.concatenate([block.planned_bytes for block in blocks])
        order = sort_order(keys, splits, num_splits)
        rows = join_rows([block.rows for block in blocks], order)
        if order is not None:
            keys, planned_bytes = keys[order], planned_bytes[order]
        counts = np.bincount(splits, minlength=num_splits)
        return cls(tuple(counts.tolist()), rows, keys, planned_bytes)

    def part(self, which: slice = slice(None)) -> Part:
        """Returns some of the rows, or all."""
        first, end, _ = which.indices(len(self.keys))
        rows, planned_bytes = self.rows.slice(first, end - first), self.planned_bytes
        lengths = planned_bytes[which] if has_values(rows) else lengths_of(rows)
        return Part(
            self.keys[which],
            planned_bytes[which],
            int(lengths.sum()),
            lambda start, stop: rows.slice(start, stop - start),
        )


def find_rows(
    keys: U64, counts: Sequence[int], task: ShardTask, skipped: int = 0
) -> slice:
    """Returns where a shard's rows are among those sorted by (split, key).

    The keys may be some, `skipped` rows behind the first of all, if all of the shard
    are among them.
    """
    begin = sum(counts[: task.split_index]) - skipped
    end = min(begin + counts[task.split_index], len(keys))
    begin = min(max(begin, 0), len(keys))
    found = keys[begin:end]
    first = begin + int(np.searchsorted(found, np.uint64(task.low)))
    if task.high < 1 << 64:
        end = begin + int(np.searchsorted(found, np.uint64(task.high)))
    return slice(first, max(first, end))


def stable_order(keys: U64) -> npt.NDArray[np.intp]:
    """Returns the stable order by key.

    Few keys are equal, and without any there is only one order: NumPy finds that in a
    quarter of the time that a stable sort takes.
    """
    order = np.argsort(keys)
    rising = keys[order]
    if bool((rising[1:] == rising[:-1]).any()):
        return np.argsort(keys, kind="stable")
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
    return np.concatenate([some[stable_order(keys[some])] for some in rows])


# A shard's rows lie in many parts, each sorted by order key; of equal keys the earlier part
# comes first, so the order is total. Every exchange ends here: they differ only in where
# the parts are. Rows of the parts a, b with the keys
#
#     a  1 5 9      b  2 3 7
#
# and windows of two rows: a[0:1] b[0:1], then a[1:2] b[1:2], then a[2:3] b[2:3].


def merge_windows(
    parts: Sequence[Part],
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """Yields the payloads of a shard in order, in windows.

    A window has that many planned bytes, or one larger record. `break_ties_by_content`
    orders records with equal keys by their bytes, not by their parts.
    """
    if not parts:
        return
    keys = np.concatenate([part.keys for part in parts])
    planned_bytes = np.concatenate([part.planned_bytes for part in parts])
    num_bytes = sum(part.num_bytes for part in parts)
    firsts = offsets_of(np.array([len(part.keys) for part in parts]))
    readers = [part.read for part in parts]
    del parts  # there may be very many of few rows
    order = stable_order(keys)
    keys = keys[order]
    ends = np.cumsum(planned_bytes[order])
    starts = [0]
    while starts[-1] < len(order):
        before = ends[starts[-1] - 1] if starts[-1] else 0
        limit = before + window_bytes
        stop = max(starts[-1] + 1, int(np.searchsorted(ends, limit, side="right")))
        if break_ties_by_content and stop < len(order):
            stop = _before_tie(keys, starts[-1], stop)
        starts.append(stop)
    # References are a thousandth of what is planned for their records. To read those of
    # one window after the other, some from each part, took 7 us for each image.
    at_once = max(1, int(planned_bytes.sum()) // max(1, num_bytes))
    groups = (starts[i : i + at_once + 1] for i in range(0, len(starts) - 1, at_once))

    def read(edges: list[int]) -> list[pa.BinaryArray]:
        window = slice(edges[0], edges[-1])
        records = _read_rows(readers, firsts, order[window])
        if break_ties_by_content:
            records = _order_ties(records, keys[window])
        return [records.slice(a - edges[0], b - a) for a, b in pairwise(edges)]

    # The next windows are read while the caller works on these.
    for records in ahead(groups, read, 1, most=1):
        yield from records


def _before_tie(keys: U64, start: int, stop: int) -> int:
    """Returns an end at or before `stop` that does not separate equal keys.

    Equal keys that fill more than a window are separated: only equal records can have
    so many, and their order does not matter.
    """
    first = int(np.searchsorted(keys, keys[stop]))
    return first if first > start else stop


def _read_rows(
    readers: Sequence[ReadRows], firsts: I64, window: npt.NDArray[np.intp]
) -> pa.BinaryArray:
    """Returns the payloads of a window, in the order of their keys.

    `firsts` numbers each part's first row among all, `window` has such numbers by
    ascending key.
    """
    # Those of one part follow each other there, as parts and windows are sorted.
    by_place = np.argsort(window)
    stored = window[by_place]
    part_of = np.searchsorted(firsts, stored, side="right") - 1
    edges = [*np.flatnonzero(np.diff(part_of, prepend=-1)).tolist(), len(stored)]
    found = []
    for first, end in pairwise(edges):
        part = int(part_of[first])
        begin = int(stored[first] - firsts[part])
        found.append(readers[part](begin, begin + end - first))
    positions = np.empty(len(window), np.intp)
    positions[by_place] = np.arange(len(window))
    is_sorted = bool(np.all(positions[:-1] < positions[1:]))
    return binary_payloads(join_rows(found, None if is_sorted else positions))


def _order_ties(records: pa.BinaryArray, keys: U64) -> pa.BinaryArray:
    """Orders records with equal keys by their bytes."""
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
