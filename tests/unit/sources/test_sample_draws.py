"""Samples against a sampler that sorts all keys in Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.exchange.exact_splits import SmallestKeys
from recordmill.transforms.exchange.keys import sample_hashes

U64 = st.integers(0, (1 << 64) - 1)


def mixed(value: int) -> int:
    """The finalizer of splitmix64, as published."""
    space = (1 << 64) - 1
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & space
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & space
    return value ^ (value >> 31)


@given(st.lists(st.lists(st.integers(0, 20) | U64)), st.integers(1, 30))
@examples(300)
def test_the_last_key_within_a_limit(parts: list[list[int]], limit: int) -> None:
    """Whatever the parts are; of equal keys it is told how many are within the limit."""
    total = SmallestKeys(limit)
    for part in parts:
        other = SmallestKeys(limit)
        for start in range(0, len(part), 3):
            other.add(np.array(part[start : start + 3], np.uint64))
        total.merge(other)
    keys = sorted(key for part in parts for key in part)
    assert total.count == len(keys)
    if len(keys) <= limit:
        assert total.largest_key() is None
    else:
        last = keys[limit - 1]
        assert total.largest_key() == (last, keys[:limit].count(last))


def test_few_keys_are_held() -> None:
    keys = np.arange(100_000, 0, -1, dtype=np.uint64)
    total = SmallestKeys(1_000)
    for part in np.split(keys, 1_000):
        total.add(part)
        assert sum(map(len, total._collected_keys)) < 2_000
    assert (total.count, total.largest_key()) == (100_000, (1_000, 1))


@given(st.lists(U64, max_size=50), U64)
@examples(100)
def test_draws_are_hashes_of_origin_and_seed(origins: list[int], seed: int) -> None:
    salt = int.from_bytes(b"sample", "big")
    draws = sample_hashes(np.array(origins, np.uint64), seed).tolist()
    assert draws == [mixed(each ^ mixed(seed ^ salt)) for each in origins]


def test_a_share_is_about_right() -> None:
    draws = sample_hashes(np.arange(100_000, dtype=np.uint64), 3)
    for share in (Fraction(1, 100), Fraction(1, 2)):
        kept = int((draws < np.uint64(int(share * (1 << 64)))).sum())
        deviation = float(100_000 * share * (1 - share)) ** 0.5
        assert abs(kept - 100_000 * share) < 5 * deviation
