"""Holds sorted runs in memory instead of files, up to a budget.

The records of a held run stay where they were encoded, in chunks that are not sorted;
only their places are. So they are neither joined nor sorted nor written: the writer of
a shard copies each once, in its final order.

A chunk with the records a, b, c (keys 7, 1, 4) is held as

    chunks [abc]     keys [1, 4, 7]    places of b, c, a

Held runs belong to this process. Whoever starts a job says how much it may hold, and
lets go of all of it at the end. A run that was held by a process that was killed is not
there any more: its range is read again. So the budget bounds the work that went into
held runs, too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.dataset.shards import ShardTask
from recordmill.schemas.ranges import SortedRunRef
from recordmill.transforms.arrow import I64, U64, array_parts, offsets_of
from recordmill.transforms.exchange.block import Block, sort_order
from recordmill.transforms.exchange.merge import Pieces
from recordmill.transforms.exchange.sorted_run_index import SortedRunIndex

_ROW_BYTES = 40  # of the arrays below, for each record


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


@dataclass(frozen=True, slots=True)
class HeldRun:
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
    def of(cls, blocks: Sequence[Block], num_splits: int) -> HeldRun:
        """Sorts the places of the records of one run; they themselves are not copied."""
        offsets = [array_parts(block.payloads)[0] for block in blocks]
        keys = np.concatenate([block.keys for block in blocks])
        splits = np.concatenate([block.splits for block in blocks])
        order: slice | npt.NDArray[np.intp] | None = sort_order(
            keys, splits, num_splits
        )
        if order is None:
            order = slice(None)
        return cls(
            tuple(np.bincount(splits, minlength=num_splits).tolist()),
            tuple(block.payloads.buffers()[2] or pa.py_buffer(b"") for block in blocks),
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
        begin = sum(self.counts[: task.split_index])
        end = begin + self.counts[task.split_index]
        keys = self.keys[begin:end]
        first = begin + int(np.searchsorted(keys, np.uint64(task.low)))
        if task.high < 1 << 64:
            end = begin + int(np.searchsorted(keys, np.uint64(task.high)))
        rows = slice(first, end)
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


def held_bytes(blocks: Sequence[Block]) -> int:
    """Returns the memory that a held run of these blocks takes."""
    payloads: dict[int, int] = {
        buffer.address: buffer.size
        for block in blocks
        if (buffer := block.payloads.buffers()[2]) is not None
    }
    return sum(payloads.values()) + _ROW_BYTES * sum(len(b.keys) for b in blocks)


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
        if not self._has_room(needed, seconds, budget):
            return None
        run = HeldRun.of(blocks, num_splits)
        with self._lock:
            # Others may have filled the room meanwhile.
            if not self._has_room(needed, seconds, budget):
                return None
            self._bytes += needed
            self._seconds += seconds
            self._runs[folder, stem] = (run, needed, seconds)
        return run

    def _has_room(self, needed: int, seconds: float, budget: HoldBudget) -> bool:
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
