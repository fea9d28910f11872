"""Reads the frames of TFRecord files: in windows, by reference, or only to cut a file.

A record whose data is damaged is left out by itself, as its length tells where the next
one begins. Where a length is damaged, reading goes on at the next place where a frame has
both checksums right; what lies between is lost, and becomes one reject.

A reference has 16 bytes, little-endian:

    file u32 | frame bytes u32 | offset u64
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import InputFile, Seen
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64, U8, array_parts, binary_array, offsets_of
from recordmill.transforms.sources.base import FRAMED, ReferencedRows
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import (
    LocalInput,
    is_local,
    open_input,
    open_stream,
    read_range,
)
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    MAX_EXAMPLE_BYTES,
    TAIL_BYTES,
    damaged_frame,
    find_frames,
    find_whole_frame,
    frame_bytes,
    is_head,
)

_LOOKED_AT = 1 << 12  # bytes at a file's start that tell what it is
_GZIP_OR_ZLIB = 47  # zlib's window of either, told by the header


def open_range(input_range: InputRange, storage: StorageOptions) -> InputStream:
    """Opens a range; whether its file is compressed is told by its first bytes."""
    part, kind = (input_range.start, input_range.stop), "plain"
    if input_range.start == 0:
        kind, _ = look_at(input_range.uri, storage, input_range.seen)
    compression = "" if kind == "plain" else "deflated"
    return open_stream(input_range, storage, part=part, compression=compression)


def look_at(uri: str, storage: StorageOptions, seen: Seen | None) -> tuple[str, bool]:
    """Returns "plain", "gzip" or "zlib" by the first bytes, and whether records follow."""
    start = read_range(uri, 0, _LOOKED_AT, storage, seen)
    if not start or is_head(start[:HEAD_BYTES]):
        return "plain", True
    is_zlib = start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0
    for name, fits in (("gzip", start[:2] == b"\x1f\x8b"), ("zlib", is_zlib)):
        if not fits:
            continue
        unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            head = unpacker.decompress(start, HEAD_BYTES)
        except zlib.error:
            continue
        if is_head(head) or (unpacker.eof and not head):
            return name, True
        if name == "gzip":
            return name, False
    return "plain", False


WINDOW_BYTES = 8 << 20
SEARCH_BYTES = 1 << 20  # searched at first for the next whole frame; then more
MOST_SEARCHED = 64 << 20  # then the rest of the file is given up
_MOST_BYTES = MAX_EXAMPLE_BYTES + FRAME_BYTES  # of a frame

# What follows some frames: nothing, what must be read first, a head, or damage.
_State = Literal["done", "more", "head", "broken"]


class Lost(NamedTuple):
    """Bytes that are no whole record, or the first of them; why; and their offset."""

    offset: int
    reason: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """Frames that follow each other in a file."""

    offset: int  # of the data, in the (unpacked) file
    data: U8  # bytes of the file
    starts: I64  # where each whole frame begins in the data
    lengths: I64  # their bytes
    lost: tuple[Lost, ...] = ()  # what is lost between and behind them

    @property
    def offsets(self) -> I64:
        """Returns where each frame begins in the (unpacked) file."""
        return self.starts + self.offset

    def frames(self) -> pa.BinaryArray:
        """Returns the frames; not copied, if none is lost between them."""
        ends = self.starts + self.lengths
        if len(ends) and (self.starts[1:] == ends[:-1]).all():
            return binary_array(np.append(self.starts, ends[-1]), self.data)
        return self._between(self.starts, ends)

    def records(self) -> pa.BinaryArray:
        """Returns the data of the frames."""
        ends = self.starts + self.lengths
        return self._between(self.starts + HEAD_BYTES, ends - TAIL_BYTES)

    def _between(self, starts: I64, ends: I64) -> pa.BinaryArray:
        """Returns pieces of the data; every second row of piece, gap, piece, gap, ..."""
        if not len(starts):
            return pa.array([], pa.binary())
        edges = np.column_stack([starts, ends]).ravel()
        return binary_array(edges, self.data).take(
            pa.array(np.arange(0, len(edges), 2))
        )

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns the offset and the bytes of a frame."""
        start = int(self.starts[row])
        return self.offset + start, bytes(
            self.data[start : start + int(self.lengths[row])]
        )


def read_frames(
    file: InputStream, start: int, stop: int | None, window_bytes: int = WINDOW_BYTES
) -> Iterator[FrameWindow]:
    """Yields all frames that begin in a range, whose first byte begins one.

    The range ends at `stop`, or with the file; a record may be larger than a window.
    """
    at, needed = start, 0
    while stop is None or at < stop:
        limit = at + window_bytes if stop is None else min(at + window_bytes, stop)
        limit = max(limit, at + needed)
        data = np.frombuffer(file.part(at, limit), np.uint8)
        if not len(data):
            return
        edges = find_frames(data)
        if stop is not None:  # frames that begin behind the range are another one's
            edges = edges[: int(np.searchsorted(edges[:-1], stop - at)) + 1]
        good = _whole_frames(data, edges)
        is_end = len(data) < limit - at
        state = _state(data, int(edges[-1]), at, stop, is_end=is_end)
        if len(good) and not good[-1] and state in ("more", "broken"):
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
        at, rest = at + end, data[end : end + HEAD_BYTES].data
        needed = HEAD_BYTES if len(rest) < HEAD_BYTES else frame_bytes(rest)


def _state(data: U8, end: int, at: int, stop: int | None, *, is_end: bool) -> _State:
    """Tells what follows the frames that were found in some bytes."""
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


def _whole_frames(data: U8, edges: I64) -> npt.NDArray[np.bool_]:
    """Returns a mask of the frames whose data has the right checksum."""
    starts, lengths = edges[:-1], np.diff(edges)
    good, at = np.ones(len(starts), np.bool_), 0
    while (found := damaged_frame(data, starts[at:], lengths[at:])) is not None:
        good[at + found] = False
        at += found + 1
    return good


def _window(
    offset: int, data: U8, edges: I64, good: npt.NDArray[np.bool_]
) -> FrameWindow:
    starts, lengths = edges[:-1], np.diff(edges)
    lost = []
    for row in np.flatnonzero(~good).tolist():
        start, stop = edges[row : row + 2].tolist()
        reason = (
            f"the checksum of the record's {stop - start - FRAME_BYTES:,} bytes is "
        )
        raw = bytes(data[start:stop])
        lost.append(Lost(offset + start, f"{reason}wrong: they are damaged", raw))
    return FrameWindow(offset, data, starts[good], lengths[good], tuple(lost))


def _search(file: InputStream, at: int, stop: int | None) -> tuple[Lost, int | None]:
    """Returns what is lost up to the next whole frame, and where that is, or None."""
    span = SEARCH_BYTES
    while True:
        data = np.frombuffer(file.part(at, at + span), np.uint8)
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
    while more := len(file.part(at + lost, at + lost + SEARCH_BYTES)):
        lost += more
        if stop is not None and at + lost >= stop:
            break
    if stop is not None:
        lost = stop - at
    reason = f"{_what(data, lost)}; no whole record follows: {lost:,} bytes are lost"
    return Lost(at, reason, bytes(data)), None


def _what(data: U8, left: int | None = None) -> str:
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


WHOLE_BYTES = 256 << 20  # a file of so many bytes is one range
STEP_BYTES = 64 << 20  # of a range of a larger one, about
_LOOK_BYTES = 1 << 20  # read at once to find records
_FEW = 4  # records in so many bytes: then only heads are read


def cut_files(
    files: Sequence[InputFile],
    storage: StorageOptions,
    whole_bytes: int = WHOLE_BYTES,
    step_bytes: int = STEP_BYTES,
) -> list[tuple[InputFile, int, int]]:
    """Returns the ranges of files as (file, start, stop).

    Only a file of more than `whole_bytes` on this machine is cut, if it is not
    compressed: where a record begins follows from the one before. The cut changes no
    byte of the dataset.
    """
    parts = []
    for file in files:
        edges = [0, file.size]
        if file.size > whole_bytes and is_local(file.uri):
            edges = _edges(file, storage, step_bytes)
        parts += [(file, start, stop) for start, stop in pairwise(edges)]
    return parts


def _edges(file: InputFile, storage: StorageOptions, step_bytes: int) -> list[int]:
    """Returns where the ranges of a file begin, and its end; none behind damage."""
    edges, at, look = [0], 0, _LOOK_BYTES
    if look_at(file.uri, storage, file.seen)[0] != "plain":
        return [0, file.size]
    read = open_input(file.uri, storage, file.seen).read
    while at < file.size:
        data = np.frombuffer(read(at, min(at + look, file.size)), np.uint8)
        ends = find_frames(data) + at
        look = _LOOK_BYTES if len(ends) > _FEW else HEAD_BYTES
        head = data[:HEAD_BYTES].data
        if len(ends) == 1 and is_head(head):  # it is longer than what was read
            ends = np.append(ends, at + frame_bytes(head))
        if len(ends) == 1 or ends[-1] > file.size:
            break
        while edges[-1] + step_bytes <= ends[-1]:
            edges.append(int(ends[np.searchsorted(ends, edges[-1] + step_bytes)]))
        at = int(ends[-1])
    if edges[-1] != file.size:
        edges.append(file.size)
    return edges


_REFERENCE = np.dtype([("file", "<u4"), ("length", "<u4"), ("offset", "<u8")])


def make_references(number: int, offsets: I64, lengths: I64) -> pa.BinaryArray:
    """Makes references to frames of the file of this number."""
    references = np.empty(len(offsets), _REFERENCE)
    references["file"] = number
    references["length"] = lengths
    references["offset"] = offsets
    ends = np.arange(len(offsets) + 1, dtype=np.int64) * _REFERENCE.itemsize
    return binary_array(ends, references.view(np.uint8))


def read_references(
    references: pa.BinaryArray, files: Sequence[InputFile]
) -> ReferencedRows:
    """Reads the frames that references stand for.

    Raises:
      ChangedInputError: a file is another one by now.
    """
    offsets, data = array_parts(references)
    found = data[offsets[0] : offsets[-1]].view(_REFERENCE)
    numbers = found["file"].astype(np.int64)
    places = found["offset"].astype(np.int64)
    edges = offsets_of(found["length"].astype(np.int64))
    starts, lengths = edges[:-1], np.diff(edges)
    buffer = np.empty(int(edges[-1]), np.uint8)
    # File by file, and forwards in each: the reads then lie nearer to each other.
    # One number for both (10,000 files at most): a seventh of the time of lexsort.
    order = np.argsort(numbers << 48 | places)
    edge = np.flatnonzero(np.diff(numbers[order])) + 1
    for rows in np.split(order, edge) if len(order) else ():
        file = files[int(numbers[rows[0]])]
        LocalInput(file.uri, file.seen).gather(
            places[rows], lengths[rows], buffer, starts[rows]
        )
    damaged = damaged_frame(buffer, starts, lengths)
    if damaged is not None:
        raise ChangedInputError(
            f"{files[int(numbers[damaged])].uri}: the record at byte "
            f"{int(places[damaged]):,} was whole when it was read "
            "first. Run the same command again when nothing writes to the inputs"
        )
    frames = binary_array(edges, buffer)

    def raw(row: int) -> tuple[str, int, bytes]:
        return files[int(numbers[row])].path, int(places[row]), frames[row].as_py()

    batch = pa.record_batch([frames], [FRAMED])
    return ReferencedRows(batch, np.arange(len(frames), dtype=np.int64), raw)
