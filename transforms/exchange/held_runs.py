"""Holds sorted runs in memory in place of files, up to a budget."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.ranges import SortedRunRef
from recordmill.schemas.shards import ShardTask
from recordmill.transforms.arrow import I64, U64, offsets_of
from recordmill.transforms.encode.waiting_rows import UnwrittenRecords, payload_offsets
from recordmill.transforms.exchange.merge import (
    Block,
    Pieces,
    find_rows,
    payload_buffer,
    sort_order,
)
from recordmill.transforms.exchange.sorted_run import SortedRunIndex


@dataclass(frozen=True, slots=True)
class HeldValues:
    """A sorted run whose records are not written; one entry for each, in sorted order.

    Attributes:
      counts: records of each split.
      records: the values.
      keys: order key; ascending within a split.
      planned_bytes: planned bytes of the record.
    """

    counts: tuple[int, ...]
    records: UnwrittenRecords
    keys: U64
    planned_bytes: I64

    @classmethod
    def of(cls, blocks: Sequence[Block], num_splits: int) -> HeldValues | None:
        """Sorts the rows of one run; None if they are not all unwritten and alike."""
        parts = [
            block.payloads
            for block in blocks
            if isinstance(block.payloads, UnwrittenRecords)
        ]
        if len(parts) < len(blocks):
            return None
        keys = np.concatenate([block.keys for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        planned_bytes = np.concatenate([block.planned_bytes for block in blocks])
        order = sort_order(keys, splits, num_splits)
        records = UnwrittenRecords.joined(parts, order)
        if records is None:
            return None
        if order is not None:
            keys, planned_bytes = keys[order], planned_bytes[order]
        counts = np.bincount(splits, minlength=num_splits)
        return cls(tuple(counts.tolist()), records, keys, planned_bytes)

    @property
    def index(self) -> SortedRunIndex:
        """Returns the index that a file of this run would have."""
        offsets, planned_bytes = self.records.offsets, self.planned_bytes
        return SortedRunIndex(
            self.keys, offsets.astype(np.uint64), planned_bytes.astype(np.uint64)
        )

    def find(self, task: ShardTask, body: int) -> Pieces:
        """Returns the places of a shard's records.

        Args:
          task: the shard.
          body: number of the body that this run is.
        """
        return self.pieces(body, find_rows(self.keys, self.counts, task))

    def pieces(self, body: int = 0, rows: slice = slice(None)) -> Pieces:
        """Returns the places of some records, or of all.

        Args:
          body: number of the body that this run is.
          rows: of the records.
        """
        offsets = self.records.offsets
        return Pieces(
            np.full(len(self.keys[rows]), body, np.int64),
            offsets[:-1][rows].astype(np.uint64),
            np.diff(offsets)[rows],
            self.planned_bytes[rows].astype(np.uint64),
            self.keys[rows],
        )

    def read_into(self, target: memoryview, offset: int) -> None:
        """Writes the records that begin at a byte offset; they fill the target."""
        ends = (offset, offset + len(target))
        first, end = np.searchsorted(self.records.offsets, ends).tolist()
        self.records.write(first, end, target)

    def reference(self, stem: str) -> SortedRunRef:
        """Returns what names this run."""
        return SortedRunRef(
            stem, self.counts, self.records.nbytes, 0, 0, in_memory=True
        )


# They lie in chunks that are not sorted; only their places are. So they are neither joined
# nor sorted nor written: the writer of a shard copies each once, in its final order.
#
# A chunk with the records a, b, c (keys 7, 1, 4) is held as
#
#     chunks [abc]     keys [1, 4, 7]    places of b, c, a


@dataclass(frozen=True, slots=True)
class HeldRecords:
    """A sorted run in memory; arrays have one entry for each record, in sorted order.

    Attributes:
      counts: records of each split.
      chunks: the bytes of the records, not sorted.
      keys: order key; ascending within a split.
      chunk_of: index of the chunk that has the record.
      starts: byte offset of the record in its chunk.
      lengths: bytes of the record.
      planned_bytes: planned bytes of the record.
    """

    counts: tuple[int, ...]
    chunks: tuple[pa.Buffer, ...]
    keys: U64
    chunk_of: I64
    starts: I64
    lengths: I64
    planned_bytes: I64

    @classmethod
    def of(cls, blocks: Sequence[Block], num_splits: int) -> HeldRecords:
        """Sorts the places of the records of one run; they themselves are not copied."""
        offsets = [payload_offsets(block.payloads) for block in blocks]
        keys = np.concatenate([block.keys for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        order: slice | npt.NDArray[np.intp] | None = sort_order(
            keys, splits, num_splits
        )
        if order is None:
            order = slice(None)
        return cls(
            tuple(np.bincount(splits, minlength=num_splits).tolist()),
            tuple(map(payload_buffer, blocks)),
            keys[order],
            np.repeat(np.arange(len(blocks)), [len(found) - 1 for found in offsets])[
                order
            ],
            np.concatenate([found[:-1] for found in offsets])[order],
            np.concatenate([np.diff(found) for found in offsets])[order],
            np.concatenate([block.planned_bytes for block in blocks])[order],
        )

    @property
    def index(self) -> SortedRunIndex:
        """Returns the index that a file of this run would have."""
        offsets, planned_bytes = offsets_of(self.lengths), self.planned_bytes
        return SortedRunIndex(
            self.keys, offsets.astype(np.uint64), planned_bytes.astype(np.uint64)
        )

    def find(self, task: ShardTask, first_body: int) -> Pieces:
        """Returns the places of a shard's records.

        Args:
          task: the shard.
          first_body: number of the body that the first chunk is.
        """
        rows = find_rows(self.keys, self.counts, task)
        return Pieces(
            self.chunk_of[rows] + first_body,
            self.starts[rows].astype(np.uint64),
            self.lengths[rows],
            self.planned_bytes[rows].astype(np.uint64),
            self.keys[rows],
        )

    def reference(self, stem: str) -> SortedRunRef:
        """Returns what names this run."""
        return SortedRunRef(
            stem, self.counts, int(self.lengths.sum()), 0, 0, in_memory=True
        )


# Held runs belong to this process. Whoever starts a job says how much it may hold, and
# lets go of all of it at the end. A run that was held by a process that was killed is not
# there any more: its range is read again. So the budget bounds the work that went into
# held runs, too.

HeldRun: TypeAlias = HeldRecords | HeldValues

_ROW_BYTES = 40  # of the arrays of a held run, for each record


@dataclass(frozen=True, slots=True)
class HoldBudget:
    """What the held runs of a job may have together.

    Attributes:
      num_bytes: memory.
      seconds: that workers took to make them, which a killed run loses.
    """

    num_bytes: int
    seconds: float = math.inf


NO_BUDGET = HoldBudget(0)


def held_bytes(blocks: Sequence[Block]) -> int:
    """Returns the memory that a held run of these blocks takes."""
    held: dict[int, int] = {}
    for block in blocks:
        if isinstance(block.payloads, UnwrittenRecords):
            held[id(block)] = block.payloads.held_bytes
        elif (buffer := block.payloads.buffers()[2]) is not None:
            held[buffer.address] = buffer.size
    return sum(held.values()) + _ROW_BYTES * sum(len(block.keys) for block in blocks)


class HeldRuns:
    """The held runs of this process, by folder and stem."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[str, str], tuple[HeldRun, int, float]] = {}
        self._bytes = 0
        self._seconds = 0.0

    def hold(
        self,
        folder: str,
        stem: str,
        blocks: Sequence[Block],
        num_splits: int,
        seconds: float,
        budget: HoldBudget,
    ) -> HeldRun | None:
        """Holds a run in place of an earlier one of this name.

        Args:
          folder: of the run.
          stem: its name.
          blocks: its records.
          num_splits: number of splits of the job.
          seconds: that it took to make the blocks.
          budget: of all held runs.

        Returns:
          None if there is no room for it.
        """
        needed = held_bytes(blocks)
        self._drop((folder, stem))
        if not self._fits(needed, seconds, budget):
            return None
        values = HeldValues.of(blocks, num_splits)
        if values is None:
            blocks = [block.written() for block in blocks]
            needed = held_bytes(blocks)
        run = values or HeldRecords.of(blocks, num_splits)
        with self._lock:
            # Others may have filled the room meanwhile.
            if not self._fits(needed, seconds, budget):
                return None
            self._bytes += needed
            self._seconds += seconds
            self._runs[folder, stem] = (run, needed, seconds)
        return run

    def has_room(self, budget: HoldBudget) -> bool:
        """Tells whether there is room for one more row."""
        return self._fits(1, 0.0, budget)

    def _fits(self, needed: int, seconds: float, budget: HoldBudget) -> bool:
        return (
            self._bytes + needed <= budget.num_bytes
            and self._seconds + seconds <= budget.seconds
        )

    def get(self, folder: str, stem: str) -> HeldRun | None:
        """Returns a held run, or None."""
        found = self._runs.get((folder, stem))
        return found[0] if found else None

    def release(self, folder: str) -> None:
        """Lets go of all runs of a folder."""
        for key in [key for key in self._runs if key[0] == folder]:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        with self._lock:
            _, num_bytes, seconds = self._runs.pop(key, (None, 0, 0.0))
            self._bytes -= num_bytes
            self._seconds -= seconds


HELD_RUNS = HeldRuns()
