"""Packs pieces of shards as values that pass through the runner's own shuffle (engine).

    "recmillp" | u64 crc32c of all up to the payload | u64 range | u64 piece number
    | u64 records | u64 rejects | u64 order keys | u64 lengths | payload of record 0 | ...

All little-endian. Without its head a value has at most PIECE_BYTES, or one record.
Values arrive in any order, and after a retry perhaps twice; range and piece number
identify and order them. Rejects are rows that were planned for the shard but could not
be converted: the sum of records and rejects tells when all planned rows of the shard
have arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.schemas.dataset.shards import ShardPlan
from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.arrow import I64, array_parts, binary_array, offsets_of
from recordmill.transforms.encode.unwritten_records import written_payloads
from recordmill.transforms.exchange.block import Block
from recordmill.transforms.exchange.merge import (
    WINDOW_BYTES,
    Bodies,
    Pieces,
    merge_windows,
)
from recordmill.transforms.exchange.plan import shard_numbers
from recordmill.transforms.tfrecord import crc32c

# Limit of a value without its head, except for a larger record. Beam's Java runners
# send a worker a hundred messages before they check that it accepts any, and keep them
# until then: with this size 26 MB for each worker, as a message holds up to two values.
PIECE_BYTES = 128 << 10

_MAGIC = b"recmillp"
_CRC_END = len(_MAGIC) + 8
PIECE_HEAD_BYTES = _CRC_END + 8 * 4
_RECORD_BYTES = 8 + 8  # order key and length of a record


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
    payloads = written_payloads(block.payloads).take(pa.array(order))
    keys, shards = block.keys[order].astype("<u8"), shards[order]
    offsets, data = array_parts(payloads)
    body = data.data
    lengths = np.diff(offsets).astype("<u8")
    sizes = offsets + _RECORD_BYTES * np.arange(len(offsets))
    for piece_index, (first, end) in enumerate(_cut_rows(shards, sizes, piece_bytes)):
        head = _build_head(origin, piece_index, records=end - first)
        metadata = head + keys[first:end].tobytes() + lengths[first:end].tobytes()
        payload = body[offsets[first] : offsets[end]]
        yield (
            int(shards[first]),
            b"".join([_MAGIC, _pack_crc(metadata), metadata, payload]),
        )


def reject_pieces(
    rejects: I64, origin: tuple[int, int], skip: frozenset[int] = frozenset()
) -> Iterator[tuple[int, bytes]]:
    """Builds pieces without records, which tell shards how many rows will not come.

    Args:
      rejects: number of planned rows that were rejected, for each shard.
      origin: the range's index, and the number of all its blocks.
      skip: shards that are finished already.
    """
    for piece_index, number in enumerate(np.flatnonzero(rejects).tolist()):
        if number not in skip:
            head = _build_head(origin, piece_index, rejects=int(rejects[number]))
            yield number, b"".join([_MAGIC, _pack_crc(head), head])


def planned_rows(values: Iterable[bytes]) -> int:
    """Counts the planned rows in pieces: their records and rejects.

    A piece that arrived twice counts once.

    Raises:
      RecordmillError: a value is damaged.
    """
    heads = {_read_head(value) for value in values}
    return sum(records + rejects for _, _, records, rejects in heads)


def _build_head(
    origin: tuple[int, int], piece_index: int, *, records: int = 0, rejects: int = 0
) -> bytes:
    range_index, block_number = origin
    # A block has fewer than 2**32 pieces, as each holds at least one row.
    number = (block_number << 32) + piece_index
    return np.array([range_index, number, records, rejects], "<u8").tobytes()


def _pack_crc(metadata: bytes) -> bytes:
    return crc32c(metadata).to_bytes(8, "little")


def _cut_rows(shards: I64, sizes: I64, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of pieces of one shard that are not too large."""
    edges = [*np.flatnonzero(np.diff(shards, prepend=-1)).tolist(), len(shards)]
    for start, stop in pairwise(edges):
        first = start
        while first < stop:
            limit = sizes[first] + piece_bytes
            end = int(np.searchsorted(sizes, limit, side="right")) - 1
            end = min(max(end, first + 1), stop)
            yield first, end
            first = end


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
    opened = {}
    for value in values:
        range_index, number, num_records, _ = _read_head(value)
        opened[range_index, number] = (value, num_records)
    bodies: list[bytes] = []
    pieces = []
    for _, (value, num_records) in sorted(opened.items()):
        pieces.append(_locate_records(value, num_records, len(bodies)))
        bodies.append(value)
    return merge_windows(
        Pieces.joined(pieces),
        Bodies(bodies),
        window_bytes,
        break_ties_by_content=break_ties_by_content,
    )


def open_piece(value: bytes, split_index: int) -> tuple[Block, tuple[int, int]]:
    """Reads the rows of a piece, to be cut again; planned bytes are their lengths.

    Args:
      value: the piece.
      split_index: split of all its rows.

    Returns:
      The rows, in the order of their keys; and (range, number) of the piece.

    Raises:
      RecordmillError: the value is damaged.
    """
    range_index, number, num_records, _ = _read_head(value)
    piece = _locate_records(value, num_records, 0)
    payload = np.frombuffer(
        value, np.uint8, offset=PIECE_HEAD_BYTES + _RECORD_BYTES * num_records
    )
    payloads = binary_array(offsets_of(piece.lengths), payload)
    splits = np.full(num_records, split_index, np.uint8)
    return Block(payloads, piece.keys, splits, piece.lengths), (range_index, number)


def _read_head(value: bytes) -> tuple[int, int, int, int]:
    """Returns (range, number, records, rejects); verifies all except the payload."""
    if len(value) >= PIECE_HEAD_BYTES and value.startswith(_MAGIC):
        words: list[int] = np.frombuffer(value, "<u8", 5, len(_MAGIC)).tolist()
        crc, range_index, number, num_records, rejects = words
        metadata = memoryview(value)[
            _CRC_END : PIECE_HEAD_BYTES + _RECORD_BYTES * num_records
        ]
        if crc32c(metadata) == crc:
            return range_index, number, num_records, rejects
    raise RecordmillError(
        f"a piece of {len(value)} bytes was damaged by the runner or its storage (engine "
        "exchange). Run again, or use exchange scratch"
    )


def _locate_records(value: bytes, num_records: int, body: int) -> Pieces:
    words = np.frombuffer(value, "<u8", 2 * num_records, PIECE_HEAD_BYTES)
    lengths = words[num_records:].astype(np.int64)
    starts = (
        np.cumsum(lengths) - lengths + (PIECE_HEAD_BYTES + _RECORD_BYTES * num_records)
    )
    if num_records and int(starts[-1] + lengths[-1]) != len(value):
        raise RecordmillError(
            f"a piece has {len(value)} bytes, expected {int(starts[-1] + lengths[-1])}: it "
            "was damaged by the runner or its storage (engine exchange). Run again, or use "
            "exchange scratch"
        )
    return Pieces(
        np.full(num_records, body, np.int64),
        starts.astype(np.uint64),
        lengths,
        lengths.astype(np.uint64),
        words[:num_records],
    )
