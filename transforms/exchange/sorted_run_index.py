"""Packs and reads the index of a sorted run, whole or only some blocks.

    "recmill2" | u64 records | u64 splits | u64 count per split
    | directory: for each block u64 first order key, u64 crc32c of the block
    | blocks: u64 order keys | u64 offsets (records + 1) | u64 planned bytes

All little-endian; records are sorted by split, within a split by order key. A block
holds records of one split. A shard needs a few records of every run, and there are as
many runs as input ranges: so it reads the directory and only the blocks that it needs.
The SortedRunRef holds the checksum of all bytes before the blocks.

A run of one split with the keys [1, 5, 9] and payloads of 4 bytes: blocks have at least
64 records, so there is one, and the file is

    0    "recmill2" | 3 | 1 | 3              magic, records, splits, count of split 0
    32   1 | crc of bytes 48 to 128          directory: first key and crc of block 0
    48   1 5 9 | 0 4 8 12 | 4 4 4            keys, offsets, planned bytes: 8 * (3 * 3 + 1)
    128  end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import SortedRunRef
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.tfrecord import crc32c

READ_WHOLE_BYTES = 1 << 13  # one read of this size costs no more than two small ones

_MAGIC = b"recmill2"
_BLOCK_RECORDS = 64  # smallest block, except for the last one of a split
_BLOCKS = 256  # most blocks of a split, so that the directory stays small

ReadRange = Callable[[int, int], bytes]
"""Reads the bytes from start to stop of the index's file; fewer if it ends before."""


@dataclass(frozen=True, slots=True)
class SortedRunIndex:
    """The index of some records of a run, in the run's order.

    Attributes:
      keys: order key of each record.
      offsets: where each record's payload starts, and where the last one ends.
      planned_bytes: planned bytes of each record.
    """

    keys: U64
    offsets: U64
    planned_bytes: U64


@dataclass(frozen=True, slots=True)
class _Layout:
    """The locations of the blocks of an index, computed from the counts alone.

    Attributes:
      first_blocks: number of each split's first block, and the number of all blocks.
      edges: index in the run of each block's first record, and the number of records.
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
    """Packs an index; returns its bytes and the checksum for the SortedRunRef.

    Args:
      keys: order key of each record, by split, ascending within a split.
      offsets: where each record's payload starts, and where the last one ends.
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


def read_index(read: ReadRange, run: SortedRunRef, uri: str) -> SortedRunIndex:
    """Reads the index of all records of a run.

    Args:
      read: reads the index's file.
      run: the run of the index.
      uri: the file's name for error messages.

    Raises:
      RecordmillError: the file is not the one that the SortedRunRef describes.
    """
    layout = _Layout.of(run.counts)
    data = read(0, layout.starts[-1] + 1)
    if len(data) != layout.starts[-1]:
        raise _damaged(uri)
    directory = _read_directory(data, layout, run, uri)
    return _read_blocks(data, 0, layout, directory, (0, len(layout.edges) - 1), uri)


def find_records(
    read: ReadRange, run: SortedRunRef, uri: str, split_index: int, low: int, high: int
) -> SortedRunIndex:
    """Reads the index of a split's records with low <= key < high.

    Args:
      read: reads the index's file.
      run: the run of the index.
      uri: the file's name for error messages.
      split_index: the split.
      low: smallest order key.
      high: end of the keys, exclusive.

    Raises:
      RecordmillError: what was read is not what the SortedRunRef describes.
    """
    layout = _Layout.of(run.counts)
    data = read(0, max(layout.head_bytes, min(READ_WHOLE_BYTES, layout.starts[-1])))
    directory = _read_directory(data, layout, run, uri)
    first, end = layout.first_blocks[split_index : split_index + 2]
    first_keys = directory[first:end, 0]
    # The block before may end with records of the key that the first block begins with.
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
    found = _read_blocks(data, begin, layout, directory, blocks, uri)
    return _select_keys(found, low, high)


def _read_directory(data: bytes, layout: _Layout, run: SortedRunRef, uri: str) -> U64:
    """Returns first key and checksum of the blocks, shape (blocks, 2)."""
    head = data[: layout.head_bytes]
    if crc32c(head) != run.index_crc32c or not head.startswith(_MAGIC):
        raise _damaged(uri)
    skipped = len(_MAGIC) + 8 * (2 + len(run.counts))
    return np.frombuffer(head, "<u8", offset=skipped).reshape(-1, 2)


def _read_blocks(
    data: bytes,
    begin: int,
    layout: _Layout,
    directory: U64,
    blocks: tuple[int, int],
    uri: str,
) -> SortedRunIndex:
    """Joins the records of some blocks; `data` is the file's bytes from `begin` on.

    A block of n records is the words of n keys, n + 1 offsets and n planned bytes.
    """
    block_words = []
    for number in range(*blocks):
        start, stop = layout.starts[number] - begin, layout.starts[number + 1] - begin
        block = data[start:stop]
        if len(block) != stop - start or crc32c(block) != int(directory[number, 1]):
            raise _damaged(uri)
        block_words.append(np.frombuffer(block, "<u8"))
    counts = [len(words) // 3 for words in block_words]
    sized = list(zip(block_words, counts, strict=True))
    ends = [words[2 * n : 2 * n + 1] for words, n in sized]
    nothing = np.zeros(0, np.uint64)
    columns = [
        np.concatenate(
            [words[i * n + shift : (i + 1) * n + shift] for words, n in sized]
            or [nothing]
        )
        for i, shift in ((0, 0), (1, 0), (2, 1))  # offsets without the last one
    ]
    offsets = np.concatenate([columns[1], *(ends[-1:] or [np.zeros(1, np.uint64)])])
    return SortedRunIndex(columns[0], offsets, columns[2])


def _select_keys(found: SortedRunIndex, low: int, high: int) -> SortedRunIndex:
    """Copies the records with low <= key < high, so that the blocks can be freed."""
    first = int(np.searchsorted(found.keys, np.uint64(low)))
    end = len(found.keys)
    if high < 1 << 64:
        end = int(np.searchsorted(found.keys, np.uint64(high)))
    return SortedRunIndex(
        found.keys[first:end].copy(),
        found.offsets[first : end + 1].copy(),
        found.planned_bytes[first:end].copy(),
    )


def _damaged(uri: str) -> RecordmillError:
    return RecordmillError(f"{uri}: the scratch file is damaged; run again")
