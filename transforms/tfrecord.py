"""Frames, reads and verifies TFRecords, without TensorFlow.

    u64 length | u32 masked crc of length | data | u32 masked crc of data

All numbers are little-endian. No bytes precede the first record or follow the last one. A
compressed file is the whole stream through gzip. A masked crc is ((crc >> 15) |
(crc << 17)) + 0xa282ead8 of the CRC-32C (Castagnoli). The record "abc":

    03 00 00 00 00 00 00 00 | b0 99 49 0e | 61 62 63 | 6e 57 f1 21

A frame has its length only at its start, so the next frame is found from the end of the
previous one. If the data of a record is damaged, only that record is skipped. If a length
is damaged, each later byte is tried as the start of a frame: its length must fit, and
both of its checksums must be right. The bytes in between are lost.

Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.text import format_count
from recordmill.transforms import native
from recordmill.transforms.arrow import (
    I64,
    U8,
    array_parts,
    binary_array,
    extract_binary,
)
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.native.numpy_loops import length_crcs, unaligned_rows

HEAD_BYTES = numpy_loops.HEAD_BYTES  # length and its checksum
TAIL_BYTES = numpy_loops.TAIL_BYTES  # the data's checksum
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
MAX_EXAMPLE_BYTES = (1 << 31) - 1  # protobuf's limit for any message

MAX_FRAMES = 1 << 17  # maximum number of frames that one search finds
_BYTES_PER_TRY = 1 << 18  # bytes that are tried together as starts of frames

crc32c = numpy_loops.crc32c
mask = numpy_loops.mask_crc


def frame_records(framed: pa.BinaryArray) -> None:
    """Writes lengths and checksums into the free bytes around every example.

    Rows are 12 free bytes, the example, 4 free bytes. The buffer is changed in place, so
    no other array may use it.
    """
    if len(framed) == 0:
        return
    offsets, buffer = array_parts(framed)
    native.loops.seal(buffer, offsets)


def check_frames(framed: pa.BinaryArray, location: str) -> None:
    """Checks the length and both checksums of records that were read from scratch.

    Raises:
      RecordmillError: a record is damaged.
    """
    offsets, buffer = array_parts(framed)
    damaged = damaged_frame(buffer, offsets[:-1], np.diff(offsets))
    if damaged is not None:
        raise RecordmillError(
            f"{location}: record {damaged} was damaged in scratch, perhaps by a faulty disk "
            "or memory. Remove the scratch folder and run again"
        )


def damaged_frame(buffer: U8, starts: I64, lengths: I64) -> int | None:
    """Returns the index of the first frame whose length or checksums are wrong, or None.

    Frames have at least 16 bytes and may be anywhere in the buffer.
    """
    frame_index = native.loops.first_damaged_frame(
        buffer, np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
    )
    return None if frame_index < 0 else frame_index


def find_frames(data: U8, at: int = 0) -> I64:
    """Returns the starts of consecutive frames, and the end of the last one.

    Only the heads of the frames are checked, from `at` on. The search ends before a frame
    that is not completely in the data or whose length is damaged, and after MAX_FRAMES.
    """
    starts = np.empty(min(MAX_FRAMES, len(data) // FRAME_BYTES) + 1, np.int64)
    count = native.loops.find_frames(data, at, starts)
    return starts[: count + 1]


def is_head(head: bytes | memoryview) -> bool:
    """Checks whether bytes begin with a length and its checksum."""
    if len(head) < HEAD_BYTES:
        return False
    stored_crc = int.from_bytes(head[8:HEAD_BYTES], "little")
    return stored_crc == mask(crc32c(head[:8]))


def frame_bytes(head: bytes | memoryview) -> int:
    """Returns the size in bytes of the frame that begins with a head."""
    return int.from_bytes(head[:8], "little") + FRAME_BYTES


def find_whole_frame(data: U8, at: int) -> tuple[int | None, int]:
    """Finds the first frame with correct checksums at or after an offset.

    Returns:
      The start of the frame, or None; and the number of bytes that must be read to
        check every possible frame that begins in the data (0 if the data is enough).
    """
    needed = 0
    last = len(data) - FRAME_BYTES
    while at <= last:
        stop = min(at + _BYTES_PER_TRY, last + 1)
        heads = unaligned_rows(data, numpy_loops.HEAD)[at:stop]
        few = np.flatnonzero(heads["length"] <= MAX_EXAMPLE_BYTES)
        likely = heads[few]
        lengths = likely["length"].astype(np.int64)
        right = likely["crc"] == length_crcs(lengths)
        # A head occurs by chance once in 4 GB of small lengths.
        for begin, length in zip(
            (few[right] + at).tolist(), lengths[right].tolist(), strict=True
        ):
            end = begin + length + FRAME_BYTES
            if end > len(data):
                needed = max(needed, end)
            elif (
                damaged_frame(data, np.array([begin]), np.array([end - begin])) is None
            ):
                return begin, needed
        at = stop
    return None, needed


WINDOW_BYTES = 4 << 20  # bytes that are read together; a record may be larger
SEARCH_BYTES = 1 << 20  # searched at first for the next whole frame; then more
MAX_SEARCH_BYTES = 64 << 20  # after that, the remaining bytes of the file are skipped
_MAX_FRAME_BYTES = MAX_EXAMPLE_BYTES + FRAME_BYTES  # of a frame

# The bytes after some frames: none, too few to decide, a head, or damage.
_State = Literal["done", "more", "head", "broken"]


class LostBytes(NamedTuple):
    """A span of bytes without a whole record: offset, reason and its first bytes."""

    offset: int
    reason: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """A window of consecutive frames of a file."""

    offset: int  # of the data, in the (unpacked) file
    data: U8  # bytes of the file
    starts: I64  # start of each whole frame in the data
    lengths: I64  # bytes of each whole frame
    lost: tuple[LostBytes, ...] = ()  # damaged spans between and after the frames

    @property
    def offsets(self) -> I64:
        """Returns the offset of each frame in the (unpacked) file."""
        return self.starts + self.offset

    def frames(self) -> pa.BinaryArray:
        """Returns the frames; they are not copied if none is lost between them."""
        ends = self.starts + self.lengths
        if len(ends) and (self.starts[1:] == ends[:-1]).all():
            return binary_array(np.append(self.starts, ends[-1]), self.data)
        return extract_binary(self.data, self.starts, self.lengths)

    def records(self) -> pa.BinaryArray:
        """Returns the data of the frames."""
        starts, lengths = self.starts + HEAD_BYTES, self.lengths - FRAME_BYTES
        return extract_binary(self.data, starts, lengths)

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns the offset and the bytes of a frame."""
        start = int(self.starts[row])
        return self.offset + start, bytes(
            self.data[start : start + int(self.lengths[row])]
        )


ReadPart = Callable[[int, int], bytes]
"""Reads the bytes from a start to a stop of the (unpacked) file; fewer at its end."""


def read_frames(
    read: ReadPart,
    start: int,
    stop: int | None,
    window_bytes: int = WINDOW_BYTES,
    *,
    is_cut: bool = False,
    searches: bool = True,
) -> Iterator[FrameWindow]:
    """Yields all frames that begin in a range of a file.

    A record may be larger than a window.

    Args:
      read: reads bytes of the (unpacked) file.
      start: offset of the first frame.
      stop: end of the range; None for the end of the file.
      window_bytes: bytes that are read together.
      is_cut: the file may end within a frame.
      searches: search for the next frame after a damaged length; otherwise stop there.
    """
    at, needed = start, 0
    while stop is None or at < stop:
        limit = at + window_bytes if stop is None else min(at + window_bytes, stop)
        limit = max(limit, at + needed)
        data = np.frombuffer(read(at, limit), np.uint8)
        if not len(data):
            return
        edges = find_frames(data)
        if stop is not None:  # frames that begin after `stop` belong to the next range
            edges = edges[: int(np.searchsorted(edges[:-1], stop - at)) + 1]
        good = _whole_frames(data, edges)
        is_end = len(data) < limit - at
        state = _next_state(data, int(edges[-1]), at, stop, is_end=is_end)
        if len(good) and not good[-1] and state in ("more", "broken"):
            # Its length may be wrong: only the head of the next frame can confirm it.
            if state == "more" and len(good) == 1:
                needed = int(edges[-1]) + HEAD_BYTES
                continue
            edges, good = edges[:-1], good[:-1]
        end = int(edges[-1])
        window = _window(at, data, edges, good)
        if state == "broken" and not (is_cut and is_end):
            lost = LostBytes(at + end, frame_problem(data[end:], len(data) - end), b"")
            following = None
            if searches:
                lost, following = _find_next_frame(read, at + end, stop)
            yield replace(window, lost=(*window.lost, lost))
            if following is None:
                return
            at, needed = following, 0
            continue
        if end:
            yield window
        if state in ("done", "broken"):
            return
        at, next_head = at + end, data[end : end + HEAD_BYTES].data
        needed = HEAD_BYTES if len(next_head) < HEAD_BYTES else frame_bytes(next_head)


def _next_state(
    data: U8, end: int, at: int, stop: int | None, *, is_end: bool
) -> _State:
    """Returns the state of the bytes after the frames, which end at `end`."""
    remaining_bytes = data[end:]
    if (stop is not None and at + end >= stop) or (is_end and not len(remaining_bytes)):
        return "done"
    if len(remaining_bytes) < HEAD_BYTES:
        return "broken" if is_end else "more"
    head = remaining_bytes[:HEAD_BYTES].data
    size = frame_bytes(head)
    if (
        not is_head(head)
        or size > _MAX_FRAME_BYTES
        or (is_end and size > len(remaining_bytes))
    ):
        return "broken"
    return "head"


def _whole_frames(data: U8, edges: I64) -> npt.NDArray[np.bool_]:
    """Returns a mask of the frames whose data has the right checksum."""
    starts, lengths = edges[:-1], np.diff(edges)
    good, at = np.ones(len(starts), np.bool_), 0
    while (damaged_index := damaged_frame(data, starts[at:], lengths[at:])) is not None:
        good[at + damaged_index] = False
        at += damaged_index + 1
    return good


def _window(
    offset: int, data: U8, edges: I64, good: npt.NDArray[np.bool_]
) -> FrameWindow:
    starts, lengths = edges[:-1], np.diff(edges)
    lost = []
    for row in np.flatnonzero(~good).tolist():
        start, stop = edges[row : row + 2].tolist()
        raw = data[start:stop]
        lost.append(LostBytes(offset + start, frame_problem(raw), bytes(raw)))
    return FrameWindow(offset, data, starts[good], lengths[good], tuple(lost))


def _find_next_frame(
    read: ReadPart, at: int, stop: int | None
) -> tuple[LostBytes, int | None]:
    """Returns the bytes lost before the next whole frame, and its offset or None."""
    span = SEARCH_BYTES
    while True:
        data = np.frombuffer(read(at, at + span), np.uint8)
        if stop is not None:
            data = data[: stop - at]
        is_end = len(data) < span
        frame_start, needed = find_whole_frame(data, 1)
        if needed > len(data) and not is_end and needed <= _MAX_FRAME_BYTES + span:
            span = max(2 * span, needed)  # a frame may begin before the one found
            continue
        if frame_start is not None:
            reason = (
                f"{frame_problem(data[:frame_start])}; reading continues {frame_start:,} bytes later, "
                "where the next whole record begins"
            )
            return LostBytes(at, reason, bytes(data[:frame_start])), at + frame_start
        if is_end or span >= MAX_SEARCH_BYTES:
            break
        span *= 2
    lost = len(data)
    while more := len(read(at + lost, at + lost + SEARCH_BYTES)):
        lost += more
        if stop is not None and at + lost >= stop:
            break
    if stop is not None:
        lost = stop - at
    problem = frame_problem(data, lost)
    reason = f"{problem}; no whole record follows: {lost:,} bytes are lost"
    return LostBytes(at, reason, bytes(data)), None


def frame_problem(data: U8, left: int | None = None) -> str:
    """Returns a description of the damage of the frame at the start of some bytes.

    `left` is the number of bytes up to the end of the file, if known.
    """
    head = data[:HEAD_BYTES].data
    if len(head) < HEAD_BYTES:
        return (
            f"the file ends {format_count(len(data), 'byte')} after the start of a record, which "
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
    return f"the checksum of the record's {length:,} bytes is wrong: they are damaged"
