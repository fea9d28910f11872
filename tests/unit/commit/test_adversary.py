"""Commits at once, in every order, with kills, late operations and lost answers."""

from __future__ import annotations

import itertools
import os

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

HISTORIES = 150
STRIDE = 6  # between stop points: all of them take hours
LONG = int(os.environ.get("RECORDMILL_FUZZ_EXAMPLES", "20000"))


def random_histories(seeds: range, *, conditional: bool = True) -> None:
    for seed in seeds:
        random_history(seed, conditional=conditional)


def test_random_histories() -> None:
    random_histories(range(HISTORIES))


@pytest.mark.fuzz
def test_many_random_histories() -> None:
    random_histories(range(LONG))


@pytest.mark.fuzz
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("dataset", [False, True])
@pytest.mark.parametrize("pair", [*itertools.permutations(RUNS, 2)], ids="+".join)
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


def test_the_adversary_finds_a_swap_without_a_condition() -> None:
    with pytest.raises(AssertionError):
        random_histories(range(1000), conditional=False)


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
