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
from functools import cache
from typing import BinaryIO

import crc32c as _crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import CorruptRecordError, RecordmillError
from recordmill.transforms import compiled
from recordmill.transforms.arrow import I64, U8, array_parts, unaligned_rows

HEAD_BYTES = 12  # length and its checksum
TAIL_BYTES = 4  # the data's checksum
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
MAX_EXAMPLE_BYTES = (1 << 31) - 1  # protobuf's limit for any message

_MASK_DELTA = 0xA282EAD8
_READ_BYTES = 8 << 20

crc32c = _crc32c.crc32c


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


def mask(crc: int) -> int:
    """Masks a CRC-32C as TFRecord stores it."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def mask_array(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Masks an array of CRC-32Cs as TFRecord stores them."""
    rotated = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return rotated + np.uint32(_MASK_DELTA)  # wraps at 2**32, as intended


def seal(framed: pa.BinaryArray) -> None:
    """Writes lengths and checksums into the free bytes around every example.

    Args:
      framed: rows of 12 free bytes, the example, 4 free bytes. The buffer is changed in
        place, so nothing else may use it.
    """
    if len(framed) == 0:
        return
    offsets, buffer = array_parts(framed)
    if compiled.loops is not None:
        compiled.loops.seal(buffer, offsets)
        return
    heads = frame_heads(np.diff(offsets) - FRAME_BYTES)
    # Views with an item at every byte: all heads, then all tails, in one assignment.
    unaligned_rows(buffer, heads.dtype)[offsets[:-1]] = heads
    tails = unaligned_rows(buffer, "<u4")
    tails[offsets[1:] - TAIL_BYTES] = mask_array(
        _data_crcs(offsets[:-1], offsets[1:], buffer)
    )


def frame_heads(lengths: I64) -> npt.NDArray[np.void]:
    """Returns what stands before data of these lengths: the length and its checksum."""
    heads = np.empty(len(lengths), [("length", "<u8"), ("crc", "<u4")])
    heads["length"] = lengths
    heads["crc"] = _length_crcs(lengths)
    return heads


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
    if not len(starts):
        return None
    if compiled.loops is not None:
        found = compiled.loops.damaged(
            buffer, np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
        )
        return None if found < 0 else found
    ends = starts + lengths
    head = np.dtype([("length", "<u8"), ("crc", "<u4")])
    heads = unaligned_rows(buffer, head)[starts]
    tails = unaligned_rows(buffer, "<u4")[ends - TAIL_BYTES]
    sizes = lengths - FRAME_BYTES
    whole = (heads["length"] == sizes.astype(np.uint64)) & (
        heads["crc"] == _length_crcs(sizes)
    )
    whole &= tails == mask_array(_data_crcs(starts, ends, buffer))
    return None if whole.all() else int(np.argmin(whole))


def _data_crcs(starts: I64, ends: I64, buffer: U8) -> npt.NDArray[np.uint32]:
    """Computes the CRC-32C of the data of every frame."""
    firsts = (starts + HEAD_BYTES).tolist()
    lasts = (ends - TAIL_BYTES).tolist()
    # A Python call for each record, 0.25 us: no library takes a batch.
    datas = map(buffer.data.__getitem__, map(slice, firsts, lasts))
    return np.fromiter(map(crc32c, datas), np.uint32, len(firsts))


@cache
def _length_tables() -> tuple[npt.NDArray[np.uint32], ...]:
    """Builds four tables whose XOR is the CRC-32C of an 8-byte length.

    CRC-32C is linear: crc(a ^ b) = crc(a) ^ crc(b) ^ crc(0). So a length is split into
    four pieces of 16 bits: of 0x30005, crc = table0[5] ^ table1[3] ^ table2[0] ^
    table3[0], where table0 contains crc(0).
    """
    zero = crc32c(bytes(8))
    tables = []
    for piece in range(4):
        single_bits = [
            crc32c((1 << (16 * piece + bit)).to_bytes(8, "little")) ^ zero
            for bit in range(16)
        ]
        table = np.zeros(1, np.uint32)
        for crc in single_bits:
            table = np.concatenate([table, table ^ np.uint32(crc)])
        tables.append(table)
    tables[0] ^= np.uint32(zero)
    return tuple(tables)


def _length_crcs(lengths: I64) -> npt.NDArray[np.uint32]:
    """Computes the masked CRC-32C of every length, stored as u64."""
    crcs = np.zeros(len(lengths), np.uint32)
    for piece, table in enumerate(_length_tables()):
        crcs ^= table[(lengths >> (16 * piece)) & 0xFFFF]
    return mask_array(crcs)


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
