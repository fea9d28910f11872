"""Merges the pieces of a shard by order key, in windows of bounded size.

A piece is a body of bytes, or a slice of one, whose records are sorted by order key. A
shard's records lie in many pieces; of equal keys the earlier piece comes first, so the
order is total. Every exchange ends here; they differ only in where the bodies are.

Two bodies with the records a, b (keys 2, 5) and c, d (keys 1, 3), windows of 2 records:

    keys      [2, 5, 1, 3]                        of a, b, c, d
    order     [2, 0, 3, 1]                        c, a, d, b
    windows   [2, 0] and [3, 1]
    window 0  stored order [0, 2]: a, c           one slice of each body is read
              positions [1, 0]: c, a              and put in order
    window 1  stored order [1, 3]: b, d           positions [1, 0]: d, b
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.transforms.arrow import I64, U64, binary_array, offsets_of

WINDOW_BYTES = 8 << 20

ReadInto = Callable[[int, memoryview, int], None]
"""Fills a buffer from the body with this number, beginning at this byte offset."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """The locations of records, piece after piece; arrays have one entry per record.

    Attributes:
      body_of: number of the body, ascending.
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
    read_into: ReadInto,
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """Yields the payloads in order, in windows.

    Args:
      pieces: all pieces of a shard.
      read_into: reads the bodies' bytes.
      window_bytes: planned bytes of a window; a single record may be larger.
      break_ties_by_content: whether records with equal keys are ordered by their bytes
        instead of the order of their pieces.
    """
    order = np.argsort(pieces.keys, kind="stable")
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
    groups = list(_read_together(windows, pieces.lengths, window_bytes))
    read = partial(
        _read_windows, pieces, read_into, break_ties_by_content=break_ties_by_content
    )
    if len(groups) < 2:
        for group in groups:
            yield from read(group)
        return
    # The next windows are read while the caller works on these.
    with ThreadPoolExecutor(1, "read-ahead") as pool:
        pending = pool.submit(read, groups[0])
        for group in groups[1:]:
            records, pending = pending.result(), pool.submit(read, group)
            yield from records
        yield from pending.result()


def _read_together(
    windows: Sequence[I64], lengths: I64, most_bytes: int
) -> Iterator[list[I64]]:
    """Yields windows that follow each other, together of so many bytes at most.

    References are a thousandth of what is planned for their records. To read those of one
    window after the other, some from each body, took 7 us for each picture.
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
    read_into: ReadInto,
    windows: Sequence[I64],
    *,
    break_ties_by_content: bool,
) -> list[pa.BinaryArray]:
    """Reads windows that follow each other, and orders their records."""
    records = _read_window(
        pieces,
        read_into,
        np.concatenate(windows),
        break_ties_by_content=break_ties_by_content,
    )
    ends = np.cumsum([len(window) for window in windows]).tolist()
    return [records.slice(start, end - start) for start, end in pairwise([0, *ends])]


def _read_window(
    pieces: Pieces, read_into: ReadInto, window: I64, *, break_ties_by_content: bool
) -> pa.BinaryArray:
    """Reads a window, one contiguous slice from each body, and orders its records.

    Args:
      pieces: all pieces of a shard.
      read_into: reads the bodies' bytes.
      window: indices of the records in `pieces`, in the order of their keys.
      break_ties_by_content: see merge_windows.
    """
    # The records of one body are contiguous, because bodies and windows are sorted.
    stored_order = np.sort(window)
    offsets = offsets_of(pieces.lengths[stored_order])
    buffer = np.empty(int(offsets[-1]), np.uint8)
    body_of = pieces.body_of[stored_order]
    firsts = np.flatnonzero(np.diff(body_of, prepend=-1))
    for first, end in zip(firsts, [*firsts[1:], len(window)], strict=True):
        target = buffer.data[offsets[first] : offsets[end]]
        read_into(int(body_of[first]), target, int(pieces.starts[stored_order[first]]))
    stored = binary_array(offsets, buffer)
    positions = np.searchsorted(stored_order, window)
    if break_ties_by_content:
        _order_ties(stored, positions, pieces.keys[window])
    if bool(np.all(positions[:-1] < positions[1:])):
        return stored
    return stored.take(pa.array(positions))


def _order_ties(stored: pa.BinaryArray, positions: I64, keys: U64) -> None:
    """Orders records with equal keys by their bytes.

    Args:
      stored: the records.
      positions: index of each record in `stored`, by ascending key; changed in place.
      keys: order keys of the records, ascending.
    """
    tied = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(tied):
        return
    for group in np.split(tied, np.flatnonzero(np.diff(tied) > 1) + 1):
        tie = slice(int(group[0]), int(group[-1]) + 2)
        positions[tie] = sorted(
            positions[tie].tolist(), key=lambda index: stored[index].as_py()
        )
