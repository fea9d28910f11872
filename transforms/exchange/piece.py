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
from recordmill.transforms.encode.packed_values import open_values
from recordmill.transforms.encode.unwritten_records import Payloads, payload_offsets
from recordmill.transforms.exchange.block import Block, payload_buffer
from recordmill.transforms.exchange.merge import Pieces
from recordmill.transforms.native import Buffer
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
            end = _records_at(head.records)
        if crc32c(memoryview(value)[_CRC_END:end]) == crc:
            return head
    raise _damaged(f"a piece of {len(value)} bytes")


def holds_values(value: bytes) -> bool:
    """Tells whether a piece holds records as their values."""
    return value.startswith(_VALUES)


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
    if holds_values(value):
        keys = np.frombuffer(value, "<u8", head.records, PIECE_HEAD_BYTES)
        packed = memoryview(value)[PIECE_HEAD_BYTES + keys.nbytes :]
        payloads: Payloads = open_values(packed, head.records)
        lengths = np.diff(payload_offsets(payloads))
    else:
        found = locate_records(value, head.records, body=0)
        keys, lengths = found.keys, found.lengths
        records = np.frombuffer(value, np.uint8, offset=_records_at(head.records))
        payloads = binary_array(offsets_of(lengths), records)
    splits = np.full(head.records, split_index, np.uint8)
    return Block(payloads, keys, splits, lengths), head


def as_records(value: bytes) -> bytes:
    """Returns a piece that holds its records as bytes."""
    if not holds_values(value):
        return value
    block, head = open_piece(value, 0)
    records = payload_buffer(block.written())
    return pack_records(head, block.keys, block.planned_bytes, records)


def locate_records(value: bytes, num_records: int, body: int) -> Pieces:
    """Returns the places of the records that a piece holds as bytes.

    Args:
      value: the piece.
      num_records: that its head tells.
      body: number of the body that the piece is.

    Raises:
      RecordmillError: the piece is longer or shorter than its records.
    """
    words = np.frombuffer(value, "<u8", 2 * num_records, PIECE_HEAD_BYTES)
    lengths = words[num_records:].astype(np.int64)
    starts = np.cumsum(lengths) - lengths + _records_at(num_records)
    if num_records and int(starts[-1] + lengths[-1]) != len(value):
        raise _damaged(
            f"a piece has {len(value)} bytes, expected {int(starts[-1] + lengths[-1])}: it"
        )
    return Pieces(
        np.full(num_records, body, np.int64),
        starts.astype(np.uint64),
        lengths,
        lengths.astype(np.uint64),
        words[:num_records],
    )


def _records_at(num_records: int) -> int:
    return PIECE_HEAD_BYTES + (KEY_BYTES + LENGTH_BYTES) * num_records


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
