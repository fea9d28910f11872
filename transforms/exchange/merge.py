"""Merges the pieces of a shard by order key, in windows of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.shards import ShardTask
from recordmill.transforms.arrow import (
    I64,
    U64,
    array_parts,
    binary_array,
    offsets_of,
    views_at,
)
from recordmill.transforms.encode.waiting_rows import (
    Payloads,
    UnwrittenRecords,
    written_payloads,
)
from recordmill.transforms.parallel import ahead
from recordmill.transforms.reused_buffers import empty_bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Encoded rows of one input range, in row order.

    Attributes:
      payloads: one payload for each row; unwritten ones wait in memory, or in pieces.
      keys: order key of each row.
      splits: split index of each row.
      planned_bytes: planned bytes of each row.
    """

    payloads: Payloads
    keys: U64
    splits: npt.NDArray[np.uint8]
    planned_bytes: I64

    def written(self) -> Block:
        """Returns the same rows with payloads of bytes."""
        return replace(self, payloads=written_payloads(self.payloads))

    @classmethod
    def joined(cls, blocks: list[Block]) -> Block:
        """Joins blocks to one; clears the list."""
        block = cls(
            _joined_payloads([block.payloads for block in blocks]),
            np.concatenate([block.keys for block in blocks]),
            np.concatenate([block.splits for block in blocks]),
            np.concatenate([block.planned_bytes for block in blocks]),
        )
        blocks.clear()  # so that no row is in memory twice while the block is written
        return block


def _joined_payloads(parts: Sequence[Payloads]) -> Payloads:
    """Joins payloads: unwritten if all are, and have the same features."""
    unwritten = [part for part in parts if isinstance(part, UnwrittenRecords)]
    if len(unwritten) == len(parts):
        joined = UnwrittenRecords.joined(unwritten)
        if joined is not None:
            return joined
    return pa.concat_arrays([written_payloads(part) for part in parts])


def payload_buffer(block: Block) -> pa.Buffer:
    """Returns the buffer that a block's payloads lie in."""
    return written_payloads(block.payloads).buffers()[2] or pa.py_buffer(b"")


def find_rows(keys: U64, counts: Sequence[int], task: ShardTask) -> slice:
    """Returns where a shard's rows are among those sorted by (split, key).

    Args:
      keys: order key of each row.
      counts: rows of each split.
      task: the shard.
    """
    begin = sum(counts[: task.split_index])
    end = begin + counts[task.split_index]
    found = keys[begin:end]
    first = begin + int(np.searchsorted(found, np.uint64(task.low)))
    if task.high < 1 << 64:
        end = begin + int(np.searchsorted(found, np.uint64(task.high)))
    return slice(first, end)


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


# A piece is a body of bytes, or a slice of one, whose records are sorted by order key. A
# shard's records lie in many pieces; of equal keys the earlier piece comes first, so the
# order is total. Every exchange ends here; they differ only in where the bodies are: in
# files, or in memory, where records need not be sorted. Each record is copied once.
#
# Two bodies with the records a, b (keys 2, 5) and c, d (keys 1, 3), windows of 2 records:
#
#     keys      [2, 5, 1, 3]                        of a, b, c, d
#     order     [2, 0, 3, 1]                        c, a, d, b
#     windows   [2, 0] and [3, 1]
#     window 0  stored order [0, 2]: a, c           one slice of each file is read
#               places of c, a                      and both are copied in order
#     window 1  stored order [1, 3]: b, d           places of d, b

WINDOW_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Bodies:
    """The bodies that pieces lie in: first those in files, then those in memory.

    Attributes:
      held: those in memory.
      files: number of those in files.
      read_into: (number, buffer, byte offset) fills the buffer from one in a file.
    """

    held: Sequence[pa.Buffer | bytes]
    files: int = 0
    read_into: Callable[[int, memoryview, int], None] | None = None


@dataclass(frozen=True, slots=True)
class Pieces:
    """The locations of records, piece after piece; arrays have one entry per record.

    Attributes:
      body_of: number of the body; ascending where the body is in a file.
      starts: byte offset of the record in its body.
      lengths: bytes of the record.
      planned_bytes: planned bytes of the record, which limit the size of windows.
      keys: order key of the record.
    """

    body_of: I64
    starts: U64
    lengths: I64
    planned_bytes: U64
    keys: U64

    @classmethod
    def joined(cls, pieces: Sequence[Pieces]) -> Pieces:
        """Joins pieces in their order."""
        if not pieces:
            none, nothing = np.zeros(0, np.int64), np.zeros(0, np.uint64)
            return cls(none, nothing, none, nothing, nothing)
        return cls(
            np.concatenate([piece.body_of for piece in pieces]),
            np.concatenate([piece.starts for piece in pieces]),
            np.concatenate([piece.lengths for piece in pieces]),
            np.concatenate([piece.planned_bytes for piece in pieces]),
            np.concatenate([piece.keys for piece in pieces]),
        )


def merge_windows(
    pieces: Pieces,
    bodies: Bodies,
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """Yields the payloads in order, in windows.

    Args:
      pieces: all pieces of a shard.
      bodies: where the records are.
      window_bytes: planned bytes of a window; a single record may be larger.
      break_ties_by_content: whether records with equal keys are ordered by their bytes
        instead of the order of their pieces.
    """
    order = stable_order(pieces.keys)
    keys = pieces.keys[order]
    ends = np.cumsum(pieces.planned_bytes[order])
    starts = [0]
    while starts[-1] < len(order):
        before = ends[starts[-1] - 1] if starts[-1] else np.uint64(0)
        limit = before + np.uint64(window_bytes)
        stop = max(starts[-1] + 1, int(np.searchsorted(ends, limit, side="right")))
        if break_ties_by_content and stop < len(order):
            stop = _before_tie(keys, starts[-1], stop)
        starts.append(stop)
    windows = [order[a:b] for a, b in pairwise(starts)]
    groups = _read_together(windows, pieces.lengths, window_bytes)
    read = partial(
        _read_windows, pieces, bodies, break_ties_by_content=break_ties_by_content
    )
    # The next windows are read while the caller works on these.
    for records in ahead(groups, read, 1, most=1):
        yield from records


def _read_together(
    windows: Sequence[I64], lengths: I64, most_bytes: int
) -> Iterator[list[I64]]:
    """Yields windows that follow each other, together of so many bytes at most.

    References are a thousandth of what is planned for their records. To read those of one
    window after the other, some from each body, took 7 us for each image.
    """
    group: list[I64] = []
    num_bytes = 0
    for window in windows:
        size = int(lengths[window].sum())
        if group and num_bytes + size > most_bytes:
            yield group
            group, num_bytes = [], 0
        group.append(window)
        num_bytes += size
    if group:
        yield group


def _before_tie(keys: U64, start: int, stop: int) -> int:
    """Returns an end at or before `stop` that does not separate equal keys.

    Equal keys that fill more than a window are separated: only equal records can have
    so many, and their order does not matter.
    """
    first = int(np.searchsorted(keys, keys[stop]))
    return first if first > start else stop


def _read_windows(
    pieces: Pieces,
    bodies: Bodies,
    windows: Sequence[I64],
    *,
    break_ties_by_content: bool,
) -> list[pa.BinaryArray]:
    """Reads windows that follow each other, and orders their records."""
    window = np.concatenate(windows)
    records = _read_window(pieces, bodies, window)
    if break_ties_by_content:
        records = _order_ties(records, pieces.keys[window])
    ends = np.cumsum([len(window) for window in windows]).tolist()
    return [records.slice(start, end - start) for start, end in pairwise([0, *ends])]


def _read_window(pieces: Pieces, bodies: Bodies, window: I64) -> pa.BinaryArray:
    """Returns the records of a window, in the order of their keys.

    Args:
      pieces: all pieces of a shard.
      bodies: where the records are.
      window: indices of the records in `pieces`, in the order of their keys.
    """
    if not bodies.held:
        stored, positions = _read_files(pieces, bodies, window)
        if bool(np.all(positions[:-1] < positions[1:])):
            return stored
        return stored.take(pa.array(positions))
    # The places of all records, then one copy of each: buffer 0 has those of files.
    used, body_of = np.unique(pieces.body_of[window], return_inverse=True)
    in_memory = used >= bodies.files
    is_held = in_memory[body_of]
    buffers = [pa.py_buffer(b"")]
    starts = pieces.starts[window].astype(np.int64)
    if not is_held.all():
        stored, positions = _read_files(pieces, bodies, window[~is_held])
        offsets, data = array_parts(stored)
        starts[~is_held] = offsets[positions]
        buffers = [pa.py_buffer(data)]
    for number in used[in_memory].tolist():
        buffers.append(pa.py_buffer(bodies.held[number - bodies.files]))
    buffer_of = np.where(in_memory, np.cumsum(in_memory), 0)  # in files: 0
    places = views_at(buffers, buffer_of[body_of], starts, pieces.lengths[window])
    return places.cast(pa.binary())


def _read_files(
    pieces: Pieces, bodies: Bodies, window: I64
) -> tuple[pa.BinaryArray, I64]:
    """Reads records from files, one contiguous slice of each.

    Returns:
      The records as they are stored, and the index there of each record of the window.
    """
    # The records of one body are contiguous, because bodies and windows are sorted.
    by_place = np.argsort(window)
    stored_order = window[by_place]
    offsets = offsets_of(pieces.lengths[stored_order])
    buffer = empty_bytes(int(offsets[-1]))
    body_of = pieces.body_of[stored_order]
    firsts = np.flatnonzero(np.diff(body_of, prepend=-1))
    for first, end in zip(firsts, [*firsts[1:], len(window)], strict=True):
        target = buffer.data[offsets[first] : offsets[end]]
        offset = int(pieces.starts[stored_order[first]])
        assert bodies.read_into is not None
        bodies.read_into(int(body_of[first]), target, offset)
    positions = np.empty(len(window), np.int64)
    positions[by_place] = np.arange(len(window))
    return binary_array(offsets, buffer), positions


def _order_ties(records: pa.BinaryArray, keys: U64) -> pa.BinaryArray:
    """Orders records with equal keys by their bytes.

    Args:
      records: by ascending key.
      keys: order keys of the records.
    """
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
