"""Numbers summed up in bounded memory, beside what plain Python counts."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.statistics.column_summary import (
    NUM_BINS,
    SHOWN_BINS,
    NumberBins,
    NumberSummary,
)

FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1, 1),
    st.integers(-40, 40).map(lambda n: n / 8),
)
INTEGERS = st.one_of(
    st.integers(-(2**53), 2**53), st.integers(0, 255), st.integers(0, 5)
)
NUMBERS = st.one_of(st.lists(FLOATS, min_size=1), st.lists(INTEGERS, min_size=1))


def figures(numbers: Sequence[float], cut: int = 0) -> NumberSummary:
    """The figures of numbers that come in two batches."""
    whole = all(isinstance(number, int) for number in numbers)
    sketch = NumberSummary(whole=whole)
    for part in (numbers[:cut], numbers[cut:]):
        sketch.add(np.array(part, np.int64 if whole else np.float64))
    return sketch


@examples(400)
@given(NUMBERS)
def test_a_histogram_counts_every_number_once(numbers: list[float]) -> None:
    histogram = figures(numbers).histogram
    assert histogram is not None
    edges = histogram.edges
    assert 1 <= len(histogram.counts) <= SHOWN_BINS
    assert list(edges) == sorted(edges)
    counted = [
        sum(low <= number < high for number in numbers)
        for low, high in itertools.pairwise(edges)
    ]
    if not histogram.above:
        counted[-1] = sum(number >= edges[-2] for number in numbers)
        assert max(numbers) <= edges[-1]
    assert list(histogram.counts) == counted
    assert histogram.below == sum(number < edges[0] for number in numbers)
    assert histogram.below + sum(counted) + histogram.above == len(numbers)


@examples(300)
@given(NUMBERS, st.data())
def test_batches_do_not_matter(numbers: list[float], data: st.DataObject) -> None:
    once = figures(numbers)
    cut = data.draw(st.integers(0, len(numbers)))
    twice = figures(numbers, cut)
    assert twice.histogram == once.histogram
    assert (twice.minimum, twice.median, twice.maximum) == (
        once.minimum,
        once.median,
        once.maximum,
    )


@examples(200)
@given(st.lists(st.one_of(st.floats(-1e9, 1e9), st.integers(-9, 9)), min_size=1))
def test_limits_mean_deviation_and_median(numbers: list[float]) -> None:
    found = figures([float(number) for number in numbers], len(numbers) // 2)
    spread = max(numbers) - min(numbers)
    near = 1e-9 * max(1.0, *map(abs, numbers))
    assert (found.minimum, found.maximum) == (min(numbers), max(numbers))
    assert found.mean == pytest.approx(statistics.fmean(numbers), abs=near)
    assert found.deviation == pytest.approx(
        statistics.pstdev(map(float, numbers)), abs=1e-7 * max(1.0, spread)
    )
    assert found.median is not None
    middle = statistics.median_low(numbers)
    assert abs(found.median - middle) <= found.median_within * (1 + 1e-9)
    assert found.median_within <= max(spread * 2 / NUM_BINS, near)


def test_nan_and_infinities_are_counted_apart() -> None:
    found = figures([math.nan, 1.0, math.inf, -math.inf, 3.0])
    assert (found.values, found.nans, found.infinities) == (5, 1, 2)
    assert (found.minimum, found.maximum, found.mean) == (1, 3, 2)
    assert figures([math.nan]).histogram is None


def test_few_integers_have_a_bar_each() -> None:
    histogram = figures([3, 5, 3, 4]).histogram
    assert histogram is not None
    assert histogram.discrete
    assert histogram.edges == (3, 4, 5, 6)
    assert histogram.counts == (2, 1, 1)


def test_far_numbers_do_not_hide_the_others() -> None:
    numbers = [n / 1000 for n in range(10_000)]
    histogram = figures([*numbers, 5000.0]).histogram
    assert histogram is not None
    assert histogram.edges[-1] < 20
    assert histogram.above >= 1
    assert len(histogram.counts) > 15


def test_memory_is_bounded() -> None:
    bins = NumberBins()
    for exponent in range(-300, 300, 7):
        bins.add(np.array([10.0**exponent, -(10.0**exponent)]))
        assert len(bins.counts) <= NUM_BINS
    assert bins.counts.sum() == 2 * len(range(-300, 300, 7))


def test_unsigned_numbers_are_exact() -> None:
    sketch = NumberSummary(whole=True)
    sketch.add(np.array([2**64 - 1, 0], np.uint64))
    assert (sketch.minimum, sketch.maximum) == (0, 2**64 - 1)
