"""Commits at once, in every order, with kills, late operations and lost answers."""

from __future__ import annotations

import random

import pytest
from adversary_runs import World
from adversary_schedules import (
    RUNS,
    random_history,
    stopped_at,
    with_dataset,
)

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import BusyError
from recordmill.transforms.dataset.files import read_manifest

HISTORIES = 150  # 20,000 in `make adversary`
PAIRS = 60  # every pair of runs at every sixth stop point there


def test_random_histories() -> None:
    for seed in range(HISTORIES):
        random_history(seed)


def test_some_pairs_of_stop_points() -> None:
    for seed in range(PAIRS):
        choose = random.Random(seed)
        first, second = choose.sample(list(RUNS), 2)
        stops = (choose.randrange(120), choose.randrange(120))
        dataset, killed = choose.random() < 0.7, choose.random() < 0.5
        stopped_at(first, second, stops, dataset=dataset, killed=killed)


def unconditional_histories() -> None:
    for seed in range(1000):
        random_history(seed, conditional=False)


def test_the_adversary_finds_a_swap_without_a_condition() -> None:
    with pytest.raises(AssertionError):
        unconditional_histories()


def test_a_late_run_leaves_what_is_the_same_for_both() -> None:
    """It finds its own bytes, and then that they are another one's: they stay."""
    stops = (75, 92)
    stopped_at("append too", "overwrite", stops, dataset=False, killed=False)
    random_history(1624)


@pytest.mark.parametrize("before", ["swap manifest.json", "swap dataset_info.json"])
def test_paused_in_the_switch_with_overwrite(before: str) -> None:
    """Two replace the same dataset; the one that slept harms nothing."""
    world = World()
    with_dataset(world)
    sleeper = world.publish("x", overwrite=True)
    world.baton.pause_before(sleeper, before)
    other = world.publish("y", overwrite=True)
    world.baton.finish(other)
    world.baton.finish(sleeper)
    assert isinstance(other.result, Manifest)
    assert read_manifest(world.store) == other.result
    if before == "swap manifest.json":
        assert isinstance(sleeper.error, BusyError)
    world.check_end()


def test_the_first_one_without_overwrite() -> None:
    """A run into an empty folder slept; the dataset that came meanwhile stays."""
    world = World()
    sleeper = world.publish("x")
    world.baton.pause_before(sleeper, "swap manifest.json")
    other = world.publish("y", overwrite=True)
    world.baton.finish(other)
    world.baton.finish(sleeper)
    assert isinstance(other.result, Manifest)
    assert isinstance(sleeper.error, BusyError)
    assert read_manifest(world.store) == other.result
    world.check_end()


def test_a_lock_written_again_after_its_holder_slept() -> None:
    """Both believe that they hold the lease: the world of these tests has none."""
    world = World()
    with_dataset(world)
    sleeper = world.publish("x", overwrite=True)
    other = world.append("b")
    world.baton.pause_before(sleeper, "swap manifest.json")
    world.baton.pause_before(other, "swap manifest.json")
    world.baton.finish(sleeper)
    world.baton.finish(other)
    assert isinstance(sleeper.result, Manifest)
    assert isinstance(other.error, BusyError) or "is missing" in str(other.error)
    assert read_manifest(world.store) == sleeper.result
    world.check_end()
