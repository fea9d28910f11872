"""Writes sorted runs to scratch, and reads their indexes.

The index of a run is

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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import SortedRunRef
from recordmill.transforms.arrow import (
    I64,
    U64,
    array_parts,
    offsets_of,
    value_lengths,
    value_offsets,
    views_at,
)
from recordmill.transforms.exchange.merge import Block, payload_buffer, sort_order
from recordmill.transforms.storage.atomic_files import temp_path, write_atomic
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

    first_blocks: I64
    edges: I64
    starts: I64

    @classmethod
    def of(cls, counts: Sequence[int]) -> _Layout:
        size = max(_BLOCK_RECORDS, -(-max(counts, default=0) // _BLOCKS))
        return _layout_of(tuple(counts), size)

    @classmethod
    def with_blocks(cls, counts: tuple[int, ...], size: int) -> _Layout:
        """Computes it for blocks of so many records."""
        begins = offsets_of(np.array(counts, np.int64))
        inside = pairwise(begins.tolist())
        firsts = [np.arange(begin, end, size) for begin, end in inside]
        edges = np.concatenate([*firsts, begins[-1:]])
        first_blocks = offsets_of(np.array(list(map(len, firsts)), np.int64))
        head = len(_MAGIC) + 8 * (2 + len(counts)) + 16 * (len(edges) - 1)
        # A block of n records is 3 n + 1 words.
        starts = head + 8 * (3 * edges + np.arange(len(edges)))
        return cls(first_blocks, edges, starts)

    @property
    def head_bytes(self) -> int:
        return int(self.starts[0])


@lru_cache(maxsize=16)  # most ranges have as many records as the one before
def _layout_of(counts: tuple[int, ...], size: int) -> _Layout:
    return _Layout.with_blocks(counts, size)


def _tables(words: U64, edges: I64) -> Iterator[tuple[U64, int, slice]]:
    """Yields blocks that follow each other as tables, one for those of equal sizes.

    A row is a block of n records: n keys, n offsets and the end of the last payload, n
    planned bytes. Edges [0, 3, 6, 8] give a table of 2 rows and 10 columns, for the
    records 0 to 5, and one of 1 row and 7 columns, for the records 6 and 7.

    Args:
      words: of the blocks.
      edges: the first record of each block, and the end of the last one.

    Yields:
      A table, the records in each of its rows, and which records these are.
    """
    at, first = 0, int(edges[0])
    for size, blocks in groupby(np.diff(edges).tolist()):
        num_blocks = len(list(blocks))
        stop, end = at + num_blocks * (3 * size + 1), first + num_blocks * size
        table = words[at:stop].reshape(num_blocks, 3 * size + 1)
        yield table, size, slice(first, end)
        at, first = stop, end


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
    body = np.empty((int(layout.starts[-1]) - layout.head_bytes) // 8, "<u8")
    for table, size, rows in _tables(body, layout.edges):
        table[:, :size] = keys[rows].reshape(-1, size)
        table[:, size : 2 * size] = offsets[rows].reshape(-1, size)
        table[:, 2 * size] = offsets[rows.start + size : rows.stop + 1 : size]
        table[:, 2 * size + 1 :] = planned_bytes[rows].reshape(-1, size)
    directory = np.empty((len(layout.edges) - 1, 2), "<u8")
    directory[:, 0] = keys[layout.edges[:-1]]
    directory[:, 1] = _block_crcs(body.data.cast("B"), layout.starts)
    counted = np.array([len(keys), len(counts), *counts], "<u8")
    head = b"".join([_MAGIC, counted.tobytes(), directory.tobytes()])
    return head + body.tobytes(), crc32c(head)


def _block_crcs(blocks: memoryview, starts: I64) -> list[int]:
    """Computes the checksum of each block; the first one begins with the bytes."""
    edges = (starts - starts[0]).tolist()
    return [crc32c(blocks[start:stop]) for start, stop in pairwise(edges)]


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
    size = int(layout.starts[-1])
    data = read(0, size + 1)
    if len(data) != size:
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
    size = int(layout.starts[-1])
    data = read(0, max(layout.head_bytes, min(READ_WHOLE_BYTES, size)))
    directory = _read_directory(data, layout, run, uri)
    first, end = layout.first_blocks[split_index : split_index + 2].tolist()
    first_keys = directory[first:end, 0]
    # The block before may end with records of the key that the first block begins with.
    inner = max(0, int(first_keys.searchsorted(np.uint64(low))) - 1)
    outer = len(first_keys)
    if high < 1 << 64:
        outer = int(first_keys.searchsorted(np.uint64(high)))
    blocks = (first + inner, first + max(outer, inner))
    start, stop = (int(layout.starts[block]) for block in blocks)
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
    """Joins the records of some blocks; `data` is the file's bytes from `begin` on."""
    first, end = blocks
    starts = layout.starts[first : end + 1]
    body = data[int(starts[0]) - begin : int(starts[-1]) - begin]
    # Bytes that are missing at the end are missed by the last block's checksum.
    if _block_crcs(memoryview(body), starts) != directory[first:end, 1].tolist():
        raise _damaged(uri)
    parts: list[list[U64]] = [[np.zeros(0, np.uint64)] for _ in range(3)]
    last = np.zeros(1, np.uint64)
    words = np.frombuffer(body, "<u8")
    for table, size, _ in _tables(words, layout.edges[first : end + 1]):
        for part, start in zip(parts, (0, size, 2 * size + 1), strict=True):
            part.append(table[:, start : start + size].ravel())
        last = table[-1, 2 * size : 2 * size + 1]
    return SortedRunIndex(
        np.concatenate(parts[0]),
        np.concatenate([*parts[1], last]),
        np.concatenate(parts[2]),
    )


def _select_keys(found: SortedRunIndex, low: int, high: int) -> SortedRunIndex:
    """Copies the records with low <= key < high, so that the blocks can be freed."""
    first = int(found.keys.searchsorted(np.uint64(low)))
    end = len(found.keys)
    if high < 1 << 64:
        end = int(found.keys.searchsorted(np.uint64(high)))
    return SortedRunIndex(
        found.keys[first:end].copy(),
        found.offsets[first : end + 1].copy(),
        found.planned_bytes[first:end].copy(),
    )


def _damaged(uri: str) -> RecordmillError:
    return RecordmillError(f"{uri}: the scratch file is damaged; run again")


#     STEM.records   payload of record 0 | payload of record 1 | ...
#     STEM.index     keys, offsets and planned bytes
#
# Records are sorted by split, within a split by order key. A payload is a framed record
# or, in the exchange by reference, a reference to the row that becomes one.

_WINDOW_BYTES = 4 << 20  # payloads that are sorted and written at once


def write_sorted_run(
    stem: Path,
    blocks: Sequence[Block],
    num_splits: int,
) -> SortedRunRef:
    """Sorts the rows of blocks by (split, order key) and writes them as a run.

    Args:
      stem: path without ending; both files appear whole or not at all.
      blocks: the rows. Records are not joined first: each is copied once, when its
        place in the run is written.
      num_splits: number of splits of the job.
    """
    keys = np.concatenate([block.keys for block in blocks])
    splits = np.concatenate([block.splits for block in blocks])
    planned_bytes = np.concatenate([block.planned_bytes for block in blocks])
    lengths = np.concatenate([value_lengths(block.payloads) for block in blocks])
    counts = np.bincount(splits, minlength=num_splits)
    order = sort_order(keys, splits, num_splits)
    if order is None:
        starts = offsets_of(lengths)
        windows = _stored_payloads(blocks)
    else:
        keys, planned_bytes = keys[order], planned_bytes[order]
        starts = offsets_of(lengths[order])
        windows = _sorted_payloads(blocks, order, starts)
    index, index_crc = pack_index(keys, starts, planned_bytes, counts.tolist())
    path = stem.with_name(f"{stem.name}.records")
    payload_crc = _write_payload(path, windows)
    write_atomic(stem.with_name(f"{stem.name}.index"), index)
    return SortedRunRef(
        stem=stem.name,
        counts=tuple(counts.tolist()),
        payload_bytes=int(starts[-1]),
        index_crc32c=index_crc,
        payload_crc32c=payload_crc,
    )


def _stored_payloads(blocks: Sequence[Block]) -> Iterator[memoryview]:
    """Yields the payloads' bytes as they are."""
    for block in blocks:
        offsets, data = array_parts(block.payloads)
        yield data.data[offsets[0] : offsets[-1]]


def _sorted_payloads(
    blocks: Sequence[Block], order: npt.NDArray[np.intp], starts: I64
) -> Iterator[memoryview]:
    """Yields the payloads' bytes in the run's order, in windows to save memory.

    Args:
      blocks: the rows.
      order: index of each row of the run, counted over all blocks.
      starts: byte offset of each row in the run, and the end.
    """
    buffers = list(map(payload_buffer, blocks))
    firsts = [value_offsets(block.payloads)[:-1] for block in blocks]
    buffer_of = np.repeat(np.arange(len(blocks)), [len(found) for found in firsts])
    places = np.concatenate(firsts)
    num_windows = max(1, int(starts[-1]) // _WINDOW_BYTES)
    targets = np.linspace(0, starts[-1], num_windows + 1)[1:-1]
    edges = [0, *np.searchsorted(starts, targets).tolist(), len(order)]
    for first, end in pairwise(edges):
        rows, lengths = order[first:end], np.diff(starts[first : end + 1])
        views = views_at(buffers, buffer_of[rows], places[rows], lengths)
        offsets, data = array_parts(views.cast(pa.binary()))
        yield data.data[offsets[0] : offsets[-1]]


def _write_payload(path: Path, windows: Iterable[memoryview]) -> int:
    """Writes a run's payload as `write_atomic` writes a file; returns its CRC-32C."""
    temporary = temp_path(path)
    crc = 0
    try:
        with temporary.open("wb") as file:
            for body in windows:
                crc = crc32c(body, crc)
                file.write(body)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a failed write does not tell it
        raise
    return crc
