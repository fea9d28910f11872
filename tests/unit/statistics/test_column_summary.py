"""Numbers, values and cells summed up in bounded memory, beside what plain Python counts."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import statistics
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest
from csv_cases import COLUMNS, holds_of, holds_of_all
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.transforms.sources.text_columns import TypeFlag, column_dtype
from recordmill.transforms.statistics import column_summary as column_facts
from recordmill.transforms.statistics.column_summary import (
    MAX_COUNTED_VALUE_BYTES,
    NUM_BINS,
    SHOWN_BINS,
    ColumnStats,
    NumberBins,
    NumberSummary,
    ValueCounts,
    column_stats,
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
    sketch = NumberSummary(is_integer=whole)
    for part in (numbers[:cut], numbers[cut:]):
        sketch.add(np.array(part, np.int64 if whole else np.float64))
    return sketch


@examples(400)
@example([0.0, 5e-324])  # between which there is no other number
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
    if not histogram.num_above:
        counted[-1] = sum(number >= edges[-2] for number in numbers)
        assert max(numbers) <= edges[-1]
    assert list(histogram.counts) == counted
    assert histogram.num_below == sum(number < edges[0] for number in numbers)
    assert histogram.num_below + sum(counted) + histogram.num_above == len(numbers)


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
    assert abs(found.median - middle) <= found.median_error * (1 + 1e-9)
    assert found.median_error <= max(spread * 2 / NUM_BINS, near)


def test_nan_and_infinities_are_counted_apart() -> None:
    found = figures([math.nan, 1.0, math.inf, -math.inf, 3.0])
    assert (found.num_values, found.num_nans, found.infinities) == (5, 1, 2)
    assert (found.minimum, found.maximum, found.mean) == (1, 3, 2)
    assert figures([math.nan]).histogram is None


def test_few_integers_have_a_bar_each() -> None:
    histogram = figures([3, 5, 3, 4]).histogram
    assert histogram is not None
    assert histogram.is_discrete
    assert histogram.edges == (3, 4, 5, 6)
    assert histogram.counts == (2, 1, 1)


def test_far_numbers_do_not_hide_the_others() -> None:
    numbers = [n / 1000 for n in range(10_000)]
    histogram = figures([*numbers, 5000.0]).histogram
    assert histogram is not None
    assert histogram.edges[-1] < 20
    assert histogram.num_above >= 1
    assert len(histogram.counts) > 15


def test_memory_is_bounded() -> None:
    bins = NumberBins(-2000)
    for exponent in range(-300, 300, 7):
        number = 10.0**exponent
        bins.add(np.array([number, -number]), -number, number)
        assert len(bins.counts) <= NUM_BINS
    assert bins.counts.sum() == 2 * len(range(-300, 300, 7))


def test_unsigned_numbers_are_exact() -> None:
    sketch = NumberSummary(is_integer=True)
    sketch.add(np.array([2**64 - 1, 0], np.uint64))
    assert (sketch.minimum, sketch.maximum) == (0, 2**64 - 1)


TEXTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=60), max_size=6)


def counts(batches: list[list[str]], kept: int) -> ValueCounts:
    made = ValueCounts(kept)
    for batch in batches:
        made.add(pa.array(batch, pa.string()))
    return made


@examples(200)
@given(TEXTS)
def test_with_room_for_all_every_count_is_exact(batches: list[list[str]]) -> None:
    oracle = Counter(value for batch in batches for value in batch)
    found = counts(batches, kept=8).commonest(limit=8)
    assert dict(found.values) == oracle
    assert list(found.values) == sorted(found.values, key=lambda v: (-v[1], v[0]))
    assert found.is_complete
    assert (found.total, found.num_distinct) == (oracle.total(), len(oracle))


@examples(300)
@given(TEXTS, st.integers(1, 6))
def test_without_it_a_count_is_too_low_by_a_known_number(
    batches: list[list[str]], kept: int
) -> None:
    oracle = Counter(value for batch in batches for value in batch)
    found = counts(batches, kept).commonest(limit=8)
    assert found.max_error <= oracle.total() / (kept + 1)
    known = dict(found.values)
    for value, number in oracle.items():
        assert number - found.max_error <= known.get(value, 0) <= number
    assert found.is_complete == (found.max_error == 0)
    assert not found.is_complete or known == oracle


def test_the_bytes_of_values_are_bounded() -> None:
    made = ValueCounts(max_bytes=1000)
    for number in range(100):
        texts = [f"{number}-{n}".rjust(200) for n in range(10)]
        made.add(pa.array([*texts, "often"]))
        assert sum(table.nbytes for table in made._pending) < 10_000
    found = made.commonest(limit=1)
    ((value, number),) = found.values
    assert value == "often"
    assert number <= 100 <= number + found.max_error


def test_long_values_are_counted_together() -> None:
    made = ValueCounts()
    made.add(
        pa.array(
            ["a", "b" * MAX_COUNTED_VALUE_BYTES, "c" * (MAX_COUNTED_VALUE_BYTES + 1)]
        )
    )
    found = made.commonest(limit=5)
    assert [value for value, _ in found.values] == ["a", "b" * MAX_COUNTED_VALUE_BYTES]
    assert (found.total, found.num_long, found.is_complete) == (3, 1, False)


def test_bytes_and_truth_values() -> None:
    made = ValueCounts()
    made.add(pa.array([b"\xff", b"\x00", b"\xff"], pa.binary()))
    assert made.commonest(limit=1).values == ((b"\xff", 2),)
    made = ValueCounts()
    made.add(pa.array([True, False, True]))
    assert made.commonest(limit=5).values == ((True, 2), (False, 1))


def test_no_value() -> None:
    assert ValueCounts().commonest(limit=3).total == 0


Texts = list[str | None]


def column(texts: Texts) -> pa.StringArray:
    return pa.array(texts, pa.string())


def facts_of(texts: Texts) -> ColumnStats:
    return column_stats(column(texts))


def merged(parts: list[ColumnStats]) -> ColumnStats:
    return functools.reduce(ColumnStats.merge, parts, ColumnStats())


def summary(stats: ColumnStats) -> dict[str, object]:
    """All that a person or a program is told."""
    return {
        "dtype": stats.dtype,
        "rows": stats.num_rows,
        "missing": stats.missing,
        "limits": repr(stats.limits),  # tells 1 from 1.0 and 0.0 from -0.0
        "lengths": stats.lengths,
        "values": stats.values,
    }


def naive_summary(texts: Texts) -> dict[str, object]:
    there = [text for text in texts if text is not None]
    dtype = column_dtype(holds_of_all(texts))
    valued = there
    if dtype != "string":
        valued = [text for text in there if holds_of(text) is not TypeFlag.MISSING]
    limits = None
    if dtype in ("int64", "float32"):
        read = whole_number if dtype == "int64" else float
        numbers = [number for text in valued if not math.isnan(number := read(text))]
        if numbers:
            limits = (min(numbers) or read("0"), max(numbers) or read("0"))
    lengths = [len(text.encode()) for text in there]
    return {
        "dtype": dtype,
        "rows": len(texts),
        "missing": len(texts) - len(valued),
        "limits": repr(limits),
        "lengths": (min(lengths), max(lengths)) if lengths else None,
        "values": Counter(map(kept_of, there)),
    }


def whole_number(text: str) -> int:
    return int(text.partition(".")[0])


def kept_of(text: str) -> bytes:
    """What is kept of a value."""
    data = text.encode()
    if len(data) <= 64:
        return data
    return b"\xff" + blake2b(data, digest_size=16).digest()


@st.composite
def columns_in_parts(draw: st.DrawFn) -> list[Texts]:
    texts = draw(COLUMNS)
    cuts = sorted(draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    edges = zip([0, *cuts], [*cuts, len(texts)], strict=True)
    return [texts[start:stop] for start, stop in edges]


@given(columns_in_parts(), st.data())
@example([["9007199254740993"], ["1.5"]], None)  # an integer that no float64 holds
@example([["-0.0"], ["0"], ["0.0"]], None)
@example([["nan"], ["1"]], None)
@example([["NA", " 7"], ["x"], ["NA"]], None)
@example([["NA"], [" 7", ""], ["null"]], None)
@example([["true"], ["1"], ["1.5"]], None)
@example([["2.0"], ["3"], ["-0.0"]], None)
@example([["1e39"], ["x"], ["1.5"]], None)
@example([["true"], ["1"], ["1e39"]], None)
def test_parts_in_any_order_give_the_facts_of_the_whole(
    parts: list[Texts], data: st.DataObject | None
) -> None:
    """Each part is looked at with what is known of any others by then."""
    order = data.draw(st.permutations(range(len(parts)))) if data else range(len(parts))
    found: list[ColumnStats] = []
    for index in order:
        count = data.draw(st.integers(0, len(found))) if data else len(found)
        known = merged(found[:count])
        found.append(column_stats(column(parts[index]), known.flags))
    whole = [text for part in parts for text in part]
    assert summary(merged(found)) == naive_summary(whole)


SOME_VALUES = st.sets(st.integers(0, 9))


@given(st.lists(SOME_VALUES, max_size=5), st.randoms())
def test_limit_of_distinct_values_whatever_the_order(
    parts: list[set[int]], random: object
) -> None:
    texts: list[Texts] = [[str(value) for value in part] for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_facts, "MAX_DISTINCT", 4)
        patch.setattr(column_facts, "_FIRST_ROWS", 6)
        found = [facts_of(part) for part in texts]
        random.shuffle(found)  # type: ignore[attr-defined]
        distinct = merged(found).num_distinct
    exact = len(functools.reduce(operator.or_, parts, set()))
    assert distinct == (exact if exact <= 4 else None)


@pytest.mark.parametrize(
    ("num_values", "nulls", "distinct"),
    [
        (1000, 0, 1000),  # the last that is counted
        (1001, 0, None),
        (1000, 3, 1000),  # null is no value
        (1001, 3, None),
    ],
)
@pytest.mark.parametrize("times", [1, 5])
def test_limit(num_values: int, nulls: int, distinct: int | None, times: int) -> None:
    texts: Texts = [f"v{n}" for n in range(num_values)]
    stats = facts_of([*[None] * nulls, *texts * times])
    assert stats.num_distinct == distinct
    if stats.values is not None:
        assert set(stats.values.values()) == {times}


def test_values_that_come_late_are_counted() -> None:
    texts: Texts = [*["a"] * 5000, *(f"v{n}" for n in range(999))]
    assert facts_of(texts).num_distinct == 1000
    assert facts_of([*texts, "one more"]).num_distinct is None


def test_long_values_are_kept_as_digests() -> None:
    long, longer = "é" * 33, "é" * 33 + "!"
    stats = facts_of([long, longer, long, "short"])
    assert stats.num_distinct == 3
    assert stats.values is not None
    assert sorted(stats.values.values()) == [1, 1, 2]
    assert max(map(len, stats.values)) == 17
    assert stats.texts() is None
    assert facts_of(["short", "é" * 32]).texts() == {"short": 1, "é" * 32: 1}


def test_values_past_the_limit_elsewhere_are_not_counted() -> None:
    stats = column_stats(column(["a"]), counted=False)
    assert stats.num_distinct is None
    assert stats.merge(facts_of(["b"])).num_distinct is None


@pytest.mark.parametrize(
    ("texts", "limits"),
    [
        (["1", "-3"], "(-3, 1)"),
        (
            ["9223372036854775807", "-9223372036854775808"],
            f"({-(1 << 63)}, {2**63 - 1})",
        ),
        (["1", "0.5"], "(0.5, 1.0)"),
        (["nan", "2.5", "-inf"], "(-inf, 2.5)"),
        (["nan"], "None"),  # nothing but NaN
        (["-0.0"], "(0.0, 0.0)"),
        (["1", "x"], "None"),  # text
        (["true"], "None"),
        ([None], "None"),
        (["007", "008"], "None"),  # text: the zeros would be lost
    ],
)
def test_limits(texts: Texts, limits: str) -> None:
    assert repr(facts_of(texts).limits) == limits
    assert repr(merged([facts_of([text]) for text in texts]).limits) == limits
