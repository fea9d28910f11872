"""Pairs of given ranks: as sorting all of them finds them."""

from __future__ import annotations

import numpy as np
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import mix
from recordmill.transforms.exchange.pair_ranks import (
    WHOLE,
    Pair,
    PairLimits,
    PairSketch,
    next_windows,
)


def sketch_of(
    window: tuple[Pair, Pair], parts: list[tuple[U64, U64]], max_kept: int
) -> PairSketch:
    total = PairSketch(window, max_kept)
    for values, origins in parts:
        one = PairSketch(window, max_kept)
        one.add(values, origins)
        total.merge(one)
    return total


@given(st.integers(0, 1 << 30), st.sampled_from([1, 3, 1 << 40]), st.booleans())
@examples(20)
def test_a_pair_is_found_whatever_is_kept(
    seed: int, spread: int, backwards: bool
) -> None:
    """Of values that are all equal too; parts come in any order."""
    random = np.random.default_rng(seed)
    num_rows = 20_000
    values = random.integers(0, spread, num_rows).astype(np.uint64)
    origins = mix(np.arange(num_rows, dtype=np.uint64))
    order = np.lexsort((origins, values))
    parts = list(
        zip(np.array_split(values, 7), np.array_split(origins, 7), strict=True)
    )
    if backwards:
        parts.reverse()
    for rank in (0, 17_999, num_rows - 1):
        window, readings = WHOLE, 0
        while True:
            sketch = sketch_of(window, parts, 1_500)
            readings += 1
            found = sketch.pair(rank)
            if found is not None:
                break
            narrower = next_windows([sketch], [rank], 8)
            assert narrower is not None
            (window,) = narrower
        assert found == (int(values[order[rank]]), int(origins[order[rank]]))
        assert 1 < readings < 9
        limits = PairLimits(*np.array([found], np.uint64).T)
        splits = limits.assign(values, origins)
        assert (splits == 0).sum() == rank


def test_a_rank_outside_of_its_window_is_told() -> None:
    sketch = sketch_of(((5, 0), (9, 0)), [(np.arange(20).astype(np.uint64),) * 2], 100)
    assert next_windows([sketch], [2], 8) is None
    assert sketch.pair(2) is None
    assert sketch.pair(5) == (5, 5)
