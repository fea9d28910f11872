"""Pieces inline: a part of a shard as one value that goes through the engine.

    "recmillp" | u64 crc32c of all up to the payload | u64 range | u64 part | u64 records
    | u64 rejects | u64 order keys | u64 lengths | payload of record 0 | ...

All little-endian. Behind its head a value is at most PIECE_BYTES, or one record. Values
arrive in any order, and after a retry perhaps twice; range and part tell them apart and
order them. Rejects are rows that were planned for the shard and turned out to be unusable,
so that whoever adds up records and rejects knows when the shard has all that was planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.schemas.dataset.shards import ShardPlan
from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.arrow import I64, array_parts, binary_array, offsets_of
from recordmill.transforms.exchange.block import Block
from recordmill.transforms.exchange.merge import WINDOW_BYTES, Pieces, windows_of
from recordmill.transforms.exchange.plan import shard_numbers
from recordmill.transforms.tfrecord import crc32c

# Of a value without its head, but for a larger record. Beam's Java runners send a worker a
# hundred messages before they look whether it takes any, and hold them until then: 26 MB
# of these for each worker, as a message is sent when it is no longer smaller than that.
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
    """The pieces of a block, each with the number of its shard.

    Args:
      block: the rows.
      plan: says which shard a row goes to.
      origin: the range's index, and the number of its blocks before this one.
      skip: shards that are finished already.
      piece_bytes: most bytes of a value behind its head, but for a larger record.

    Yields:
      (number of the shard, see recordmill.transforms.exchange.plan.shard_numbers; piece).
    """
    shards = shard_numbers(plan, block.keys, block.splits)
    wanted = np.flatnonzero(~np.isin(shards, list(skip))) if skip else None
    # Stable: a tie within a block goes to the earlier row.
    order = np.lexsort((block.keys, shards))
    if wanted is not None:
        order = order[np.isin(order, wanted)]
    if not len(order):
        return
    payloads = block.payloads.take(pa.array(order))
    keys, shards = block.keys[order].astype("<u8"), shards[order]
    offsets, data = array_parts(payloads)
    body = data.data
    lengths = np.diff(offsets).astype("<u8")
    sizes = offsets + _RECORD_BYTES * np.arange(len(offsets))
    for part, (first, end) in enumerate(_cuts(shards, sizes, piece_bytes)):
        head = _head(origin, part, records=end - first)
        facts = head + keys[first:end].tobytes() + lengths[first:end].tobytes()
        payload = body[offsets[first] : offsets[end]]
        yield int(shards[first]), b"".join([_MAGIC, _crc_of(facts), facts, payload])


def reject_pieces(
    rejects: I64, origin: tuple[int, int], skip: frozenset[int] = frozenset()
) -> Iterator[tuple[int, bytes]]:
    """Pieces without records, which tell shards of rows that will not come.

    Args:
      rejects: planned rows that were rejected, of each shard.
      origin: the range's index, and the number of all its blocks.
      skip: shards that are finished already.
    """
    for part, number in enumerate(np.flatnonzero(rejects).tolist()):
        if number not in skip:
            head = _head(origin, part, rejects=int(rejects[number]))
            yield number, b"".join([_MAGIC, _crc_of(head), head])


def planned_rows(values: Iterable[bytes]) -> int:
    """How many planned rows pieces account for: their records and rejects.

    A piece that came twice counts once.

    Raises:
      RecordmillError: a value is no piece, or not as it was made.
    """
    heads = {_head_of(value) for value in values}
    return sum(records + rejects for _, _, records, rejects in heads)


def _head(
    origin: tuple[int, int], part: int, *, records: int = 0, rejects: int = 0
) -> bytes:
    range_index, block_number = origin
    # A block has fewer than 2**32 pieces: each holds a row at least.
    number = (block_number << 32) + part
    return np.array([range_index, number, records, rejects], "<u8").tobytes()


def _crc_of(facts: bytes) -> bytes:
    return crc32c(facts).to_bytes(8, "little")


def _cuts(shards: I64, sizes: I64, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Where sorted rows are cut: at every shard, and before a piece grows too large."""
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
    """The payloads of a shard in order, a window at a time.

    Args:
      values: all its pieces, in any order.
      window_bytes: bytes of a window; one record may be more.
      break_ties_by_content: see recordmill.transforms.exchange.merge.

    Raises:
      RecordmillError: a value is no piece, or not as it was made.
    """
    opened = {}
    for value in values:
        range_index, number, num_records, _ = _head_of(value)
        opened[range_index, number] = (value, num_records)
    bodies: list[bytes] = []
    pieces = []
    for _, (value, num_records) in sorted(opened.items()):
        pieces.append(_piece_of(value, num_records, len(bodies)))
        bodies.append(value)

    def read_into(number: int, target: memoryview, offset: int) -> None:
        target[:] = memoryview(bodies[number])[offset : offset + len(target)]

    joined = Pieces.joined(pieces)
    return windows_of(
        joined, read_into, window_bytes, break_ties_by_content=break_ties_by_content
    )


def open_piece(value: bytes, split_index: int) -> tuple[Block, tuple[int, int]]:
    """The rows of a piece, to be cut again; their planned bytes are their lengths.

    Args:
      value: the piece.
      split_index: of all its rows.

    Returns:
      The rows, in the order of their keys; and what tells the piece from others.

    Raises:
      RecordmillError: the value is no piece, or not as it was made.
    """
    range_index, number, num_records, _ = _head_of(value)
    piece = _piece_of(value, num_records, 0)
    payload = np.frombuffer(
        value, np.uint8, offset=PIECE_HEAD_BYTES + _RECORD_BYTES * num_records
    )
    payloads = binary_array(offsets_of(piece.lengths), payload)
    splits = np.full(num_records, split_index, np.uint8)
    return Block(payloads, piece.keys, splits, piece.lengths), (range_index, number)


def _head_of(value: bytes) -> tuple[int, int, int, int]:
    """Range, number, records, rejects of a piece that is as it was made, payload aside."""
    if len(value) >= PIECE_HEAD_BYTES and value.startswith(_MAGIC):
        words: list[int] = np.frombuffer(value, "<u8", 5, len(_MAGIC)).tolist()
        crc, range_index, number, num_records, rejects = words
        facts = memoryview(value)[
            _CRC_END : PIECE_HEAD_BYTES + _RECORD_BYTES * num_records
        ]
        if crc32c(facts) == crc:
            return range_index, number, num_records, rejects
    raise RecordmillError(
        f"a piece of {len(value)} bytes came through the engine damaged: the runner or "
        "its storage changed it; run the job again"
    )


def _piece_of(value: bytes, num_records: int, body: int) -> Pieces:
    words = np.frombuffer(value, "<u8", 2 * num_records, PIECE_HEAD_BYTES)
    lengths = words[num_records:].astype(np.int64)
    starts = (
        np.cumsum(lengths) - lengths + (PIECE_HEAD_BYTES + _RECORD_BYTES * num_records)
    )
    if num_records and int(starts[-1] + lengths[-1]) != len(value):
        raise RecordmillError(
            f"a piece of {len(value)} bytes came through the engine, expected "
            f"{int(starts[-1] + lengths[-1])}: the runner or its storage changed it; "
            "run the job again"
        )
    return Pieces(
        np.full(num_records, body, np.int64),
        starts.astype(np.uint64),
        lengths,
        lengths.astype(np.uint64),
        words[:num_records],
    )
