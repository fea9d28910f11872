"""Frames, reads and verifies TFRecords, without TensorFlow.

    u64 length | u32 masked crc of length | data | u32 masked crc of data

All little-endian, with nothing before the first record or after the last; a compressed
file is the whole stream through gzip. A masked crc is ((crc >> 15) | (crc << 17)) +
0xa282ead8 of the CRC-32C (Castagnoli). The record "abc":

    03 00 00 00 00 00 00 00 | b0 99 49 0e | 61 62 63 | 6e 57 f1 21

Source: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import crc32c as _crc32c
import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import CorruptRecordError, RecordmillError
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, U8, array_parts
from recordmill.transforms.native import numpy_loops

HEAD_BYTES = numpy_loops.HEAD_BYTES  # length and its checksum
TAIL_BYTES = numpy_loops.TAIL_BYTES  # the data's checksum
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
MAX_EXAMPLE_BYTES = (1 << 31) - 1  # protobuf's limit for any message

_READ_BYTES = 8 << 20

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

    Args:
      framed: rows of 12 free bytes, the example, 4 free bytes. The buffer is changed in
        place, so nothing else may use it.
    """
    if len(framed) == 0:
        return
    offsets, buffer = array_parts(framed)
    native.loops.seal(buffer, offsets)


def check_frames(framed: pa.BinaryArray, where: str) -> None:
    """Verifies length and both checksums of records that were read from scratch.

    Args:
      framed: one framed record in each row.
      where: what was read, for the error message.

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

    Args:
      buffer: bytes with frames anywhere in them.
      starts: where each frame begins.
      lengths: the bytes of each frame, 16 or more.
    """
    found = native.loops.damaged(
        buffer, np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
    )
    return None if found < 0 else found


def open_stream(raw: BinaryIO, compression: str) -> BinaryIO:
    """Opens the uncompressed stream of a TFRecord file."""
    return gzip.GzipFile(fileobj=raw) if compression == "gzip" else raw  # type: ignore[return-value]


def read_records(stream: BinaryIO, uri: str) -> Iterator[memoryview]:
    """Yields the data of every record after verifying both checksums.

    Args:
      stream: an uncompressed stream, at its start.
      uri: the file's name for error messages.

    Raises:
      CorruptRecordError: a record is damaged; names file, record and byte offset.
    """
    # read1 returns what can be read of a damaged gzip stream before it raises.
    read = getattr(stream, "read1", stream.read)
    chunks: list[bytes] = []  # read so far, from the first unfinished record
    num_bytes, needed = 0, HEAD_BYTES
    record_index = offset = 0
    while True:
        try:
            chunk = read(_READ_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorruptRecordError(
                uri, record_index, offset, f"damaged gzip stream: {error}"
            ) from error
        if not chunk:
            break
        chunks.append(chunk)
        num_bytes += len(chunk)
        if num_bytes < needed:
            continue
        block = memoryview(b"".join(chunks) if len(chunks) > 1 else chunk)
        start, needed = 0, HEAD_BYTES
        while len(block) - start >= HEAD_BYTES:
            length = int.from_bytes(block[start : start + 8], "little")
            found = int.from_bytes(block[start + 8 : start + 12], "little")
            expected = mask(crc32c(block[start : start + 8]))
            if found != expected:
                raise CorruptRecordError(
                    uri, record_index, offset, _describe("length", found, expected)
                )
            if length > MAX_EXAMPLE_BYTES:
                raise CorruptRecordError(
                    uri,
                    record_index,
                    offset,
                    f"length is {length} bytes, but a tf.train.Example has at most "
                    f"{MAX_EXAMPLE_BYTES} bytes",
                )
            stop = start + HEAD_BYTES + length
            if len(block) < stop + TAIL_BYTES:
                needed = length + FRAME_BYTES
                break
            data = block[start + HEAD_BYTES : stop]
            found = int.from_bytes(block[stop : stop + TAIL_BYTES], "little")
            expected = mask(crc32c(data))
            if found != expected:
                raise CorruptRecordError(
                    uri, record_index, offset, _describe("data", found, expected)
                )
            yield data
            record_index += 1
            offset += length + FRAME_BYTES
            start = stop + TAIL_BYTES
        num_bytes = len(block) - start
        chunks = [bytes(block[start:])] if num_bytes else []
    if num_bytes:
        raise CorruptRecordError(
            uri,
            record_index,
            offset,
            f"the file ends inside this record, {num_bytes} bytes after its start",
        )


def _describe(field: str, found: int, expected: int) -> str:
    return f"checksum of the {field} is {found:08x}, expected {expected:08x}"
