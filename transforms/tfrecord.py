"""Frames, reads and verifies TFRecords, without TensorFlow.

    u64 length | u32 masked crc of length | data | u32 masked crc of data

All little-endian, with nothing before the first record or after the last; a compressed
file is the whole stream through gzip. A masked crc is ((crc >> 15) | (crc << 17)) +
0xa282ead8 of the CRC-32C (Castagnoli). The record "abc":

    03 00 00 00 00 00 00 00 | b0 99 49 0e | 61 62 63 | 6e 57 f1 21

Frames tell their length only at their start, so one is found from the end of the one
before. Where a length is damaged, each later byte is tried as the start of a frame: its
length must fit, and both of its checksums must be right.

Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from io import RawIOBase
from itertools import pairwise
from typing import BinaryIO

import crc32c as _crc32c
import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import CorruptRecordError, RecordmillError
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, U8, array_parts
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.native.numpy_loops import length_crcs, unaligned_rows

HEAD_BYTES = numpy_loops.HEAD_BYTES  # length and its checksum
TAIL_BYTES = numpy_loops.TAIL_BYTES  # the data's checksum
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
MAX_EXAMPLE_BYTES = (1 << 31) - 1  # protobuf's limit for any message

_READ_BYTES = 8 << 20
MOST_FRAMES = 1 << 17  # found at once
_TRIED_AT_ONCE = 1 << 18  # bytes, each as the start of a frame

crc32c = _crc32c.crc32c
mask = numpy_loops.mask


def require_fast_crc() -> None:
    """Checks that CRC-32C is computed by compiled code.

    Raises:
      RecordmillError: the crc32c package has only its slow Python code.
    """
    if crc32c(b"123456789") != 0xE3069283:
        raise RecordmillError("the crc32c package computes wrong checksums: reinstall")
    if getattr(_crc32c, "hardware_based", None) is None:
        raise RecordmillError(
            "the crc32c package has no compiled code on this machine; checksums in "
            "Python would be a thousand times slower. Install its wheel: "
            "pip install --force-reinstall crc32c"
        )


def seal(framed: pa.BinaryArray) -> None:
    """Writes lengths and checksums into the free bytes around every example.

    Rows are 12 free bytes, the example, 4 free bytes. The buffer is changed in place,
    so nothing else may use it.
    """
    if len(framed) == 0:
        return
    offsets, buffer = array_parts(framed)
    native.loops.seal(buffer, offsets)


def check_frames(framed: pa.BinaryArray, where: str) -> None:
    """Verifies length and both checksums of records that were read from scratch.

    Raises:
      RecordmillError: a record is damaged.
    """
    offsets, buffer = array_parts(framed)
    damaged = damaged_frame(buffer, offsets[:-1], np.diff(offsets))
    if damaged is not None:
        raise RecordmillError(
            f"{where}: record {damaged} was damaged in scratch, perhaps by a faulty disk "
            "or memory. Remove the scratch folder and run again"
        )


def damaged_frame(buffer: U8, starts: I64, lengths: I64) -> int | None:
    """Returns the index of the first frame whose length or checksums are wrong, or None.

    Frames of 16 bytes or more may lie anywhere in the buffer.
    """
    found = native.loops.damaged(
        buffer, np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
    )
    return None if found < 0 else found


def open_stream(raw: BinaryIO | RawIOBase, compression: str) -> BinaryIO:
    """Opens the uncompressed stream of a TFRecord file."""
    return gzip.GzipFile(fileobj=raw) if compression == "gzip" else raw  # type: ignore[return-value]


def read_records(stream: BinaryIO, uri: str) -> Iterator[memoryview]:
    """Yields the data of every record of an uncompressed stream, both checksums verified.

    Raises:
      CorruptRecordError: a record is damaged; names file, record and byte offset.
    """
    # read1 returns what can be read of a damaged gzip stream before it raises.
    read = getattr(stream, "read1", stream.read)
    rest = b""  # read so far, from the first unfinished record
    needed, record_index, offset = 1, 0, 0
    while True:
        chunks, num_bytes = [rest] if rest else [], len(rest)
        while num_bytes < needed:
            try:
                chunk = read(_READ_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                problem = f"damaged gzip stream: {error}"
                raise CorruptRecordError(uri, record_index, offset, problem) from error
            if not chunk and num_bytes:
                problem = "the file ends inside this record, "
                problem += f"{num_bytes} bytes after its start"
                raise CorruptRecordError(uri, record_index, offset, problem)
            if not chunk:
                return
            chunks.append(chunk)
            num_bytes += len(chunk)
        block = b"".join(chunks)
        view, data = memoryview(block), np.frombuffer(block, np.uint8)
        start, is_more = 0, True
        while is_more:
            edges = find_frames(data, start)
            bad = damaged_frame(data, edges[:-1], np.diff(edges))
            is_more = bad is None and len(edges) > MOST_FRAMES
            good = edges[: None if bad is None else bad + 1].tolist()
            for begin, end in pairwise(good):
                yield view[begin + HEAD_BYTES : end - TAIL_BYTES]
                record_index += 1
                start = end
        problem, needed = _next_frame(view[start:])
        offset += start
        if problem:
            raise CorruptRecordError(uri, record_index, offset, problem)
        rest = block[start:]
        needed = max(needed, len(rest) + 1)


def _next_frame(rest: memoryview) -> tuple[str, int]:
    """Returns what is wrong with a frame that is not whole, or how many bytes it has."""
    if len(rest) < HEAD_BYTES:
        return "", HEAD_BYTES
    length, found = frame_bytes(rest) - FRAME_BYTES, rest[8:HEAD_BYTES]
    if not is_head(rest):
        return _describe("length", found, rest[:8]), 0
    if length > MAX_EXAMPLE_BYTES:
        return (
            f"length is {length} bytes, but a tf.train.Example has at most "
            f"{MAX_EXAMPLE_BYTES} bytes"
        ), 0
    if len(rest) < length + FRAME_BYTES:
        return "", length + FRAME_BYTES
    stop = HEAD_BYTES + length
    return _describe("data", rest[stop : stop + TAIL_BYTES], rest[HEAD_BYTES:stop]), 0


def _describe(field: str, found: memoryview, data: memoryview) -> str:
    crc = int.from_bytes(found, "little")
    return f"checksum of the {field} is {crc:08x}, expected {mask(crc32c(data)):08x}"


def find_frames(data: U8, at: int = 0) -> I64:
    """Returns where frames begin that follow each other, and where the last one ends.

    Only their heads are checked, from `at` on. The search ends before a frame that does
    not lie in the data, or whose length is damaged, and after MOST_FRAMES.
    """
    starts = np.empty(min(MOST_FRAMES, len(data) // FRAME_BYTES) + 1, np.int64)
    count = native.loops.frames(data, at, starts)
    return starts[: count + 1]


def is_head(head: bytes | memoryview) -> bool:
    """Tells whether bytes begin with a length and its checksum."""
    if len(head) < HEAD_BYTES:
        return False
    found = int.from_bytes(head[8:HEAD_BYTES], "little")
    return found == mask(crc32c(head[:8]))


def frame_bytes(head: bytes | memoryview) -> int:
    """Returns the bytes of the frame that begins with a head."""
    return int.from_bytes(head[:8], "little") + FRAME_BYTES


def find_whole_frame(data: U8, at: int) -> tuple[int | None, int]:
    """Searches for a frame whose checksums are right, whatever lies before it.

    Returns where such a frame begins, or None; and how many bytes of the data are
    needed to tell of each that begins in it, if there are more in the file.
    """
    needed = 0
    last = len(data) - FRAME_BYTES
    while at <= last:
        stop = min(at + _TRIED_AT_ONCE, last + 1)
        heads = unaligned_rows(data, numpy_loops.HEAD)[at:stop]
        few = np.flatnonzero(heads["length"] <= MAX_EXAMPLE_BYTES)
        likely = heads[few]
        lengths = likely["length"].astype(np.int64)
        right = likely["crc"] == length_crcs(lengths)
        # A head by chance comes once in 4 GB of small lengths.
        for begin, length in zip(
            (few[right] + at).tolist(), lengths[right].tolist(), strict=True
        ):
            end = begin + length + FRAME_BYTES
            if end > len(data):
                needed = max(needed, end)
            elif _is_whole(data[begin:end].data):
                return begin, needed
        at = stop
    return None, needed


def _is_whole(frame: memoryview) -> bool:
    found = int.from_bytes(frame[-4:], "little")
    return found == mask(crc32c(frame[HEAD_BYTES:-4]))
