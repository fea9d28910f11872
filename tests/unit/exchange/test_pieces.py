"""Pieces: every row reaches its shard once and in order, whatever the engine does."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting_zoo import batch_of, loaded_from, schema_of

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.ranges import KEY_SPACE, ShardPlan, ShardTask, SplitPlan
from recordmill.transforms.encode.waiting_rows import (
    binary_payloads,
    defer_rows,
    has_values,
    lengths_of,
    payload_rows,
    payloads_of,
)
from recordmill.transforms.exchange import pieces as module
from recordmill.transforms.exchange.pieces import (
    PIECE_HEAD_BYTES,
    PieceHead,
    ShardPieces,
    cut_block,
    open_piece,
    reject_pieces,
)
from recordmill.transforms.exchange.sorted_runs import Block

Row = tuple[int, int, bytes]  # key, split, payload

FEATURES = pa.schema([("n" * 60, pa.int64()), ("payload" * 6, pa.binary())])

KEYS = st.sampled_from([0, 1, 2, 1 << 62, 1 << 63, KEY_SPACE - 1]) | st.integers(
    0, KEY_SPACE - 1
)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 1), st.binary(max_size=40)), max_size=30)


# Of a piece of payloads, besides these: see `_overhead`.
OVERHEAD = module._overhead(payload_rows(pa.array([b""])))


def plan_of(*bounds: list[int]) -> ShardPlan:
    """A split for each list of inner bounds."""
    splits = []
    for number, inner in enumerate(bounds):
        count = len(inner) + 1
        whole = (0, *inner, KEY_SPACE)
        splits.append(SplitPlan(f"s{number}", whole, (1,) * count, (1,) * count))
    return ShardPlan(tuple(splits))


PLANS = st.builds(
    plan_of, *[st.lists(KEYS.filter(bool), max_size=3, unique=True).map(sorted)] * 2
)


def block_of(rows: list[Row]) -> Block:
    payloads = [b"before", *(payload for _, _, payload in rows)]
    return Block(
        payload_rows(pa.array(payloads, pa.binary()).slice(1)),
        np.array([key for key, _, _ in rows], np.uint64),
        np.array([split for _, split, _ in rows], np.uint8),
        np.array([len(payload) for _, _, payload in rows], np.int64),
    )


def batch_with(rows: list[Row]) -> pa.RecordBatch:
    """A feature that holds the payload, and one that is missing in half of the rows."""
    cells = [(len(data) if len(data) % 2 else None, data) for _, _, data in rows]
    return batch_of(cells, FEATURES)


def values_block(rows: list[Row]) -> Block:
    """Rows that wait as their values, however large these are."""
    waiting = loaded_from(batch_with(rows), schema_of(FEATURES))
    return replace(block_of(rows), rows=waiting, planned_bytes=lengths_of(waiting))


def written(block: Block) -> Block:
    return replace(block, rows=payload_rows(binary_payloads(block.rows)))


def both(rows: list[Row]) -> tuple[Block, Block]:
    block = values_block(rows)
    return block, written(block)


def holds_values(piece: bytes) -> bool:
    return has_values(open_piece(piece, 0)[0].rows)


def pieces_of(block: Block) -> list[bytes]:
    return [piece for _, piece in cut_block(block, plan_of([]), (0, 0))]


def shuffled(
    blocks: list[Block], plan: ShardPlan, piece_bytes: int, seed: int
) -> dict[int, list[bytes]]:
    """The pieces by shard, in an order that no one can rely on."""
    groups: dict[int, list[bytes]] = {}
    for index, block in enumerate(blocks):
        origin = (index // 2, index % 2)
        for number, piece in cut_block(block, plan, origin, piece_bytes=piece_bytes):
            groups.setdefault(number, []).append(piece)
    for pieces in groups.values():
        random.Random(seed).shuffle(pieces)
    return groups


def gathered(pieces: list[bytes], held_bytes: int = 1 << 30) -> ShardPieces:
    found = ShardPieces(held_bytes=held_bytes)
    for piece in pieces:
        found.add(piece)
    return found


def rows_in(
    pieces: list[bytes], window_bytes: int = 8 << 20, held_bytes: int = 1 << 30
) -> list[bytes]:
    windows = gathered(pieces, held_bytes).windows(window_bytes)
    return [row for window in windows for row in window.to_pylist()]


def planned_rows(pieces: list[bytes]) -> int:
    return gathered(pieces).planned_rows


def mine(task: ShardTask, rows: Iterable[Row]) -> list[Row]:
    """The rows of a shard, as a naive sort would have them."""
    found = [
        row
        for row in rows
        if row[1] == task.split_index and task.low <= row[0] < task.high
    ]
    return sorted(found, key=lambda row: row[0])


@given(
    st.lists(ROWS, max_size=5),
    PLANS,
    st.integers(1, 200),
    st.integers(1, 100),
    st.integers(1, 300),
    st.integers(0, 9),
)
def test_rows_arrive_as_a_naive_sort_would_have_them(
    blocks: list[list[Row]],
    plan: ShardPlan,
    piece_bytes: int,
    window_bytes: int,
    held_bytes: int,
    seed: int,
) -> None:
    """Also where most of them lie in a file meanwhile."""
    groups = shuffled([block_of(rows) for rows in blocks], plan, piece_bytes, seed)
    for number in range(plan.num_shards):
        wanted = mine(plan.task(number), chain.from_iterable(blocks))
        found = rows_in(groups.get(number, []), window_bytes)
        assert found == [payload for _, _, payload in wanted]
        assert rows_in(groups.get(number, []), window_bytes, held_bytes) == found
        assert planned_rows(groups.get(number, [])) == len(wanted)
    assert set(groups) <= set(range(plan.num_shards))


@given(
    st.lists(st.tuples(st.sampled_from(["values", "framed"]), ROWS), max_size=4),
    PLANS,
    st.integers(1, 200),
    st.integers(1, 100),
    st.integers(0, 9),
)
def test_pieces_of_values_and_of_records_make_the_same_shards(
    blocks: list[tuple[str, list[Row]]],
    plan: ShardPlan,
    piece_bytes: int,
    window_bytes: int,
    seed: int,
) -> None:
    kinds = [kind for kind, rows in blocks if rows]
    waiting = [values_block(rows) for _, rows in blocks if rows]
    framed = [*map(written, waiting)]
    mixed = [
        one if kind == "values" else other
        for kind, one, other in zip(kinds, waiting, framed, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LEAST_ROWS", 0)
        patch.setattr(module, "_MOST_OVERHEAD", 1e9)
        groups = shuffled(mixed, plan, piece_bytes, seed)
    expected = shuffled(framed, plan, piece_bytes, seed)
    assert set(groups) == set(expected)
    for number, pieces in groups.items():
        assert rows_in(pieces, window_bytes) == rows_in(expected[number], window_bytes)
        assert planned_rows(pieces) == planned_rows(expected[number])


def test_values_go_in_place_of_records_where_that_pays() -> None:
    small, large = ([(key, 0, bytes(size)) for key in range(99)] for size in (1, 200))
    values, records = (pieces_of(block) for block in both(small))
    assert 3 * sum(map(len, values)) < sum(map(len, records))
    assert rows_in(values) == rows_in(records)
    few = small[:63]
    assert len({tuple(pieces_of(block)) for block in both(few)}) == 1
    waiting = defer_rows(batch_with(large), schema_of(FEATURES))
    assert not has_values(waiting)


@pytest.mark.parametrize("name", ["n" * 100, "n" * 70_000])
def test_pieces_of_values_are_no_larger_than_asked(name: str) -> None:
    """Names are in each piece; where they are long, records are sent."""
    features = pa.schema([(name, pa.int64()), ("missing" * 9, pa.binary())])
    cells = [(key, b"x" if key % 2 else None) for key in range(3000)]
    records = loaded_from(batch_of(cells, features), schema_of(features))
    rows = block_of([(key, 0, b"") for key in range(3000)])
    block = replace(rows, rows=records, planned_bytes=lengths_of(records))
    pieces = [
        piece for _, piece in cut_block(block, plan_of([]), (0, 0), piece_bytes=20_000)
    ]
    if len(name) == 100:
        assert all(map(holds_values, pieces))
        assert 10_000 < max(map(len, pieces)) <= 20_000 + PIECE_HEAD_BYTES
    else:
        assert not any(map(holds_values, pieces))
    assert rows_in(pieces) == payloads_of(records).to_pylist()


@pytest.mark.parametrize(
    ("rows", "shards", "are_values"),
    [(63, 1, False), (64, 1, True), (127, 2, False), (128, 2, True)],
)
def test_values_are_sent_where_each_shard_gets_some_rows(
    rows: int, shards: int, are_values: bool
) -> None:
    keys = [key << 50 for key in range(rows)]
    block = values_block([(key, 0, b"x") for key in keys])
    plan = plan_of([keys[rows // 2]] if shards == 2 else [])
    pieces = [piece for _, piece in cut_block(block, plan, (0, 0))]
    assert [*map(holds_values, pieces)] == [are_values] * shards


SIZES = st.lists(st.integers(0, 60) | st.just(999), min_size=1, max_size=30)


@given(SIZES, st.integers(100, 300))
def test_a_piece_holds_as_many_records_as_fit(sizes: list[int], limit: int) -> None:
    limit += OVERHEAD
    block = block_of([(key, 0, bytes(size)) for key, size in enumerate(sizes)])
    pieces = [p for _, p in cut_block(block, plan_of([]), (0, 0), piece_bytes=limit)]
    bodies = [len(piece) - PIECE_HEAD_BYTES for piece in pieces]
    counts = [open_piece(piece, 0)[1].records for piece in pieces]
    assert all(
        body <= limit or records == 1
        for body, records in zip(bodies, counts, strict=True)
    )
    for body, end in zip(bodies[:-1], accumulate(counts), strict=False):
        assert body + OVERHEAD + 12 + sizes[end] > limit


def test_pieces_are_numbered_block_after_block() -> None:
    block = block_of([(key, 0, bytes(90)) for key in range(3)])
    pieces = [p for _, p in cut_block(block, plan_of([]), (5, 3), piece_bytes=120)]
    heads = [open_piece(piece, 0)[1] for piece in pieces]
    assert heads == [PieceHead(5, (3 << 32) + index, 1, 0) for index in range(3)]


def test_a_piece_that_came_twice_counts_once() -> None:
    (pair,) = cut_block(block_of([(1, 0, b"a"), (2, 0, b"b")]), plan_of([]), (0, 0))
    assert rows_in([pair[1], pair[1]]) == [b"a", b"b"]


def test_rejects_count_and_add_no_rows() -> None:
    plan = plan_of([10, 20, 30])
    block = block_of([(5, 0, b"a"), (25, 0, b"c")])
    pieces = list(cut_block(block, plan, (7, 0)))
    pieces += reject_pieces(np.array([0, 3, 1, 4]), (7, 1), skip=frozenset({3}))
    by_shard = {number: [p for n, p in pieces if n == number] for number in range(4)}
    assert [planned_rows(by_shard[n]) for n in range(4)] == [1, 3, 2, 0]
    assert [planned_rows(by_shard[n] * 2) for n in range(4)] == [1, 3, 2, 0]
    assert [rows_in(by_shard[n]) for n in range(4)] == [[b"a"], [], [b"c"], []]


@given(ROWS.filter(bool), st.integers(1, 200), st.integers(1, 300))
def test_references_come_with_the_bytes_of_their_records(
    rows: list[Row], piece_bytes: int, held_bytes: int
) -> None:
    """By which the windows are cut in which the records are read and written."""
    rows = [(key, 0, payload) for key, _, payload in rows]
    block = replace(block_of(rows), planned_bytes=np.full(len(rows), 1000))
    pieces = [
        p for _, p in cut_block(block, plan_of([]), (0, 0), piece_bytes=piece_bytes)
    ]
    for opened, _ in (open_piece(piece, 0) for piece in pieces):
        assert opened.planned_bytes.tolist() == [1000] * len(opened.keys)
    windows = list(gathered(pieces, held_bytes).windows(3000))
    assert [len(window) for window in windows[:-1]] == [3] * (len(windows) - 1)
    found = [row for window in windows for row in window.to_pylist()]
    assert found == [payload for _, _, payload in mine(plan_of([]).task(0), rows)]


def test_finished_shards_are_left_out() -> None:
    plan = plan_of([10, 20])
    block = block_of([(5, 0, b"a"), (15, 0, b"b"), (25, 0, b"c")])
    pieces = dict(cut_block(block, plan, (0, 0), frozenset({0, 2})))
    assert {number: rows_in([p]) for number, p in pieces.items()} == {1: [b"b"]}
    assert not list(cut_block(block, plan, (0, 0), frozenset({0, 1, 2})))


def test_a_shard_without_rows() -> None:
    assert rows_in([]) == []


@pytest.mark.parametrize("kind", ["records", "values"])
def test_damaged_pieces_are_noticed(kind: str) -> None:
    rows = [(key, 0, b"a") for key in range(module._LEAST_ROWS)]
    if kind == "records":
        ((_, piece),) = cut_block(block_of(rows), plan_of([]), (0, 0))
    else:
        ((_, piece),) = cut_block(values_block(rows), plan_of([]), (0, 0))
    for size in range(0, len(piece), 7):
        with pytest.raises(RecordmillError, match="damaged by the runner"):
            rows_in([piece[:size]])
    for place in range(0, len(piece), 7):
        changed = bytearray(piece)
        changed[place] ^= 1
        with pytest.raises(RecordmillError, match="damaged by the runner"):
            rows_in([bytes(changed)])
    message = f"^a piece of {len(piece) + 1} bytes was damaged by the runner"
    with pytest.raises(RecordmillError, match=message):
        rows_in([piece + b"x"])
