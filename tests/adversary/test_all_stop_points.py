"""Commits at once at length: `make adversary` runs it, as it takes an hour.

The short form, and the named cases, are in tests/unit/commit/test_adversary.py.
"""

from __future__ import annotations

import itertools

import pytest
from adversary_schedules import RUNS, VERSION_RUNS, random_history, stopped_at

SHARE = 1_000  # histories in one test, so that several processes share them
PAIRS = [*itertools.permutations(RUNS, 2), *itertools.permutations(VERSION_RUNS, 2)]
STRIDE = 6  # operations between stop points: every single one would take hours


@pytest.mark.parametrize("start", range(0, 20_000, SHARE))
@pytest.mark.parametrize("versions", [False, True])
def test_random_histories(start: int, versions: bool) -> None:
    for seed in range(start, start + SHARE):
        random_history(seed, versions=versions)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("dataset", [False, True])
@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_all_pairs_of_stop_points(
    pair: tuple[str, str], dataset: bool, killed: bool
) -> None:
    for first in itertools.count(step=STRIDE):
        for second in itertools.count(step=STRIDE):
            ended = stopped_at(*pair, (first, second), dataset=dataset, killed=killed)
            if ended[1]:
                break
        if ended[0]:
            break
