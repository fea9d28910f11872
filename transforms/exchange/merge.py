"""The records of a shard in order key order, in windows of bounded size.

A piece is a body of bytes, or a slice of one, whose records are sorted by order key.
A shard's records lie in many pieces; a tie goes to the earlier piece, so the order is
total. Every exchange ends here: they differ only in where the bodies are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.transforms.arrow import I64, U64, binary_array

WINDOW_BYTES = 8 << 20

ReadInto = Callable[[int, memoryview, int], None]
"""Fills a buffer from the body of that number, from that byte offset on."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where records lie; arrays have one entry per record, piece after piece.

    Attributes:
      body_of: number of the body, rising.
      starts: byte offset of the record in its body.
      lengths: bytes of the record.
      planned_bytes: planned bytes of the record, by which windows are filled.
      keys: order key of the record.
    """

    body_of: I64
    starts: U64
    lengths: I64
    planned_bytes: U64
    keys: U64

    @classmethod
    def joined(cls, pieces: Sequence[Pieces]) -> Pieces:
        """All records of several pieces, in their order."""
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


def windows_of(
    pieces: Pieces,
    read_into: ReadInto,
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """The payloads in order, a window at a time.

    Args:
      pieces: all of a shard.
      read_into: gives the bodies' bytes.
      window_bytes: planned bytes of a window; one record may be more.
      break_ties_by_content: whether records with equal keys are ordered by their bytes, not by
        where they come from.
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
    read = partial(
        _read_window, pieces, read_into, break_ties_by_content=break_ties_by_content
    )
    if len(windows) < 2:
        for wanted in windows:
            yield read(wanted)
        return
    # The next window is read while the caller works on this one.
    with ThreadPoolExecutor(1, "read-ahead") as ahead:
        coming = ahead.submit(read, windows[0])
        for wanted in windows[1:]:
            window, coming = coming.result(), ahead.submit(read, wanted)
            yield window
        yield coming.result()


def _before_tie(keys: U64, start: int, stop: int) -> int:
    """An end at or before `stop` that parts no equal keys.

    Equal keys that fill more than a window are parted: so many can only be those of
    equal records, which need no order.
    """
    first = int(np.searchsorted(keys, keys[stop]))
    return first if first > start else stop


def _read_window(
    pieces: Pieces, read_into: ReadInto, wanted: I64, *, break_ties_by_content: bool
) -> pa.BinaryArray:
    """Reads one contiguous slice of every body concerned; puts records in order."""
    # Within a body the wanted records lie side by side, because both are sorted.
    in_storage = np.sort(wanted)
    lengths = pieces.lengths[in_storage]
    offsets = np.zeros(len(wanted) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffer = np.empty(int(offsets[-1]), np.uint8)
    whole = buffer.data
    body_of = pieces.body_of[in_storage]
    firsts = np.flatnonzero(np.diff(body_of, prepend=-1))
    for first, end in zip(firsts, [*firsts[1:], len(wanted)], strict=True):
        target = whole[offsets[first] : offsets[end]]
        read_into(int(body_of[first]), target, int(pieces.starts[in_storage[first]]))
    stored = binary_array(offsets, buffer)
    places = np.searchsorted(in_storage, wanted)
    if break_ties_by_content:
        _order_ties(stored, places, pieces.keys[wanted])
    if bool(np.all(places[:-1] < places[1:])):
        return stored
    return stored.take(pa.array(places))


def _order_ties(stored: pa.BinaryArray, places: I64, keys: U64) -> None:
    """Puts records with equal keys in the order of their bytes.

    Args:
      stored: the records.
      places: where the records lie in `stored`, by rising key; changed in place.
      keys: of the records, rising.
    """
    tied = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(tied):
        return
    for group in np.split(tied, np.flatnonzero(np.diff(tied) > 1) + 1):
        mine = slice(int(group[0]), int(group[-1]) + 2)
        places[mine] = sorted(
            places[mine].tolist(), key=lambda place: stored[place].as_py()
        )
