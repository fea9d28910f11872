"""Cuts rows into pieces that pass through the runner's own shuffle, and merges them.

A piece has rows of one range for one shard:

    "recmill3" | u64 crc32c of all following bytes
    | u64 range | u64 piece number | u64 records | u64 rejects
    | u64 order key of each record
    | u64 bytes of the schema | schema | the deferred rows: messages of Arrow IPC;
      references have a second column, the planned bytes of their records

All numbers are little-endian. Range and piece number identify a piece: pieces arrive in
any order, and after a retry some arrive twice. Rejects are rows that were planned for the
shard but could not be converted. The counts of records and rejects show when all planned
rows of a shard have arrived. Reading a damaged piece raises RecordmillError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import ShardPlan
from recordmill.transforms.arrow import I64, value_offsets
from recordmill.transforms.encode.waiting_rows import (
    binary_payloads,
    has_values,
    join_rows,
    lengths_of,
    payload_rows,
)
from recordmill.transforms.exchange.plan import shard_numbers
from recordmill.transforms.exchange.sorted_runs import (
    WINDOW_BYTES,
    Block,
    RowSegment,
    SortedRows,
    append_run,
    merge_windows,
    stable_order,
)
from recordmill.transforms.native import Buffer
from recordmill.transforms.native.numpy_loops import U32
from recordmill.transforms.tfrecord import crc32c

# Limit of a piece without its head, except for a larger record. Beam's Java runners send
# a hundred messages to a worker before they check that it accepts any, and keep them
# until then. With this size they keep 26 MB per worker, as a message contains up to two
# pieces.
PIECE_BYTES = 128 << 10

HELD_BYTES = 160 << 20  # size of records; a shard of the default size stays in memory

_MAGIC = b"recmill3"
_CRC_END = len(_MAGIC) + 8
PIECE_HEAD_BYTES = _CRC_END + 8 * 4
_KEY_BYTES = 8
# Each piece describes its columns; with few rows, encoded records are smaller.
_LEAST_ROWS = 64
_MOST_OVERHEAD = 0.25  # share of a piece
_PADDING = 64  # Arrow IPC pads each buffer to a multiple of this size


@dataclass(frozen=True, slots=True)
class PieceHead:
    """The head of a piece: its identity and its counts."""

    range_index: int  # index of the range of its rows
    number: int  # number of the piece in its range
    records: int = 0  # number of records
    rejects: int = 0  # number of planned rows that could not be converted

    @property
    def sort_key(self) -> tuple[int, int]:
        """Returns range index and piece number, which identify and order pieces."""
        return self.range_index, self.number


def _pack(head: PieceHead, *body: Buffer) -> bytes:
    packed = b"".join([np.array(astuple(head), "<u8").tobytes(), *body])
    return b"".join([_MAGIC, crc32c(packed).to_bytes(8, "little"), packed])


def read_head(piece: bytes) -> PieceHead:
    """Reads the head of a piece, and verifies the checksum of the whole piece."""
    if len(piece) >= PIECE_HEAD_BYTES and piece.startswith(_MAGIC):
        crc, *words = np.frombuffer(piece, "<u8", 5, len(_MAGIC)).tolist()
        if crc32c(memoryview(piece)[_CRC_END:]) == crc:
            return PieceHead(*words)
    raise RecordmillError(
        f"a piece of {len(piece)} bytes was damaged by the runner or its storage (engine "
        "exchange). Run again, or use exchange scratch"
    )


def open_piece(piece: bytes, split_index: int) -> tuple[Block, PieceHead]:
    """Reads the rows, in the order of their keys, and the head of a piece."""
    head = read_head(piece)
    return _open(piece, head, split_index), head


def _open(piece: bytes, head: PieceHead, split_index: int) -> Block:
    keys = np.frombuffer(piece, "<u8", head.records, PIECE_HEAD_BYTES)
    at = PIECE_HEAD_BYTES + keys.nbytes + 8
    end = at + int.from_bytes(piece[at - 8 : at], "little")
    rows = pa.ipc.read_record_batch(
        pa.py_buffer(piece).slice(end), _schema(piece[at:end])
    )
    planned_bytes = lengths_of(rows)
    if rows.num_columns > 1 and not has_values(rows):
        planned_bytes = rows["planned"].to_numpy()
        rows = payload_rows(rows.column(0))
    splits = np.full(head.records, split_index, np.uint8)
    return Block(rows, keys, splits, planned_bytes)


# All pieces of a block, and mostly all pieces of a dataset, have the same schema.
@lru_cache(maxsize=64)
def _schema(message: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(message))


def cut_block(
    block: Block,
    plan: ShardPlan,
    origin: tuple[int, int],
    skip: frozenset[int] = frozenset(),
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[tuple[int, bytes]]:
    """Yields the pieces of a block, as pairs (number of the shard, piece).

    `origin` is the index of the range, and the number of the block in it. `skip` contains
    finished shards. `piece_bytes` limits a piece without its head, except for a larger
    record.
    """
    shards = shard_numbers(plan, block.keys, block.splits)
    # Stable: rows with equal keys stay in their order.
    order = np.lexsort((block.keys, shards))
    if skip:
        order = order[~np.isin(shards[order], list(skip))]
    if not len(order):
        return
    shards, keys = shards[order], block.keys[order].astype("<u8")
    rows = _packable(block.rows, order, len(np.unique(shards)), piece_bytes)
    planned_bytes = block.planned_bytes[order]
    if not (has_values(rows) or np.array_equal(planned_bytes, lengths_of(rows))):
        rows = rows.append_column("planned", pa.array(planned_bytes))  # references
    limit = piece_bytes - _overhead(rows)
    schema = _packed_schema(rows)
    for index, (first, end) in enumerate(_cut_rows(shards, _row_ends(rows), limit)):
        head = _head(origin, index, records=end - first)
        message = rows.slice(first, end - first).serialize()
        yield int(shards[first]), _pack(head, keys[first:end], schema, message)


def reject_pieces(
    rejects: I64, origin: tuple[int, int], skip: frozenset[int] = frozenset()
) -> Iterator[tuple[int, bytes]]:
    """Yields pieces without records, which report the rejects planned for each shard.

    `rejects` is the number of rejects per shard. For the other arguments see `cut_block`.
    """
    for index, number in enumerate(np.flatnonzero(rejects).tolist()):
        if number not in skip:
            yield number, _pack(_head(origin, index, rejects=int(rejects[number])))


class ShardPieces:
    """The pieces of one shard, added in any order, possibly twice.

    Records beyond `held_bytes` are sorted into a file without a name, so the memory of a
    writer does not depend on the size of its shard.
    """

    def __init__(
        self, folder: Path | None = None, held_bytes: int = HELD_BYTES
    ) -> None:
        """Creates an empty collection; `folder` is for temporary files."""
        self.planned_rows = 0  # records and rejects of all pieces so far
        self._folder, self._held_bytes = folder, held_bytes
        self._arrival_numbers: dict[PieceHead, int] = {}  # in the order of arrival
        self._held_blocks: list[tuple[PieceHead, Block]] = []
        self._held_size_bytes = 0
        self._parts: list[RowSegment] = []
        self._file: IO[bytes] | None = None

    def add(self, piece: bytes) -> None:
        """Adds a piece, unless it was added before."""
        head = read_head(piece)
        if head in self._arrival_numbers:
            return
        self._arrival_numbers[head] = len(self._arrival_numbers)
        self.planned_rows += head.records + head.rejects
        if not head.records:
            return
        if self._held_size_bytes >= self._held_bytes:
            self._save()
        block = _open(piece, head, 0)
        self._held_blocks.append((head, block))
        self._held_size_bytes += int(lengths_of(block.rows).sum())

    def windows(
        self, window_bytes: int = WINDOW_BYTES, *, break_ties_by_content: bool = False
    ) -> Iterator[pa.BinaryArray]:
        """Yields the payloads of the shard, as `merge_windows` does."""
        if self._file is not None and self._held_blocks:
            self._save()
        elif self._held_blocks:
            run, numbers = self._sorted()
            self._parts = [replace(run.part(), ranks=numbers)]
        heads = sorted(self._arrival_numbers, key=lambda head: head.sort_key)
        ranks = np.empty(len(heads), np.uint32)
        ranks[[self._arrival_numbers[head] for head in heads]] = np.arange(len(heads))
        parts, self._parts = self._parts, []  # so that the merge can free them
        return merge_windows(
            [replace(part, ranks=ranks[part.ranks]) for part in parts],
            window_bytes,
            break_ties_by_content=break_ties_by_content,
        )

    def _sorted(self) -> tuple[SortedRows, U32]:
        """Returns the held rows, sorted, and the number of the piece of each row."""
        self._held_blocks.sort(key=lambda head_and_block: head_and_block[0].sort_key)
        blocks = [block for _, block in self._held_blocks]
        numbers = np.array(
            [self._arrival_numbers[head] for head, _ in self._held_blocks], np.uint32
        )
        numbers = numbers.repeat([len(block.keys) for block in blocks])
        order = stable_order(np.concatenate([block.keys for block in blocks]))
        self._held_blocks.clear()
        self._held_size_bytes = 0
        return SortedRows.from_blocks(blocks, num_splits=1), numbers[order]

    def _save(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115  closed with this
        run, numbers = self._sorted()
        self._parts.append(replace(append_run(self._file, run), ranks=numbers))


def _packable(
    rows: pa.RecordBatch, order: npt.NDArray[np.intp], num_shards: int, piece_bytes: int
) -> pa.RecordBatch:
    """Returns rows in this order, as columns of values if these take less space."""
    if has_values(rows):
        num_pieces = max(num_shards, rows.nbytes // piece_bytes)
        is_small = _overhead(rows) <= _MOST_OVERHEAD * piece_bytes
        if is_small and len(order) >= _LEAST_ROWS * num_pieces:
            return rows.take(pa.array(order))
    return payload_rows(binary_payloads(join_rows([rows], order)))


def _packed_schema(rows: pa.RecordBatch) -> bytes:
    schema = bytes(rows.schema.serialize())
    return len(schema).to_bytes(8, "little") + schema


def _overhead(rows: pa.RecordBatch) -> int:
    """Returns the largest size of a piece in bytes without the bytes in `_row_ends`."""
    empty = pa.RecordBatch.from_pylist([], schema=rows.schema)
    num_bytes = len(_packed_schema(rows)) + empty.serialize().size
    buffers = sum(map(len, (array.buffers() for array in rows.columns)))
    return int(num_bytes) + _PADDING * buffers


def _row_ends(rows: pa.RecordBatch) -> I64:
    """Returns the size in bytes of a piece that ends before each row, or after all."""
    row_bits = 8 * _KEY_BYTES
    ends = np.zeros(rows.num_rows + 1, np.int64)
    for array in rows.columns:
        row_bits += 1 if array.null_count else 0
        if pa.types.is_binary(array.type):
            offsets = value_offsets(array)
            row_bits += 8 * offsets.itemsize
            ends += offsets - offsets[0]
        else:
            row_bits += array.type.bit_width
    return ends + row_bits * np.arange(len(ends)) // 8


def _head(
    origin: tuple[int, int], index: int, *, records: int = 0, rejects: int = 0
) -> PieceHead:
    range_index, block_number = origin
    # A block has fewer than 2**32 pieces, as each holds at least one row.
    return PieceHead(range_index, (block_number << 32) + index, records, rejects)


def _cut_rows(shards: I64, ends: I64, piece_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (start, end) of the rows of each piece: one shard, limited size."""
    edges = [*np.flatnonzero(np.diff(shards, prepend=-1)).tolist(), len(shards)]
    for start, stop in pairwise(edges):
        first = start
        while first < stop:
            limit = ends[first] + piece_bytes
            end = int(np.searchsorted(ends, limit, side="right")) - 1
            end = min(max(end, first + 1), stop)
            yield first, end
            first = end
