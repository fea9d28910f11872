from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.ranges import InputRange
from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import (
    assign_splits,
    copy_origins,
    mix_bits,
    origins_in,
    position_keys,
    shuffle_keys,
    text_hash,
    text_hashes,
    value_hashes,
)

U64_MAX = (1 << 64) - 1
THIRD = Fraction(1, 3)


def u64(*values: int) -> U64:
    return np.array(values, np.uint64)


def many(count: int) -> U64:
    return origins_in("data.csv", 0, np.arange(count))


def input_range(first: int, count: int, total: int) -> InputRange:
    return InputRange(0, "f", "f", 0, count, first, total)


# The literals below are part of the output format: another value is another order of
# every dataset. Raise recordmill.transforms.tasks.fingerprint.FORMAT_VERSION before changing one.


def test_mix_is_splitmix64() -> None:
    # First outputs of splitmix64 with seed 0 (Vigna's splitmix64.c): mix(n * gamma).
    gamma = 0x9E3779B97F4A7C15
    states = u64(*[n * gamma & U64_MAX for n in (1, 2, 3)])
    assert [hex(value) for value in mix_bits(states).tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_text_hash_literals() -> None:
    # blake2b, 8 bytes, little-endian; made once by hashlib
    assert text_hash("") == 13020603013274838756
    assert text_hash("data_batch_1.bin") == 6160117306524338491
    assert text_hash("größe".encode()) == text_hash("größe")
    assert text_hashes(["", b"data_batch_1.bin"]).tolist() == [
        13020603013274838756,
        6160117306524338491,
    ]


def test_origin_literals() -> None:
    assert origins_in("a/b.csv", 4096, np.arange(3)).tolist() == [
        12017630378066370776,
        4292180137406993376,
        4685540610664095606,
    ]


def test_shuffle_key_literals() -> None:
    assert shuffle_keys(u64(0, 1, U64_MAX), 0).tolist() == [
        5197578548964807871,
        11385487063155714807,
        17492683508065611904,
    ]
    assert shuffle_keys(u64(0, 1, U64_MAX), U64_MAX).tolist() == [
        5596615464619936844,
        14664909624509637027,
        17207452866810135194,
    ]


@pytest.mark.parametrize(
    ("seed", "expected"), [(0, "1001100001001001"), (1, "1110001011000100")]
)
def test_split_literals(seed: int, expected: str) -> None:
    splits = assign_splits(many(16), [Fraction(1, 2)] * 2, seed)
    assert "".join(map(str, splits.tolist())) == expected


def test_value_hash_literals() -> None:
    assert value_hashes(pa.array(["goat", None, "goat", ""])).tolist() == [
        17198675749905975011,
        14222168025894421939,
        17198675749905975011,
        13020603013274838756,
    ]


def test_origins_differ_by_path_start_and_ordinal() -> None:
    places = [("a", 0), ("a", 1), ("b", 0), ("a\0", 0)]
    found = np.concatenate([origins_in(p, s, np.arange(1000)) for p, s in places])
    assert len(np.unique(found)) == 4000


@given(st.lists(st.integers(0, U64_MAX), unique=True), st.integers(0, U64_MAX))
def test_no_two_origins_share_a_key(origins: list[int], seed: int) -> None:
    assert len(set(shuffle_keys(u64(*origins), seed).tolist())) == len(origins)


def spread_evenly(keys: U64, buckets: int) -> npt.NDArray[np.int64]:
    top = keys >> np.uint64(64 - buckets.bit_length() + 1)
    return np.bincount(top.astype(np.int64), minlength=buckets)


def test_shuffled_keys_are_uniform() -> None:
    counts = spread_evenly(shuffle_keys(many(64_000), 0), 64)
    # 1000 a bucket, standard deviation 32; five of them
    assert counts.min() > 840
    assert counts.max() < 1160


def test_seeds_give_unrelated_orders() -> None:
    one, other = (np.argsort(shuffle_keys(many(10_000), seed)) for seed in (0, 1))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05
    assert abs(np.corrcoef(one, np.arange(10_000))[0, 1]) < 0.05


FRACTIONS = [
    (["1"], "one split takes all"),
    (["4/5", "1/10", "1/10"], "the usual three"),
    (["1/3", "1/3", "1/3"], "no exact float"),
    (["999/1000", "1/1000"], "a very small split"),
]


@pytest.mark.parametrize(("texts", "reason"), FRACTIONS)
def test_fractions_are_met(texts: list[str], reason: str) -> None:
    fractions = [Fraction(text) for text in texts]
    rows = 100_000
    counts = np.bincount(assign_splits(many(rows), fractions, 7), minlength=len(texts))
    for count, fraction in zip(counts.tolist(), fractions, strict=True):
        deviation = float(rows * fraction * (1 - fraction)) ** 0.5
        assert abs(count - float(rows * fraction)) <= 5 * deviation, reason


def test_thirds_cut_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split i ends at the floor of 2**64 * (i + 1) / 3; a draw at a limit is behind."""
    monkeypatch.setattr(
        "recordmill.transforms.exchange.keys.mix_bits", lambda values: values
    )
    first, second = (1 << 64) // 3, 2 * (1 << 64) // 3
    # With `mix` switched off, the draw is the group XOR the salted seed.
    seed = 0x73706C6974
    draws = u64(0, first - 1, first, second - 1, second, U64_MAX)
    assert assign_splits(draws, [THIRD] * 3, seed).tolist() == [0, 0, 1, 1, 2, 2]


@given(st.permutations(range(40)), st.integers(0, U64_MAX))
def test_split_does_not_depend_on_order_or_company(rows: list[int], seed: int) -> None:
    fractions = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    together = assign_splits(many(40), fractions, seed)
    assert assign_splits(many(40)[rows], fractions, seed).tolist() == (
        together[rows].tolist()
    )
    alone = [assign_splits(many(40)[[row]], fractions, seed)[0] for row in rows]
    assert alone == together[rows].tolist()


def test_split_tells_nothing_of_the_order() -> None:
    """Train and test are each spread over all shuffle keys."""
    origins = many(20_000)
    halves = [Fraction(1, 2), Fraction(1, 2)]
    keys, splits = shuffle_keys(origins, 3), assign_splits(origins, halves, 3)
    counts = spread_evenly(keys[splits == 0], 16)
    assert counts.min() > 500  # 625 expected, standard deviation 24
    assert counts.max() < 750


GROUPS = [
    (pa.array(["a", "b", "a", None, None]), [0, 1, 0, 3, 3], "text and nulls"),
    (pa.array([b"a", b"\xff", b"a"]), [0, 1, 0], "bytes that are no text"),
    (pa.array([b"\xff", b"a", b"\xff"], pa.large_binary()), [0, 1, 0], "large bytes"),
    (pa.array([b"\xff", b"a", b"\xff"], pa.binary(1)), [0, 1, 0], "fixed size"),
    (pa.array([b"\xff", b"\xff"], pa.binary_view()), [0, 0], "views"),
    (pa.array(["a", "a"], pa.large_string()), [0, 0], "large text"),
    (pa.array([1, 2, 1, None]), [0, 1, 0, 3], "numbers"),
    (pa.array([True, False, True]), [0, 1, 0], "booleans"),
    (pa.array(["x", "y", "x"]).dictionary_encode(), [0, 1, 0], "dictionary"),
    (pa.array(["z", "x", "y", "x"]).slice(1), [0, 1, 0], "slice"),
    (pa.array([], pa.string()), [], "no rows"),
]


@pytest.mark.parametrize(("values", "same_as", "reason"), GROUPS)
def test_groups_stay_together(
    values: pa.Array, same_as: list[int], reason: str
) -> None:
    found = value_hashes(values).tolist()
    # Row i belongs to the group that row same_as[i] began.
    assert found == [found[first] for first in same_as], reason
    assert len(set(found)) == len(set(same_as)), reason


def test_groups_meet_across_batches_and_types() -> None:
    """A column that one range reads as text and another as int64 groups alike."""
    assert value_hashes(pa.array(["7", "8"])).tolist() == (
        value_hashes(pa.array([7, 8])).tolist()
    )
    assert (
        value_hashes(pa.array(["7"], pa.large_string())).tolist()
        == (value_hashes(pa.array(["8", "7"]).dictionary_encode()).tolist()[1:])
    )


@pytest.mark.parametrize("total", [1, 2, 3, 1000, 1 << 20, (1 << 40) + 1, U64_MAX >> 1])
def test_positions_spread_over_the_key_space(total: int) -> None:
    """Two neighbours are equally far apart, and the last fills the upper half."""
    last = position_keys(input_range(total - 1, 1, total), np.array([0]))[0]
    step = 1 << (64 - total.bit_length())
    assert int(last) == (total - 1) * step
    assert int(last) + step >= 1 << 63


def test_positions_rise_across_ranges() -> None:
    sizes = [3, 1, 0, 5, 2]
    total, first, keys = sum(sizes), 0, []
    for size in sizes:
        keys += position_keys(input_range(first, size, total), np.arange(size)).tolist()
        first += size
    assert len(keys) == total
    assert keys == sorted(set(keys))
    assert keys[:2] == [0, 1 << 60]


def test_the_first_copy_keeps_its_origin_and_no_two_are_alike() -> None:
    origins = many(2000)
    first = copy_origins(origins, np.zeros(2000, np.int64))
    assert np.array_equal(first, origins)
    copies = np.concatenate(
        [copy_origins(origins, np.full(2000, number)) for number in range(4)]
    )
    assert len(np.unique(copies)) == 8000
    # Kept for ever: datasets that are appended to hold rows in this order.
    assert copy_origins(u64(7, 7, 7), np.arange(3)).tolist() == [
        7,
        236966933211079599,
        1772951811831149054,
    ]
