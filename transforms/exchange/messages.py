"""Cuts rows into pieces that pass through the runner's own shuffle, and merges these.

A piece holds records of one range for one shard (see piece.py): framed, or as their
values, if that is at most half as much and pieces have some rows. Without its head it has
at most PIECE_BYTES, or one record. Pieces arrive in any order, and after a retry perhaps
twice. Records and rejects together tell when all planned rows of a shard have arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.shards import ShardPlan
from recordmill.transforms.arrow import I64, U8, U64, array_parts
from recordmill.transforms.encode.packed_values import PackedValues
from recordmill.transforms.encode.unwritten_records import UnwrittenRecords
from recordmill.transforms.exchange.block import Block
from recordmill.transforms.exchange.held_values import HeldValues
from recordmill.transforms.exchange.merge import (
    WINDOW_BYTES,
    Bodies,
    Pieces,
    merge_windows,
)
from recordmill.transforms.exchange.piece import (
    KEY_BYTES,
    LENGTH_BYTES,
    PieceHead,
    as_records,
    holds_values,
    locate_records,
    open_piece,
    pack_records,
    pack_rejects,
    pack_values,
    read_head,
)
from recordmill.transforms.exchange.plan import shard_numbers

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
