"""Finds the records of several shards by one number, and reads them."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.transforms.arrow import I64
from recordmill.transforms.dataset.array_record_shards import ArrayRecordShard
from recordmill.transforms.dataset.read_shards import ShardToRead
from recordmill.transforms.dataset.record_access import OpenShard, open_shard

_OPEN_SHARDS = 256  # mapped at once; others are opened again when they are needed


class Places(NamedTuple):
    """Where some records are, in files that are open.

    Attributes:
      parts: of each shard, ascending: the positions of its records.
      shard_of: the number of each record's shard, in the order that is asked for.
    """

    parts: list[tuple[OpenShard | ArrayRecordShard, I64]]
    shard_of: I64

    def read(self) -> pa.BinaryArray:
        """Reads and verifies the records.

        Raises:
          CorruptRecordError: one is damaged.
        """
        found = [shard.read(positions) for shard, positions in self.parts]
        if not found:
            return pa.array([], pa.binary())
        if len(found) == 1:
            return found[0]
        back = np.empty(len(self.shard_of), np.int64)
        back[np.argsort(self.shard_of, kind="stable")] = np.arange(len(back))
        return pa.concat_arrays(found).take(pa.array(back))


class RecordsByNumber:
    """The records of shards, numbered from 0 through all of them."""

    def __init__(self, shards: Sequence[ShardToRead]) -> None:
        self._shards = shards
        self._firsts = [0, *itertools.accumulate(s.entry.records for s in shards)]
        self._open: OrderedDict[int, OpenShard | ArrayRecordShard] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        """Returns what another process needs: all but the open files."""
        return {**self.__dict__, "_open": OrderedDict()}

    def __len__(self) -> int:
        return self._firsts[-1]

    def checked(self, numbers: I64) -> I64:
        """Returns numbers of which negative ones count from the end.

        Raises:
          IndexError: there is no such record.
        """
        count = len(self)
        wrong = (numbers < -count) | (numbers >= count)
        if wrong.any():
            raise IndexError(f"row {numbers[np.argmax(wrong)]} of {count}")
        return np.where(numbers < 0, numbers + count, numbers)

    def places(self, numbers: I64) -> Places:
        """Opens the shards of some records; not by several threads at once."""
        shard_of = np.searchsorted(self._firsts, numbers, side="right") - 1
        parts = [
            (self._opened(shard), numbers[shard_of == shard] - self._firsts[shard])
            for shard in np.unique(shard_of).tolist()
        ]
        return Places(parts, shard_of)

    def _opened(self, shard: int) -> OpenShard | ArrayRecordShard:
        if shard in self._open:
            self._open.move_to_end(shard)
        else:
            self._open[shard] = open_shard(self._shards[shard])
            if len(self._open) > _OPEN_SHARDS:
                self._open.popitem(last=False)
        return self._open[shard]
