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

from transforms.encode.wire import I64, U64, binary_array

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
      weights: planned bytes of the record, by which windows are filled.
      keys: order key of the record.
    """

    body_of: I64
    starts: U64
    lengths: I64
    weights: U64
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
            np.concatenate([piece.weights for piece in pieces]),
            np.concatenate([piece.keys for piece in pieces]),
        )


def windows_of(
    pieces: Pieces, read_into: ReadInto, window_bytes: int = WINDOW_BYTES
) -> Iterator[pa.BinaryArray]:
    """The payloads in order, a window at a time.

    Args:
      pieces: all of a shard.
      read_into: gives the bodies' bytes.
      window_bytes: planned bytes of a window; one record may be more.
    """
    order = np.argsort(pieces.keys, kind="stable")
    ends = np.cumsum(pieces.weights[order])
    starts = [0]
    while starts[-1] < len(order):
        before = ends[starts[-1] - 1] if starts[-1] else np.uint64(0)
        limit = before + np.uint64(window_bytes)
        starts.append(
            max(starts[-1] + 1, int(np.searchsorted(ends, limit, side="right")))
        )
    windows = [order[a:b] for a, b in pairwise(starts)]
    if len(windows) < 2:
        for wanted in windows:
            yield _read_window(pieces, read_into, wanted)
        return
    # The next window is read while the caller works on this one.
    with ThreadPoolExecutor(1, "read-ahead") as ahead:
        read = partial(_read_window, pieces, read_into)
        coming = ahead.submit(read, windows[0])
        for wanted in windows[1:]:
            window, coming = coming.result(), ahead.submit(read, wanted)
            yield window
        yield coming.result()


def _read_window(pieces: Pieces, read_into: ReadInto, wanted: I64) -> pa.BinaryArray:
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
    if bool(np.all(wanted[:-1] < wanted[1:])):
        return stored
    return stored.take(pa.array(np.searchsorted(in_storage, wanted)))
