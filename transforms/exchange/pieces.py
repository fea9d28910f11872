"""Cuts rows into pieces that pass through the runner's own shuffle, and merges these.

A piece is packed as

    magic | u64 crc32c | u64 range | u64 piece number | u64 records | u64 rejects
    | u64 order key of each record | body

    "recmillp"   body: u64 length of each record | record 0 | record 1 | ...
                 the checksum is that of all up to the records, which have their own
    "recmillv"   body: the values of the records (see encode/waiting_rows.py)
                 the checksum is that of all that follows it

All little-endian. Range and piece number identify a piece, which may arrive twice.
Rejects are rows that were planned for the shard but could not be converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.shards import ShardPlan
from recordmill.transforms.arrow import (
    I64,
    U8,
    U64,
    array_parts,
    binary_array,
    offsets_of,
)
from recordmill.transforms.encode.waiting_rows import (
    PackedValues,
    Payloads,
    UnwrittenRecords,
    open_values,
    payload_offsets,
)
from recordmill.transforms.exchange.held_runs import HeldValues
from recordmill.transforms.exchange.merge import (
    WINDOW_BYTES,
    Block,
    Bodies,
    Pieces,
    merge_windows,
    payload_buffer,
)
from recordmill.transforms.exchange.plan import shard_numbers
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


# A piece holds records of one range for one shard : framed, or as their
# values, if that is at most half as much and pieces have some rows. Without its head it has
# at most PIECE_BYTES, or one record. Pieces arrive in any order, and after a retry perhaps
# twice. Records and rejects together tell when all planned rows of a shard have arrived.

# Limit of a value without its head, except for a larger record. Beam's Java runners
# send a worker a hundred messages before they check that it accepts any, and keep them
# until then: with this size 26 MB for each worker, as a message holds up to two values.
PIECE_BYTES = 128 << 10

# The writer of a shard has its values three times: in pieces, opened, and in order.
_MOST_SHARE = 0.5
# To pack and open the values of 40 columns takes 0.2 ms for each piece: as much as it takes
# to send records of so many rows in place of values.
_LEAST_ROWS = 64
_MOST_OVERHEAD = 0.25  # of a piece: the names of its columns


def cut_block(
    block: Block,
    plan: ShardPlan,
    origin: tuple[int, int],
    skip: frozenset[int] = frozenset(),
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[tuple[int, bytes]]:
    """Cuts a block into pieces, each with the number of its shard.

    Args:
      block: the rows.
      plan: the shard plan.
      origin: the range's index, and the number of its blocks before this one.
      skip: shards that are finished already.
      piece_bytes: limit of a value without its head, except for a larger record.

    Yields:
      (number of the shard as in `shard_numbers`, piece).
    """
    shards = shard_numbers(plan, block.keys, block.splits)
    kept = np.flatnonzero(~np.isin(shards, list(skip))) if skip else None
    # Stable, so of equal keys in a block the earlier row comes first.
    order = np.lexsort((block.keys, shards))
    if kept is not None:
        order = order[np.isin(order, kept)]
    if not len(order):
        return
    shards = shards[order]
    rows = _packable(block, order, len(np.unique(shards)), piece_bytes)
    limit = piece_bytes - rows.overhead
    for index, (first, end) in enumerate(_cut_rows(shards, rows.ends, limit)):
        head = _head(origin, index, records=end - first)
        yield int(shards[first]), rows.pack(head, first, end)


def reject_pieces(
    rejects: I64, origin: tuple[int, int], skip: frozenset[int] = frozenset()
) -> Iterator[tuple[int, bytes]]:
    """Builds pieces without records, which tell shards how many rows will not come.

    Args:
      rejects: number of planned rows that were rejected, for each shard.
      origin: the range's index, and the number of all its blocks.
      skip: shards that are finished already.
    """
    for index, number in enumerate(np.flatnonzero(rejects).tolist()):
        if number not in skip:
            head = _head(origin, index, rejects=int(rejects[number]))
            yield number, pack_rejects(head)


def planned_rows(values: Iterable[bytes]) -> int:
    """Counts the planned rows in pieces: their records and rejects.

    A piece that arrived twice counts once.

    Raises:
      RecordmillError: a value is damaged.
    """
    return sum(head.records + head.rejects for head in set(map(read_head, values)))


def gather_inline(
    values: Iterable[bytes],
    window_bytes: int = WINDOW_BYTES,
    *,
    break_ties_by_content: bool = False,
) -> Iterator[pa.BinaryArray]:
    """Yields the payloads of a shard in order, in windows.

    Args:
      values: all pieces of the shard, in any order.
      window_bytes: bytes of a window; a single record may be larger.
      break_ties_by_content: see merge_windows.

    Raises:
      RecordmillError: a value is damaged.
    """
    by_head = {read_head(value): value for value in values}
    ordered = sorted(by_head, key=lambda head: head.place)
    found = _locate([(by_head[head], head) for head in ordered if head.records])
    return merge_windows(
        *found, window_bytes, break_ties_by_content=break_ties_by_content
    )


@dataclass(frozen=True, slots=True)
class _FramedRows:
    """Framed records in the order in which they are packed.

    Attributes:
      keys: order keys of the records.
      offsets: where each record begins, and where the last one ends.
      data: the bytes of all.
    """

    keys: U64
    offsets: I64
    data: U8

    overhead = 0  # bytes of each piece beside the rows

    @property
    def ends(self) -> I64:
        """Returns the bytes of a piece that ends before each row, and behind all."""
        return self.offsets + (KEY_BYTES + LENGTH_BYTES) * np.arange(len(self.offsets))

    def pack(self, head: PieceHead, first: int, end: int) -> bytes:
        """Packs the rows from `first` to `end`."""
        offsets = self.offsets[first : end + 1]
        records = self.data.data[offsets[0] : offsets[-1]]
        return pack_records(head, self.keys[first:end], np.diff(offsets), records)


@dataclass(frozen=True, slots=True)
class _ValueRows:
    """The values of records, in the order in which they are packed.

    Attributes:
      keys: order keys of the records.
      values: of the records.
    """

    keys: U64
    values: PackedValues

    @property
    def overhead(self) -> int:
        """Returns the bytes of each piece beside the rows."""
        return self.values.overhead

    @property
    def ends(self) -> I64:
        """Returns the bytes of a piece that ends before each row, and behind all."""
        return self.values.ends + KEY_BYTES * np.arange(len(self.values.ends))

    def pack(self, head: PieceHead, first: int, end: int) -> bytes:
        """Packs the rows from `first` to `end`."""
        return pack_values(head, self.keys[first:end], self.values.rows(first, end))


def _packable(
    block: Block, order: npt.NDArray[np.intp], num_shards: int, piece_bytes: int
) -> _FramedRows | _ValueRows:
    """Returns rows of a block in this order, as records or as their values.

    Args:
      block: the rows.
      order: which of them, in which order.
      num_shards: that they are for.
      piece_bytes: limit of a piece.
    """
    payloads, keys = block.payloads, block.keys[order]
    if isinstance(payloads, UnwrittenRecords):
        is_small = payloads.held_bytes <= _MOST_SHARE * payloads.nbytes
        num_pieces = max(num_shards, payloads.held_bytes // piece_bytes)
        if is_small and len(order) >= _LEAST_ROWS * num_pieces:
            ordered = UnwrittenRecords.joined([payloads], order)
            assert ordered is not None  # of one part
            values = PackedValues(ordered)
            if values.overhead <= _MOST_OVERHEAD * piece_bytes:
                return _ValueRows(keys, values)
        payloads = payloads.written()
    return _FramedRows(keys, *array_parts(payloads.take(pa.array(order))))


def _head(
    origin: tuple[int, int], index: int, *, records: int = 0, rejects: int = 0
) -> PieceHead:
    range_index, block_number = origin
    # A block has fewer than 2**32 pieces, as each holds at least one row.
    return PieceHead(range_index, (block_number << 32) + index, records, rejects)


def _cut_rows(shards: I64, ends: I64, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of pieces of one shard that are not too large."""
    edges = [*np.flatnonzero(np.diff(shards, prepend=-1)).tolist(), len(shards)]
    for start, stop in pairwise(edges):
        first = start
        while first < stop:
            limit = ends[first] + piece_bytes
            end = int(np.searchsorted(ends, limit, side="right")) - 1
            end = min(max(end, first + 1), stop)
            yield first, end
            first = end


def _locate(pieces: Sequence[tuple[bytes, PieceHead]]) -> tuple[Pieces, Bodies]:
    """Returns where the records of pieces are, which are in their order."""
    if pieces and all(holds_values(value) for value, _ in pieces):
        blocks = [open_piece(value, 0)[0] for value, _ in pieces]
        held = HeldValues.of(blocks, num_splits=1)
        if held is not None:
            # They are written when a window is read, as if from a file.
            return held.pieces(), Bodies(
                (), 1, lambda _, *where: held.read_into(*where)
            )
    bodies = [as_records(value) for value, _ in pieces]
    located = [
        locate_records(body, head.records, number)
        for number, (body, (_, head)) in enumerate(zip(bodies, pieces, strict=True))
    ]
    return Pieces.joined(located), Bodies(bodies)
