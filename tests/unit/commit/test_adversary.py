"""Commits at once, in every order, with kills, late operations and lost answers."""

from __future__ import annotations

import json
import random

import pytest
from adversary import Actor
from adversary_runs import World
from adversary_schedules import (
    RUNS,
    VERSION_RUNS,
    random_history,
    stopped_at,
    with_dataset,
    with_version,
)

from recordmill.schemas.errors import BusyError
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.tasks import launches

HISTORIES = 120  # 20,000 in `make adversary`
VERSION_HISTORIES = 60  # 20,000, too
PAIRS = 60  # every pair of runs at every sixth stop point there


def test_random_histories() -> None:
    for seed in range(HISTORIES):
        random_history(seed)


def test_random_histories_of_versions() -> None:
    for seed in range(VERSION_HISTORIES):
        random_history(seed, versions=True)


def test_some_pairs_of_stop_points() -> None:
    for seed in range(PAIRS):
        choose = random.Random(seed)
        runs = choose.choice([RUNS, RUNS, VERSION_RUNS])
        first, second = choose.sample(list(runs), 2)
        stops = (choose.randrange(120), choose.randrange(120))
        dataset, killed = choose.random() < 0.7, choose.random() < 0.5
        stopped_at(first, second, stops, dataset=dataset, killed=killed)


def unconditional_histories() -> None:
    for seed in range(250, 400):  # few schedules find it
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
    other = world.overtake(sleeper, before=before)
    assert isinstance(other.result, Manifest)
    assert read_manifest(world.store) == other.result
    if before == "swap manifest.json":
        assert isinstance(sleeper.error, BusyError)
    world.check_end()


def test_the_first_one_without_overwrite() -> None:
    """A run into an empty folder slept; the dataset that came meanwhile stays."""
    world = World()
    sleeper = world.publish("x")
    other = world.overtake(sleeper, before="swap manifest.json")
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


def test_latest_json_never_goes_back() -> None:
    """A run slept before it moved it; meanwhile there is a newer version."""
    world = World()
    with_version(world)
    sleeper = world.auto("x")
    world.baton.pause_before(sleeper, "swap latest.json")
    world.baton.finish(world.auto("y", keep=1))
    world.baton.finish(sleeper)
    assert isinstance(sleeper.result, Manifest)
    assert json.loads(world.baton.files["latest.json"])["version"] == "1.0.2"
    assert "1.0.1/manifest.json" not in world.baton.files  # nor is it missed
    world.check_end()


def test_a_version_that_is_published_late_is_whole() -> None:
    """Another run took it for dead, and cleared what it could."""
    world = World()
    with_version(world)
    sleeper = world.publish("h", version="1.0.3")
    world.baton.pause_before(sleeper, "swap manifest.json")
    world.baton.finish(world.auto("x"))
    world.baton.finish(sleeper)
    assert isinstance(sleeper.result, Manifest)
    assert read_manifest(world.store.subfolder_store("1.0.3")) == sleeper.result
    world.check_end()


@pytest.mark.parametrize(
    ("seed", "versions"), [(628, False), (20114193, False), (186, False), (53, True)]
)
def test_cleaning_takes_what_is_over_and_no_more(seed: int, versions: bool) -> None:
    """Not the files of an append amid it; but late copies, of data and of a manifest."""
    random_history(seed, versions=versions)


def at_work(world: World) -> Actor:
    """Starts a detached job, and stops it before it renews its sign of life."""
    job = world.detach("d", overwrite=True)
    while not any(name.endswith("/alive.json") for name in world.baton.files):
        world.baton.turn(job)
    return job


def test_cleaning_comes_amid_a_detached_job() -> None:
    world = World()
    with_dataset(world)
    job = at_work(world)
    world.baton.finish(world.clean())
    world.baton.finish(job)
    assert isinstance(job.result, Manifest)
    world.check_end()


def test_the_adversary_finds_who_takes_the_files_of_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launches, "_is_live", lambda *_: False)
    world = World()
    at_work(world)
    try:
        with pytest.raises(AssertionError, match="of a job at work"):
            world.baton.finish(world.clean())
    finally:
        world.baton.end_all()


def test_a_late_removal_is_told_by_verify() -> None:
    """The store removes features.json, of the same bytes, long after its client died."""
    random_history(20119713)


def test_staged_files_that_a_run_of_the_same_job_removes() -> None:
    """It slept behind its commit, and then cleaned the workspace that both share."""
    random_history(14037)


def test_cleaning_beside_a_detached_job_that_publishes() -> None:
    """What described the dataset before is the new one's when it is removed."""
    random_history(493)
