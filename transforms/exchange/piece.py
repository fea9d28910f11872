"""Packs one piece of a shard as a value of the runner's shuffle, and opens it again.

    magic | u64 crc32c | u64 range | u64 piece number | u64 records | u64 rejects
    | u64 order key of each record | body

    "recmillp"   body: u64 length of each record | record 0 | record 1 | ...
                 the checksum is that of all up to the records, which have their own
    "recmillv"   body: the values of the records (see encode/packed_values.py)
                 the checksum is that of all that follows it

All little-endian. Range and piece number identify a piece, which may arrive twice.
Rejects are rows that were planned for the shard but could not be converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.arrow import I64, U64, binary_array, offsets_of
from recordmill.transforms.compiled import Buffer
from recordmill.transforms.encode.packed_values import open_values
from recordmill.transforms.encode.unwritten_records import Payloads, payload_offsets
from recordmill.transforms.exchange.block import Block
from recordmill.transforms.tfrecord import crc32c

KEY_BYTES = 8
LENGTH_BYTES = 8

_RECORDS, _VALUES = b"recmillp", b"recmillv"
_CRC_END = len(_RECORDS) + 8
PIECE_HEAD_BYTES = _CRC_END + 8 * 4


@dataclass(frozen=True, slots=True)
class PieceHead:
    """What a piece says of itself.

    Attributes:
      range_index: the range that its rows are from.
      number: of the piece, among those of the range.
      records: how many it holds.
      rejects: planned rows that became no record.
    """

    range_index: int
    number: int
    records: int = 0
    rejects: int = 0

    @property
    def place(self) -> tuple[int, int]:
        """Returns what identifies and orders pieces."""
        return self.range_index, self.number


def pack_records(head: PieceHead, keys: U64, lengths: I64, records: Buffer) -> bytes:
    """Packs framed records that lie one behind the other."""
    facts = b"".join([_words(head), _u64(keys), _u64(lengths)])
    return b"".join([_RECORDS, _packed_crc(facts), facts, records])


def pack_values(head: PieceHead, keys: U64, values: Sequence[Buffer]) -> bytes:
    """Packs records as their values, which come in parts."""
    packed = b"".join([_words(head), _u64(keys), *values])
    return b"".join([_VALUES, _packed_crc(packed), packed])


def pack_rejects(head: PieceHead) -> bytes:
    """Packs a piece without records."""
    words = _words(head)
    return b"".join([_RECORDS, _packed_crc(words), words])


def read_head(value: bytes) -> PieceHead:
    """Reads the head of a piece; verifies all except records.

    Raises:
      RecordmillError: the piece is damaged.
    """
    magic = value[: len(_RECORDS)]
    if len(value) >= PIECE_HEAD_BYTES and magic in {_RECORDS, _VALUES}:
        crc, *words = np.frombuffer(value, "<u8", 5, len(magic)).tolist()
        head = PieceHead(*words)
        end = len(value)
        if magic == _RECORDS:
            end = PIECE_HEAD_BYTES + (KEY_BYTES + LENGTH_BYTES) * head.records
        if crc32c(memoryview(value)[_CRC_END:end]) == crc:
            return head
    raise _damaged(f"a piece of {len(value)} bytes")


def open_piece(value: bytes, split_index: int) -> tuple[Block, PieceHead]:
    """Reads the rows of a piece.

    Args:
      value: the piece.
      split_index: split of all its rows.

    Returns:
      The rows, in the order of their keys, whose planned bytes are their lengths; and
      the head.

    Raises:
      RecordmillError: the piece is damaged.
    """
    head = read_head(value)
    keys = np.frombuffer(value, "<u8", head.records, PIECE_HEAD_BYTES)
    at = PIECE_HEAD_BYTES + keys.nbytes
    payloads = _open_body(value, at, head.records)
    lengths = np.diff(payload_offsets(payloads)).astype(np.int64)
    splits = np.full(head.records, split_index, np.uint8)
    return Block(payloads, keys, splits, lengths), head


def _open_body(value: bytes, at: int, num_records: int) -> Payloads:
    if value.startswith(_VALUES):
        return open_values(memoryview(value)[at:], num_records)
    lengths = np.frombuffer(value, "<u8", num_records, at)
    offsets = offsets_of(lengths.astype(np.int64))
    at += lengths.nbytes
    if at + int(offsets[-1]) != len(value):
        raise _damaged(
            f"a piece has {len(value)} bytes, expected {at + int(offsets[-1])}: it"
        )
    return binary_array(offsets, np.frombuffer(value, np.uint8, offset=at))


def _words(head: PieceHead) -> bytes:
    return _u64(np.array(astuple(head), np.uint64))


def _u64(numbers: U64 | I64) -> bytes:
    return numbers.astype("<u8").tobytes()


def _packed_crc(data: bytes) -> bytes:
    return crc32c(data).to_bytes(8, "little")


def _damaged(what: str) -> RecordmillError:
    return RecordmillError(
        f"{what} was damaged by the runner or its storage (engine exchange). Run again, "
        "or use exchange scratch"
    )
