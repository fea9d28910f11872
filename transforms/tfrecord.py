"""TFRecord framing: make records, read them back, verify them. No Beam, no TensorFlow.

    u64 length | u32 masked crc of length | data | u32 masked crc of data

All little-endian, nothing before the first record or behind the last; a compressed
file is the whole stream through gzip. Masked: ((crc >> 15) | (crc << 17)) + 0xa282ead8,
crc being CRC-32C (Castagnoli).
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
from recordmill.transforms.arrow import I64, U8, array_parts

HEAD_BYTES = 12  # length and its crc
TAIL_BYTES = 4  # the data's crc
FRAME_BYTES = HEAD_BYTES + TAIL_BYTES
MAX_EXAMPLE_BYTES = (1 << 31) - 1  # protobuf's limit for any message

_MASK_DELTA = 0xA282EAD8
_READ_BYTES = 8 << 20

crc32c = _crc32c.crc32c


def require_fast_crc() -> None:
    """Makes sure that CRC-32C runs compiled code.

    Raises:
      RecordmillError: if the crc32c package fell back to nothing compiled.
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
    """The masked form of a CRC-32C, as TFRecord stores it."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def mask_array(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """`mask` of a whole array."""
    rotated = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return rotated + np.uint32(_MASK_DELTA)  # wraps at 2**32 as it should


def seal(framed: pa.BinaryArray) -> None:
    """Writes length and checksums into the room left around every example.

    Args:
      framed: rows of 12 bytes of room, the example, 4 bytes of room, in a buffer
        nobody else looks at: it is changed in place.
    """
    if len(framed) == 0:
        return
    offsets, buffer = array_parts(framed)
    lengths = np.diff(offsets) - FRAME_BYTES
    heads = np.empty(len(framed), [("length", "<u8"), ("crc", "<u4")])
    heads["length"] = lengths
    heads["crc"] = _length_crcs(lengths)
    anywhere = np.ndarray(
        (len(buffer) - HEAD_BYTES + 1,), heads.dtype, buffer.data, 0, (1,)
    )
    anywhere[offsets[:-1]] = heads
    tails = np.ndarray((len(buffer) - TAIL_BYTES + 1,), "<u4", buffer.data, 0, (1,))
    tails[offsets[1:] - TAIL_BYTES] = mask_array(_data_crcs(offsets, buffer))


def check_frames(framed: pa.BinaryArray, where: str) -> None:
    """Verifies length and both checksums of records that lay in scratch meanwhile.

    Args:
      framed: one framed record per row.
      where: what was read, for the error.

    Raises:
      RecordmillError: a record is damaged.
    """
    if len(framed) == 0:
        return
    offsets, buffer = array_parts(framed)
    lengths = np.diff(offsets) - FRAME_BYTES
    head = np.dtype([("length", "<u8"), ("crc", "<u4")])
    size = len(buffer) - HEAD_BYTES + 1
    heads = np.ndarray((size,), head, buffer.data, 0, (1,))[offsets[:-1]]
    tails = np.ndarray((len(buffer) - TAIL_BYTES + 1,), "<u4", buffer.data, 0, (1,))
    crcs = mask_array(_data_crcs(offsets, buffer))
    whole = (heads["length"] == lengths.astype(np.uint64)) & (
        heads["crc"] == _length_crcs(lengths)
    )
    whole &= tails[offsets[1:] - TAIL_BYTES] == crcs
    if not whole.all():
        raise RecordmillError(
            f"{where}: record {int(np.argmin(whole))} was damaged in scratch: a faulty "
            "disk or memory? Remove the scratch folder and run again"
        )


def _data_crcs(offsets: I64, buffer: U8) -> npt.NDArray[np.uint32]:
    """CRC-32C of the data of every framed record."""
    starts = (offsets[:-1] + HEAD_BYTES).tolist()
    ends = (offsets[1:] - TAIL_BYTES).tolist()
    # The only Python per record, 0.25 us each: no library takes a batch.
    datas = map(buffer.data.__getitem__, map(slice, starts, ends))
    return np.fromiter(map(crc32c, datas), np.uint32, len(starts))


@cache
def _length_tables() -> tuple[npt.NDArray[np.uint32], ...]:
    """CRC-32C of an 8-byte length, as four tables to be XORed (it is linear)."""
    zero = crc32c(bytes(8))
    tables = []
    for place in range(4):
        single_bits = [
            crc32c((1 << (16 * place + bit)).to_bytes(8, "little")) ^ zero
            for bit in range(16)
        ]
        table = np.zeros(1, np.uint32)
        for bits in single_bits:
            table = np.concatenate([table, table ^ np.uint32(bits)])
        tables.append(table)
    tables[0] ^= np.uint32(zero)
    return tuple(tables)


def _length_crcs(lengths: I64) -> npt.NDArray[np.uint32]:
    """Masked CRC-32C of every length as u64."""
    crcs = np.zeros(len(lengths), np.uint32)
    for place, table in enumerate(_length_tables()):
        crcs ^= table[(lengths >> (16 * place)) & 0xFFFF]
    return mask_array(crcs)


def open_stream(raw: BinaryIO, compression: str) -> BinaryIO:
    """The uncompressed stream of a TFRecord file."""
    return gzip.GzipFile(fileobj=raw) if compression == "gzip" else raw  # type: ignore[return-value]


def read_records(stream: BinaryIO, uri: str) -> Iterator[memoryview]:
    """Yields the data of every record, both checksums verified.

    Args:
      stream: an uncompressed stream, at its start.
      uri: the file's name for errors.

    Raises:
      CorruptRecordError: at the first damage: which file, record and byte offset.
    """
    # read1 hands out what a damaged gzip stream still gives before its error.
    read = getattr(stream, "read1", stream.read)
    parts: list[bytes] = []  # of the block from the first unfinished record on
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
        parts.append(chunk)
        num_bytes += len(chunk)
        if num_bytes < needed:
            continue
        block = memoryview(b"".join(parts) if len(parts) > 1 else chunk)
        place, needed = 0, HEAD_BYTES
        while len(block) - place >= HEAD_BYTES:
            length = int.from_bytes(block[place : place + 8], "little")
            found = int.from_bytes(block[place + 8 : place + 12], "little")
            wanted = mask(crc32c(block[place : place + 8]))
            if found != wanted:
                raise CorruptRecordError(
                    uri, record_index, offset, _differs("length", found, wanted)
                )
            if length > MAX_EXAMPLE_BYTES:
                raise CorruptRecordError(
                    uri,
                    record_index,
                    offset,
                    f"a length of {length} bytes is beyond any tf.train.Example "
                    "(2 GiB)",
                )
            stop = place + HEAD_BYTES + length
            if len(block) < stop + TAIL_BYTES:
                needed = length + FRAME_BYTES
                break
            data = block[place + HEAD_BYTES : stop]
            found = int.from_bytes(block[stop : stop + TAIL_BYTES], "little")
            wanted = mask(crc32c(data))
            if found != wanted:
                raise CorruptRecordError(
                    uri, record_index, offset, _differs("data", found, wanted)
                )
            yield data
            record_index += 1
            offset += length + FRAME_BYTES
            place = stop + TAIL_BYTES
        num_bytes = len(block) - place
        parts = [bytes(block[place:])] if num_bytes else []
    if num_bytes:
        raise CorruptRecordError(
            uri,
            record_index,
            offset,
            f"the file ends inside this record, {num_bytes} bytes after its start",
        )


def _differs(what: str, found: int, wanted: int) -> str:
    return f"checksum of the {what} is {found:08x}, expected {wanted:08x}"
