"""Holds a sorted run in memory as the values of its features.

Its records are written when they are read, into the buffer of whoever reads. To readers
it is a file: records one behind the other, sorted, with places known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.schemas.ranges import SortedRunRef
from recordmill.schemas.shards import ShardTask
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.encode.unwritten_records import UnwrittenRecords
from recordmill.transforms.exchange.block import Block, find_rows, sort_order
from recordmill.transforms.exchange.merge import Pieces
from recordmill.transforms.exchange.sorted_run_index import SortedRunIndex


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
