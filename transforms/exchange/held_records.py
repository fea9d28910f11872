"""Holds a sorted run in memory as framed records, which stay where they were encoded.

They lie in chunks that are not sorted; only their places are. So they are neither joined
nor sorted nor written: the writer of a shard copies each once, in its final order.

A chunk with the records a, b, c (keys 7, 1, 4) is held as

    chunks [abc]     keys [1, 4, 7]    places of b, c, a
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.ranges import SortedRunRef
from recordmill.schemas.shards import ShardTask
from recordmill.transforms.arrow import I64, U64, offsets_of
from recordmill.transforms.encode.unwritten_records import payload_offsets
from recordmill.transforms.exchange.block import (
    Block,
    find_rows,
    payload_buffer,
    sort_order,
)
from recordmill.transforms.exchange.merge import Pieces
from recordmill.transforms.exchange.sorted_run_index import SortedRunIndex


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
