"""Exact and stratified splits against a planner that sorts all draws and cuts."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

import numpy as np
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.exchange.exact_splits import (
    WIDTH,
    RankSketch,
    divide_rows,
    expected_ends,
    find_limits,
)
from recordmill.transforms.exchange.keys import (
    assign_splits,
    mix_bits,
    split_hashes,
    text_hash,
)

SHARES = st.lists(st.integers(1, 20), min_size=1, max_size=5).map(
    lambda parts: [Fraction(part, sum(parts)) for part in parts]
)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), SHARES)
@examples(200)
def test_no_number_is_a_row_away_from_its_share(
    counts: list[int], fractions: list[Fraction]
) -> None:
    divided = divide_rows(counts, fractions)
    for count, given_rows in zip(counts, divided, strict=True):
        assert sum(given_rows) == count
        for records, fraction in zip(given_rows, fractions, strict=True):
            assert abs(records - count * fraction) < 1
    for index, fraction in enumerate(fractions):
        away = abs(sum(rows[index] for rows in divided) - sum(counts) * fraction)
        assert away <= (Fraction(1, 2) if len(fractions) == 2 else len(fractions))


def test_eight_of_ten_rows() -> None:
    assert divide_rows([10], [Fraction(8, 10), Fraction(2, 10)]) == [(8, 2)]
    assert divide_rows([10], [Fraction(1, 3)] * 3) == [(4, 3, 3)]
    assert divide_rows([1], [Fraction(1, 2)] * 2) == [(1, 0)]


def naive(draws: list[int], classes: list[str], fractions: list[Fraction]) -> list[int]:
    """Sorts the draws of each class and cuts them; the split of each row."""
    names = sorted(set(classes))
    numbers = divide_rows([classes.count(name) for name in names], fractions)
    splits = [0] * len(draws)
    for name, records in zip(names, numbers, strict=True):
        rows = [row for row, own in enumerate(classes) if own == name]
        rows.sort(key=lambda row: draws[row])
        ends = list(accumulate(records))
        for rank, row in enumerate(rows):
            splits[row] = next(i for i, end in enumerate(ends) if rank < end)
    return splits


@given(
    st.lists(st.sampled_from("abc"), max_size=60),
    SHARES,
    st.integers(0, 1 << 63),
    st.integers(1, 7),
)
@examples(200)
def test_the_same_as_sorting_and_cutting(
    classes: list[str], fractions: list[Fraction], seed: int, step: int
) -> None:
    origins = mix_bits(np.arange(len(classes), dtype=np.uint64) + np.uint64(seed))
    draws = split_hashes(origins, seed)
    ends = expected_ends(fractions)
    sketches: dict[str, RankSketch] = {}
    for start in range(0, len(classes), step):  # in pieces, as ranges come
        for name in set(classes[start : start + step]):
            piece = RankSketch(ends)
            rows = range(start, min(start + step, len(classes)))
            piece.add(draws[[row for row in rows if classes[row] == name]])
            sketches.setdefault(name, RankSketch(ends)).merge(piece)
    limits = find_limits(sketches, fractions)
    assert limits is not None
    hashes = np.array([text_hash(name) for name in classes], np.uint64)
    assigned = limits.assign(origins, hashes, fractions, seed).tolist()
    assert assigned == naive(draws.tolist(), classes, fractions)
    assert limits.records == tuple(map(assigned.count, range(len(fractions))))


def test_a_sketch_keeps_few_draws_and_finds_the_right_one() -> None:
    draws = mix_bits(np.arange(300_000, dtype=np.uint64) + np.uint64(7))
    ends = expected_ends([Fraction(1, 10), Fraction(8, 10), Fraction(1, 10)])
    total = RankSketch(ends)
    for piece in np.split(draws, 30):
        part = RankSketch(ends)
        part.add(piece)
        total.merge(part)
    assert total.limits([30_000, 270_000]) == [
        int(np.sort(draws)[rank]) for rank in (30_000, 270_000)
    ]
    assert sum(map(len, total._hashes_near_ends)) < 4 * 2 * WIDTH * 2 * 300_000**0.5
    # All else is only counted: a rank far from where it must lie cannot be found.
    assert total.limits([0, 0]) is None
    assert total.limits([30_000, 300_000]) == [
        int(np.sort(draws)[30_000]),
        (1 << 64) - 1,
    ]


def test_a_class_that_was_not_counted_is_divided_by_the_shares() -> None:
    """Some rows of one that was, and others, which may hash above or below it."""
    fractions = [Fraction(1, 4), Fraction(3, 4)]
    origins = mix_bits(np.arange(40, dtype=np.uint64))
    sketch = RankSketch(expected_ends(fractions))
    sketch.add(split_hashes(origins[:20], 5))
    limits = find_limits({"known": sketch}, fractions)
    assert limits is not None
    known = text_hash("known")
    for other in (0, known - 1, known + 1, (1 << 64) - 1):
        classes = np.array([known, other] * 20, np.uint64)
        found = limits.assign(origins, classes, fractions, 5)
        alone = limits.assign(origins[::2], classes[::2], fractions, 5)
        assert found[::2].tolist() == alone.tolist()
        by_shares = assign_splits(origins[1::2], fractions, 5)
        assert found[1::2].tolist() == by_shares.tolist()


def test_the_edges_of_a_window_belong_to_it() -> None:
    """Draws at equal steps, so that some lie on the edges, and one right at the end."""
    draws = np.arange(8192, dtype=np.uint64) << np.uint64(51)
    sketch = RankSketch((1 << 63,))
    for piece in np.split(draws[::-1], 4):
        sketch.add(piece)
    half = 512  # of the window, in steps: 2**64 >> 4
    for rank in (4096 - half, 4095, 4096, 4096 + half):
        assert sketch.limits([rank]) == [rank << 51]
    for rank in (0, 4096 - half - 1, 4096 + half + 1, 8191):
        assert sketch.limits([rank]) is None
    assert sketch.limits([8192]) == [(1 << 64) - 1]
    wide = RankSketch((1 << 63,), width=1000)  # a window of all draws
    wide.add(draws)
    assert wide.limits([0]) == [0]
    assert wide.limits([8191]) == [8191 << 51]
