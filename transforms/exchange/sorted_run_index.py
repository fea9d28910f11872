"""The index of a sorted run: which records it has, and where; read whole or in part.

    "recmill2" | u64 records | u64 splits | u64 count per split
    | directory: for each block u64 first order key, u64 crc32c of the block
    | blocks: u64 order keys | u64 offsets (records + 1) | u64 planned bytes

All little-endian; records are split after split, within a split by order key. A block
holds records of one split. A shard needs a small part of every run, and there are as
many runs as input has ranges: so it reads the directory and the blocks that it needs.
The run's facts hold the checksum of all before the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import RunRef
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.tfrecord import crc32c

READ_WHOLE_BYTES = 1 << 13  # one read of so much costs no more than two small ones

_MAGIC = b"recmill2"
_BLOCK_RECORDS = 64  # in a block at least, but for the last of a split
_BLOCKS = 256  # of a split at most: the directory stays small

ReadPart = Callable[[int, int], bytes]
"""Bytes start to stop of the index's file; fewer if it ends before."""


@dataclass(frozen=True, slots=True)
class RunIndex:
    """Records of a run; arrays are in the run's order.

    Attributes:
      keys: order key of each record.
      offsets: where each record's payload starts, and the end of the last.
      planned_bytes: planned bytes of each record.
    """

    keys: U64
    offsets: U64
    planned_bytes: U64


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the blocks of an index lie; follows from the counts alone.

    Attributes:
      first_blocks: number of each split's first block, and at last of all blocks.
      edges: places of each block's records in the run: starts, and the end.
      starts: byte offset of each block in the file, and the file's size.
    """

    first_blocks: list[int]
    edges: list[int]
    starts: list[int]

    @classmethod
    def of(cls, counts: Sequence[int]) -> _Layout:
        size = max(_BLOCK_RECORDS, -(-max(counts, default=0) // _BLOCKS))
        first_blocks, edges = [0], [0]
        for count in counts:
            begin = edges[-1]
            edges += [*range(begin + size, begin + count, size), begin + count][
                : -(-count // size)
            ]
            first_blocks.append(len(edges) - 1)
        head = len(_MAGIC) + 8 * (2 + len(counts)) + 16 * (len(edges) - 1)
        starts = [head]
        for start, stop in pairwise(edges):
            starts.append(starts[-1] + 8 * (3 * (stop - start) + 1))
        return cls(first_blocks, edges, starts)

    @property
    def head_bytes(self) -> int:
        return self.starts[0]


def pack_index(
    keys: U64, offsets: I64, planned_bytes: I64, counts: Sequence[int]
) -> tuple[bytes, int]:
    """The bytes of an index, and the checksum by which it is known.

    Args:
      keys: order key of each record, split after split, rising within a split.
      offsets: where each record's payload starts, and the end of the last.
      planned_bytes: planned bytes of each record.
      counts: records of each split.
    """
    layout = _Layout.of(counts)
    columns = [column.astype("<u8") for column in (keys, offsets, planned_bytes)]
    blocks, directory = [], []
    for start, stop in pairwise(layout.edges):
        block = b"".join(
            column[start : stop + more].tobytes()
            for column, more in zip(columns, (0, 1, 0), strict=True)
        )
        directory += [int(columns[0][start]), crc32c(block)]
        blocks.append(block)
    words = np.array([len(keys), len(counts), *counts, *directory], "<u8")
    head = _MAGIC + words.tobytes()
    return b"".join([head, *blocks]), crc32c(head)


def whole_index(read: ReadPart, run: RunRef, where: str) -> RunIndex:
    """All records of a run.

    Args:
      read: reads the index's file.
      run: whose index it is.
      where: the file, for people.

    Raises:
      RecordmillError: the file is not what the run's facts say.
    """
    layout = _Layout.of(run.counts)
    data = read(0, layout.starts[-1] + 1)
    if len(data) != layout.starts[-1]:
        raise _damaged(where)
    directory = _directory(data, layout, run, where)
    return _joined(data, 0, layout, directory, (0, len(layout.edges) - 1), where)


def find_records(
    read: ReadPart, run: RunRef, where: str, split_index: int, low: int, high: int
) -> RunIndex:
    """The records of a split with low <= key < high.

    Args:
      read: reads the index's file.
      run: whose index it is.
      where: the file, for people.
      split_index: the split.
      low: first order key.
      high: end of the keys, exclusive.

    Raises:
      RecordmillError: what was read is not what the run's facts say.
    """
    layout = _Layout.of(run.counts)
    data = read(0, max(layout.head_bytes, min(READ_WHOLE_BYTES, layout.starts[-1])))
    directory = _directory(data, layout, run, where)
    first, end = layout.first_blocks[split_index : split_index + 2]
    first_keys = directory[first:end, 0]
    # A block may end with records of the key that the next one begins with.
    inner = max(0, int(np.searchsorted(first_keys, np.uint64(low))) - 1)
    outer = len(first_keys)
    if high < 1 << 64:
        outer = int(np.searchsorted(first_keys, np.uint64(high)))
    blocks = (first + inner, first + max(outer, inner))
    start, stop = (layout.starts[block] for block in blocks)
    if stop > len(data):
        data, begin = read(start, stop), start
    else:
        begin = 0
    found = _joined(data, begin, layout, directory, blocks, where)
    return _between(found, low, high)


def _directory(data: bytes, layout: _Layout, run: RunRef, where: str) -> U64:
    """First key and checksum of every block, shape (blocks, 2)."""
    head = data[: layout.head_bytes]
    if crc32c(head) != run.index_crc32c or not head.startswith(_MAGIC):
        raise _damaged(where)
    skipped = len(_MAGIC) + 8 * (2 + len(run.counts))
    return np.frombuffer(head, "<u8", offset=skipped).reshape(-1, 2)


def _joined(
    data: bytes,
    begin: int,
    layout: _Layout,
    directory: U64,
    blocks: tuple[int, int],
    where: str,
) -> RunIndex:
    """The records of some blocks, side by side; `data` is the file from `begin` on."""
    parts = []
    for number in range(*blocks):
        start, stop = layout.starts[number] - begin, layout.starts[number + 1] - begin
        block = data[start:stop]
        if len(block) != stop - start or crc32c(block) != int(directory[number, 1]):
            raise _damaged(where)
        parts.append(np.frombuffer(block, "<u8"))
    counts = [len(words) // 3 for words in parts]
    ends = [words[2 * n : 2 * n + 1] for words, n in zip(parts, counts, strict=True)]
    nothing = np.zeros(0, np.uint64)
    columns = [
        np.concatenate(
            [
                words[place * n + shift : (place + 1) * n + shift]
                for words, n in zip(parts, counts, strict=True)
            ]
            or [nothing]
        )
        for place, shift in ((0, 0), (1, 0), (2, 1))
    ]
    offsets = np.concatenate([columns[1], *(ends[-1:] or [np.zeros(1, np.uint64)])])
    return RunIndex(columns[0], offsets, columns[2])


def _between(found: RunIndex, low: int, high: int) -> RunIndex:
    """Copies of the records with low <= key < high: a view would keep all blocks."""
    first = int(np.searchsorted(found.keys, np.uint64(low)))
    end = len(found.keys)
    if high < 1 << 64:
        end = int(np.searchsorted(found.keys, np.uint64(high)))
    return RunIndex(
        found.keys[first:end].copy(),
        found.offsets[first : end + 1].copy(),
        found.planned_bytes[first:end].copy(),
    )


def _damaged(where: str) -> RecordmillError:
    return RecordmillError(f"{where}: the scratch file was changed or is damaged")
