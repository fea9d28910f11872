"""Reads the frames of a range in windows; damage costs the records that it touches.

A record whose data is damaged is left out by itself, as its length tells where the next
one begins. Where a length is damaged, reading goes on at the next place where a frame has
both checksums right; what lies between is lost, and told as one reject.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa

from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64, U8, binary_array
from recordmill.transforms.find_frames import (
    find_frames,
    find_whole_frame,
    frame_bytes,
    is_head,
)
from recordmill.transforms.sources.tfrecord.file_bytes import FileBytes
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    MAX_EXAMPLE_BYTES,
    damaged_frame,
)

WINDOW_BYTES = 8 << 20
SEARCH_BYTES = 1 << 20  # searched at first for the next whole frame; then more
MOST_SEARCHED = 64 << 20  # then the rest of the file is given up
_MOST_BYTES = MAX_EXAMPLE_BYTES + FRAME_BYTES  # of a frame

_State = Literal["done", "more", "head", "broken"]
"""What follows some frames: nothing, what must be read first, a head, or damage."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes that are no whole record.

    Attributes:
      offset: of the first of them, in the (unpacked) file.
      reason: what was found and what was expected.
      raw: the bytes, or the first of them.
    """

    offset: int
    reason: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """Frames that follow each other in a file.

    Attributes:
      offset: of the data, in the (unpacked) file.
      data: bytes of the file.
      starts: where each whole frame begins in the data.
      lengths: their bytes.
      lost: what is lost between and behind them.
    """

    offset: int
    data: U8
    starts: I64
    lengths: I64
    lost: tuple[Lost, ...] = ()

    @property
    def offsets(self) -> I64:
        """Returns where each frame begins in the (unpacked) file."""
        return self.starts + self.offset

    def records(self) -> pa.BinaryArray:
        """Returns the frames; not copied, if none is lost between them."""
        ends = self.starts + self.lengths
        if not len(self.starts):
            return pa.array([], pa.binary())
        if (self.starts[1:] == ends[:-1]).all():
            return binary_array(np.append(self.starts, ends[-1]), self.data)
        # Rows that stand for what is lost: frame, gap, frame, gap, ...
        edges = np.column_stack([self.starts, ends]).ravel()
        kept = pa.array(np.arange(0, len(edges), 2))
        return binary_array(edges, self.data).take(kept)

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns the offset and the bytes of a frame."""
        start = int(self.starts[row])
        return self.offset + start, bytes(
            self.data[start : start + int(self.lengths[row])]
        )


def read_frames(
    file: FileBytes, start: int, stop: int | None, window_bytes: int = WINDOW_BYTES
) -> Iterator[FrameWindow]:
    """Yields all frames that begin in a range.

    Args:
      file: its bytes.
      start: where a frame begins.
      stop: where the range ends, or None for the file's end.
      window_bytes: of a window; a single record may be larger.
    """
    at, needed = start, 0
    while stop is None or at < stop:
        limit = at + window_bytes if stop is None else min(at + window_bytes, stop)
        limit = max(limit, at + needed)
        data = np.frombuffer(file.read(at, limit), np.uint8)
        if not len(data):
            return
        edges = find_frames(data)
        if stop is not None:  # frames that begin behind the range are another one's
            edges = edges[: int(np.searchsorted(edges[:-1], stop - at)) + 1]
        good = _whole_frames(data, edges)
        is_end = len(data) < limit - at
        state = _state(data, int(edges[-1]), at, stop, is_end=is_end)
        if good and not good[-1] and state in ("more", "broken"):
            # Its length may be wrong, too: what begins behind it tells.
            if state == "more" and len(good) == 1:
                needed = int(edges[-1]) + HEAD_BYTES
                continue
            edges, good = edges[:-1], good[:-1]
        end = int(edges[-1])
        window = _window(at, data, edges, good)
        if state == "broken" and not (file.is_cut and is_end):
            lost, following = _search(file, at + end, stop)
            yield replace(window, lost=(*window.lost, lost))
            if following is None:
                return
            at, needed = following, 0
            continue
        if end:
            yield window
        if state in ("done", "broken"):
            return
        at += end
        needed = _needed(data[end:])


def _state(data: U8, end: int, at: int, stop: int | None, *, is_end: bool) -> _State:
    """Tells what follows the frames that were found in some bytes.

    Args:
      data: the bytes.
      end: where the last frame ends in them.
      at: where they begin in the file.
      stop: where the range ends, or None.
      is_end: whether the file ends with them.
    """
    rest = data[end:]
    if (stop is not None and at + end >= stop) or (is_end and not len(rest)):
        return "done"
    if len(rest) < HEAD_BYTES:
        return "broken" if is_end else "more"
    head = rest[:HEAD_BYTES].data
    size = frame_bytes(head)
    if not is_head(head) or size > _MOST_BYTES or (is_end and size > len(rest)):
        return "broken"
    return "head"


def _needed(rest: U8) -> int:
    """Returns how many bytes must be read at least, from where a frame begins."""
    if len(rest) < HEAD_BYTES:
        return HEAD_BYTES
    return frame_bytes(rest[:HEAD_BYTES].data)


def _whole_frames(data: U8, edges: I64) -> list[bool]:
    """Returns of each frame whether its data has the right checksum."""
    starts, lengths = edges[:-1], np.diff(edges)
    good = [True] * len(starts)
    at = 0
    while True:
        found = damaged_frame(data, starts[at:], lengths[at:])
        if found is None:
            return good
        good[at + found] = False
        at += found + 1


def _window(offset: int, data: U8, edges: I64, good: list[bool]) -> FrameWindow:
    starts, lengths = edges[:-1], np.diff(edges)
    if all(good):
        return FrameWindow(offset, data, starts, lengths)
    mask = np.array(good, np.bool_)
    lost = tuple(
        Lost(
            offset + start,
            f"the checksum of the record's {length - FRAME_BYTES:,} bytes is wrong: they "
            "are damaged",
            bytes(data[start : start + length]),
        )
        for start, length in zip(
            starts[~mask].tolist(), lengths[~mask].tolist(), strict=True
        )
    )
    return FrameWindow(offset, data, starts[mask], lengths[mask], lost)


def _search(file: FileBytes, at: int, stop: int | None) -> tuple[Lost, int | None]:
    """Searches for the next whole frame behind damage.

    Returns:
      What is lost, and where reading goes on; None: nowhere.
    """
    span = SEARCH_BYTES
    while True:
        data = np.frombuffer(file.read(at, at + span), np.uint8)
        if stop is not None:
            data = data[: stop - at]
        is_end = len(data) < span
        found, needed = find_whole_frame(data, 1)
        if needed > len(data) and not is_end and needed <= _MOST_BYTES + span:
            span = max(2 * span, needed)  # one that may begin before what was found
            continue
        if found is not None:
            reason = (
                f"{_what(data[:found])}; reading goes on {found:,} bytes later, where the "
                "next whole record begins"
            )
            return Lost(at, reason, bytes(data[:found])), at + found
        if is_end or span >= MOST_SEARCHED:
            break
        span *= 2
    lost = len(data)
    while more := len(file.read(at + lost, at + lost + SEARCH_BYTES)):
        lost += more
        if stop is not None and at + lost >= stop:
            break
    if stop is not None:
        lost = stop - at
    reason = f"{_what(data, lost)}; no whole record follows: {lost:,} bytes are lost"
    return Lost(at, reason, bytes(data)), None


def _what(data: U8, left: int | None = None) -> str:
    """Returns what is wrong with a frame."""
    head = data[:HEAD_BYTES].data
    if len(head) < HEAD_BYTES:
        return (
            f"the file ends {count(len(data), 'byte')} after the start of a record, which "
            f"begins with {HEAD_BYTES}"
        )
    if not is_head(head):
        return "the checksum of the record's length is wrong"
    length = frame_bytes(head) - FRAME_BYTES
    if length > MAX_EXAMPLE_BYTES:
        return (
            f"the record has {length:,} bytes, expected at most {MAX_EXAMPLE_BYTES:,}"
        )
    if left is not None and left < length + FRAME_BYTES:
        return (
            f"the file ends {left:,} bytes after the start of a record of "
            f"{length + FRAME_BYTES:,}"
        )
    return f"the checksum of the record's {length:,} bytes is wrong, and none begins behind"
