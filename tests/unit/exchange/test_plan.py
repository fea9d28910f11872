from __future__ import annotations

import pickle
from collections import defaultdict
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.schemas.job import Sharding
from recordmill.schemas.ranges import KEY_SPACE, ShardPlan, ShardTask, SplitPlan
from recordmill.transforms.exchange.plan import (
    Histogram,
    bucket_bits,
    packed_histogram,
    plan_shards,
    plan_split,
    shard_numbers,
)

GB = 1_000_000_000
MB = 1_000_000

SHARDS_FOR = [
    (Sharding(num_shards=7), 100, 100, 7, "as asked"),
    (Sharding(num_shards=7), 100, 3, 3, "never more shards than records"),
    (Sharding(num_shards=7), 0, 0, 0, "an empty split has no shard"),
    (Sharding(shard_bytes=100), 100, 9, 1, "exactly one"),
    (Sharding(shard_bytes=100), 101, 9, 2, "rounded up: no shard above the size"),
    (Sharding(shard_bytes=1), 9 * GB, 10**6, 99_999, "five digits in the file names"),
    (Sharding(num_readers=4), 9 * GB, 10**6, 40, "ten a reader"),
    (Sharding(num_readers=4), 400 * MB, 10**6, 40, "just 10 MB each"),
    (Sharding(num_readers=4), 400 * MB - 1, 10**6, 39, "none under 10 MB"),
    (Sharding(num_readers=4), 9_999_999, 10**6, 1, "less than 10 MB in all"),
    (Sharding(num_readers=4), 9 * GB, 12, 12, "few, very large records"),
]


@pytest.mark.parametrize(("sharding", "size", "records", "expected", "why"), SHARDS_FOR)
def test_number_of_shards(
    sharding: Sharding, size: int, records: int, expected: int, why: str
) -> None:
    assert sharding.count_shards(size, records) == expected, why


BITS = [
    (Sharding(num_shards=1), 0, 14, "never coarser than 2**14"),
    (Sharding(num_shards=16), GB, 14, "1024 buckets a shard"),
    (Sharding(num_shards=17), GB, 15, "rounded up"),
    (Sharding(num_shards=99_999), GB, 20, "never finer than 2**20"),
    (Sharding(shard_bytes=10 * MB), GB, 17, "100 shards"),
    (Sharding(num_readers=2), 9 * GB, 15, "20 shards"),
]


@pytest.mark.parametrize(("sharding", "most_bytes", "expected", "why"), BITS)
def test_bucket_bits(
    sharding: Sharding, most_bytes: int, expected: int, why: str
) -> None:
    assert bucket_bits(sharding, most_bytes) == expected, why


RUNS = st.lists(
    st.tuples(
        st.integers(0, 2), st.integers(0, KEY_SPACE - 1), st.integers(0, 1 << 40)
    ),
    max_size=40,
).map(sorted)


def packed(rows: list[tuple[int, int, int]], bits: int) -> bytes:
    """Rows are (split, order key, planned bytes)."""
    return packed_histogram(
        np.array([key for _, key, _ in rows], np.uint64),
        np.array([split for split, _, _ in rows], np.uint8),
        np.array([weight for _, _, weight in rows], np.int64),
        3,
        bits,
    )


@given(RUNS, RUNS, st.integers(1, 8))
@example([(0, 1 << 60, 5)], [], 4)  # bucket 1 is the first one
def test_histogram_equals_a_dictionary(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]], bits: int
) -> None:
    expected_bytes: dict[tuple[int, int], int] = defaultdict(int)
    expected_records: dict[tuple[int, int], int] = defaultdict(int)
    total = Histogram.empty(3, bits)
    for run in (one, other):
        for split, key, weight in run:
            expected_bytes[split, key >> (64 - bits)] += weight
            expected_records[split, key >> (64 - bits)] += 1
        total.add(packed(run, bits))
    assert total.bytes.shape == total.records.shape == (3, 1 << bits)
    for (split, bucket), found in np.ndenumerate(total.bytes):
        assert found == expected_bytes[split, bucket]
        assert total.records[split, bucket] == expected_records[split, bucket]


def naive_cuts(sizes: list[int], num_shards: int) -> list[int]:
    """Index in `sizes` where each shard starts, by trying every bucket edge."""
    cuts = [0]
    for shard in range(1, num_shards):
        target = sum(sizes) * shard // num_shards
        # A filled bucket is left for each shard before the cut and behind it.
        free = range(cuts[-1] + 1, len(sizes) - num_shards + shard + 1)
        cuts.append(min(free, key=lambda cut: (abs(sum(sizes[:cut]) - target), cut)))
    return cuts


# At most 16 filled buckets of 64; a bucket with records has bytes.
FILLED = st.dictionaries(
    st.integers(0, 63),
    # Small sizes make ties between two edges.
    st.tuples(st.one_of(st.integers(1, 3), st.integers(1, 1000)), st.integers(1, 5)),
    min_size=1,
    max_size=16,
)


@given(FILLED, st.integers(1, 20))
def test_plan_equals_trying_every_edge(
    filled: dict[int, tuple[int, int]], wanted: int
) -> None:
    bucket_bytes, bucket_records = np.zeros((2, 64), np.int64)
    for bucket, (size, records) in filled.items():
        bucket_bytes[bucket], bucket_records[bucket] = size, records
    plan = plan_split("s", bucket_bytes, bucket_records, Sharding(num_shards=wanted))

    buckets = sorted(filled)
    sizes = [filled[bucket][0] for bucket in buckets]
    num_records = int(bucket_records.sum())
    num_shards = min(wanted, num_records, len(buckets))
    cuts = naive_cuts(sizes, num_shards)
    starts = [buckets[cut] << 58 for cut in cuts]
    assert plan.bounds == (0, *starts[1:], KEY_SPACE)
    ends = [*cuts[1:], len(sizes)]
    assert plan.shard_bytes == tuple(
        sum(sizes[a:b]) for a, b in zip(cuts, ends, strict=True)
    )
    assert sum(plan.shard_records) == num_records
    assert min(plan.shard_records) >= 1


@given(st.integers(1, 40), st.integers(0, 1 << 32))
def test_shards_differ_by_a_bucket_at_most(num_shards: int, seed: int) -> None:
    """Each cut is off by half a bucket at most, so a shard by one, a pair by two."""
    sizes = np.random.default_rng(seed).integers(1, 100, 4096)
    plan = plan_split("s", sizes, sizes, Sharding(num_shards=num_shards))
    assert plan.num_shards == num_shards
    fair = int(sizes.sum()) / num_shards
    assert max(abs(size - fair) for size in plan.shard_bytes) <= sizes.max() + 1


PLANS = [
    ([0, 0, 0, 0], 3, (), (), "no records: no shard"),
    ([0, 5, 0, 0], 1, (0, 4), (5,), "one shard has all keys"),
    ([0, 5, 0, 0], 3, (0, 4), (5,), "one bucket cannot be cut"),
    ([1, 1, 1, 1], 4, (0, 1, 2, 3, 4), (1, 1, 1, 1), "a bucket each"),
    ([1, 1, 1, 1], 2, (0, 2, 4), (2, 2), "even halves"),
    ([1, 2, 1, 0], 2, (0, 1, 4), (1, 3), "of two edges as near the lower"),
    ([9, 1, 1, 1], 2, (0, 1, 4), (9, 3), "nearest edge to 6 is 9"),
    ([1, 9, 1, 1], 3, (0, 1, 2, 4), (1, 9, 2), "nearest to 4 is 1; 10 is behind"),
    ([9, 1, 1, 1], 3, (0, 1, 2, 4), (9, 1, 2), "a cut never falls on the one before"),
    ([1, 1, 1, 9], 3, (0, 2, 3, 4), (2, 1, 9), "nor leaves a later shard without"),
    ([4, 0, 0, 4], 2, (0, 3, 4), (4, 4), "cut where the next filled bucket starts"),
]


@pytest.mark.parametrize(("sizes", "wanted", "bounds", "planned", "reason"), PLANS)
def test_plan_literal(
    sizes: list[int],
    wanted: int,
    bounds: tuple[int, ...],
    planned: tuple[int, ...],
    reason: str,
) -> None:
    size = np.array(sizes)
    plan = plan_split("s", size, size, Sharding(num_shards=wanted))
    quarter = KEY_SPACE // 4
    assert plan.bounds == tuple(bound * quarter for bound in bounds), reason
    assert {type(bound) for bound in plan.bounds} <= {int}
    assert plan.shard_bytes == planned, reason


def test_plan_of_records_without_bytes() -> None:
    records = np.array([1, 0, 2, 1])
    plan = plan_split("s", np.zeros(4, np.int64), records, Sharding(num_shards=2))
    assert plan.shard_records == (1, 3)


def test_plan_of_several_splits_and_its_tasks() -> None:
    histogram = Histogram.empty(3, 2)
    histogram.bytes[:] = [[10, 20, 30, 40], [0, 0, 0, 0], [60, 0, 0, 25]]
    histogram.records[:] = [[1, 2, 3, 4], [0, 0, 0, 0], [6, 0, 0, 2]]
    plan = plan_shards(histogram, Sharding(num_shards=2), ["train", "none", "test"])
    quarter = KEY_SPACE // 4
    assert plan == ShardPlan(
        (
            SplitPlan("train", (0, 3 * quarter, KEY_SPACE), (60, 40), (6, 4)),
            SplitPlan("none", (), (), ()),
            SplitPlan("test", (0, 3 * quarter, KEY_SPACE), (60, 25), (6, 2)),
        )
    )
    # Largest first; of equals the one that comes first in the dataset.
    assert plan.tasks() == [
        ShardTask("train", 0, 0, 2, 0, 3 * quarter),
        ShardTask("test", 2, 0, 2, 0, 3 * quarter),
        ShardTask("train", 0, 1, 2, 3 * quarter, KEY_SPACE),
        ShardTask("test", 2, 1, 2, 3 * quarter, KEY_SPACE),
    ]


BAD_PLANS = [
    (((0, KEY_SPACE), (), ()), "split s: 0 shards need 0 bounds, got 2"),
    (((0, KEY_SPACE), (1, 1), (1, 1)), "split s: 2 shards need 3 bounds, got 2"),
    (((0, 9, KEY_SPACE), (1,), (1,)), "split s: 1 shards need 2 bounds, got 3"),
    (((0, 9), (1,), (1,)), "split s: bounds must rise from 0 to 2**64, got (0, 9)"),
    (
        ((0, 5, 5, KEY_SPACE), (1, 1, 1), (1, 1, 1)),
        "split s: bounds must rise from 0 to 2**64, got (0, 5, 5, 18446744073709551616)",
    ),
    (
        ((0, KEY_SPACE + 1), (1,), (1,)),
        "split s: bounds must rise from 0 to 2**64, got (0, 18446744073709551617)",
    ),
    (
        ((1, KEY_SPACE), (1,), (1,)),
        "split s: bounds must rise from 0 to 2**64, got (1, 18446744073709551616)",
    ),
    (((0, 5, KEY_SPACE), (1, 1), (2, 0)), "split s: an empty shard was planned"),
    (((0, KEY_SPACE), (1,), ()), "split s: 1 shards with bytes, 0 with records"),
    (((), (), (1,)), "split s: 0 shards with bytes, 1 with records"),
]


@pytest.mark.parametrize(("fields", "message"), BAD_PLANS)
def test_split_plan_refuses(
    fields: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match=r"^split s: ") as caught:
        SplitPlan("s", *fields)
    assert str(caught.value) == message


@given(RUNS, st.integers(1, 8), st.randoms(use_true_random=False))
def test_a_histogram_is_packed_from_rows_in_any_order(
    rows: list[tuple[int, int, int]], bits: int, random: Random
) -> None:
    in_order = packed(sorted(rows), bits)
    random.shuffle(rows)
    assert packed(rows, bits) == in_order
    whole = Histogram.sum_of([in_order], 3, bits)
    assert whole.to_bytes() == in_order
    again = pickle.loads(pickle.dumps(whole))
    assert again.to_bytes() == in_order
    assert again.bytes.dtype == again.records.dtype == np.int64


@given(
    st.lists(st.lists(st.integers(1, KEY_SPACE - 1), max_size=4, unique=True)),
    st.lists(st.integers(0, KEY_SPACE - 1), max_size=9),
)
def test_shards_are_numbered_as_their_tasks(
    inner: list[list[int]], keys: list[int]
) -> None:
    """Of each key, and of each bound and the keys beside it."""
    splits = []
    for some in inner:
        bounds = (0, *sorted(some), KEY_SPACE)
        ones = (1,) * (len(some) + 1)
        splits.append(SplitPlan(f"s{len(splits)}", bounds, ones, ones))
    plan = ShardPlan(tuple(splits))
    tasks = list(plan.tasks())
    for index, some in enumerate(inner):
        asked = [*keys, *some, *(bound - 1 for bound in some)]
        rows = np.full(len(asked), index, np.uint8)
        found = shard_numbers(plan, np.array(asked, np.uint64), rows)
        for key, number in zip(asked, found.tolist(), strict=True):
            task = tasks[number]
            assert task.split_index == index
            assert task.low <= key < task.high


def test_a_packed_histogram_of_another_shape_is_refused() -> None:
    packed = Histogram.empty(2, 4).to_bytes()
    with pytest.raises(ValueError, match=r"shape \[2, 16\], expected .* \[2, 8\]"):
        Histogram.empty(2, 3).add(packed)


@pytest.mark.parametrize("words", [5, 7])
def test_a_packed_histogram_of_another_length_is_refused(words: int) -> None:
    histogram = Histogram.empty(2, 4)
    histogram.records[1, 3] = 1
    packed = histogram.to_bytes()
    assert len(packed) == 6 * 8
    with pytest.raises(ValueError, match=r"^a packed histogram of") as caught:
        histogram.add((packed + bytes(8))[: 8 * words])
    assert str(caught.value) == (
        f"a packed histogram of {words} words and shape [2, 16], expected 6 words and "
        "shape [2, 16]"
    )


@pytest.mark.parametrize(
    ("largest", "num_bytes"), [(200, 1), (300, 2), (70_000, 4), (1 << 40, 8)]
)
def test_a_histogram_pickles_small_and_whole(largest: int, num_bytes: int) -> None:
    histogram = Histogram.empty(1, 8)
    histogram.records[0, :100] = histogram.bytes[0, :100] = largest
    pickled = pickle.dumps(histogram)
    assert (1 + 2 * num_bytes) * 100 < len(pickled) < (1 + 2 * num_bytes) * 100 + 600
    again = pickle.loads(pickled)
    again.merge(histogram)  # what came out of the pickle can be added to
    assert np.array_equal(again.bytes, 2 * histogram.bytes)
    assert np.array_equal(again.records, 2 * histogram.records)
    assert len(pickle.dumps(Histogram.empty(3, 20))) < 600
