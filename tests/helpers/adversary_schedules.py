"""Orders the operations of two or three runs, by a seed or at all pairs of stop points."""

from __future__ import annotations

import random
from collections.abc import Callable

from adversary import Actor
from adversary_runs import World

Start = Callable[[World], Actor]

RUNS: dict[str, Start] = {
    "publish": lambda world: world.publish("x"),
    "the same again": lambda world: world.publish("x"),
    "another": lambda world: world.publish("y"),
    "overwrite": lambda world: world.publish("y", overwrite=True),
    "overwrite too": lambda world: world.publish("z", overwrite=True),
    "back": lambda world: world.publish("first", overwrite=True),
    "append": lambda world: world.append("b"),
    "append too": lambda world: world.append("c"),
    "clean": lambda world: world.clean(),
    "detached": lambda world: world.detach("d"),
    "detached overwrite": lambda world: world.detach("e", overwrite=True),
    "end detached": lambda world: world.clean(detached=True),
}

VERSION_RUNS: dict[str, Start] = {
    "auto": lambda world: world.auto("x"),
    "auto again": lambda world: world.auto("x"),
    "auto, another": lambda world: world.auto("y"),
    "auto, keep one": lambda world: world.auto("z", keep=1),
    "by hand": lambda world: world.publish("h", overwrite=True, version="1.0.1"),
    "later by hand": lambda world: world.publish("h", version="1.0.3"),
    "detached by hand": lambda world: world.detach("d", version="1.0.1"),
    "clean version": lambda world: world.clean(version="1.0.1"),
}


def fresh(world: World) -> None:
    """Leaves the folder empty."""


def with_dataset(world: World) -> None:
    """Publishes a dataset that the runs find."""
    world.baton.finish(world.publish("first"))


def with_version(world: World) -> None:
    """Publishes a version that the runs find."""
    world.baton.finish(world.auto("first"))


def random_history(
    seed: int, *, conditional: bool = True, versions: bool = False
) -> None:
    """Runs two or three runs at once, with kills, late operations and lost answers.

    Args:
      seed: of the history.
      conditional: whether a swap looks at what is there.
      versions: whether the runs are those of a folder of versions.
    """
    world = World(conditional=conditional)
    try:
        _run_history(world, random.Random(seed), versions=versions)
    finally:
        world.baton.end_all()


def _run_history(world: World, choose: random.Random, *, versions: bool) -> None:
    runs, before = (
        VERSION_RUNS if versions else RUNS,
        with_version if versions else with_dataset,
    )
    choose.choice([fresh, before, before])(world)
    names = choose.choices(list(runs), k=choose.choice([2, 2, 3]))
    waiting = [runs[name] for name in names]
    alive = [waiting.pop()(world)]
    while alive or waiting:
        if waiting and (not alive or choose.random() < 0.02):
            alive.append(waiting.pop()(world))
        actor = choose.choice(alive)
        # Mostly some operations of one run, as others sleep.
        for _ in range(choose.choice([1, 1, 3, 10, 40])):
            fate = choose.random()
            if fate < 0.003:
                world.baton.kill(actor, late=choose.random() < 0.5)
            else:
                world.baton.turn(actor, repeat=fate > 0.97)
            if not actor.is_alive:
                alive.remove(actor)
                break
        if world.baton.late and choose.random() < 0.05:
            world.baton.land()
    world.check_end()


def stopped_at(
    first: str, second: str, stops: tuple[int, int], *, dataset: bool, killed: bool
) -> tuple[bool, bool]:
    """Stops one run, then another one; lets the first one go on, then the other one.

    Args:
      first: the run that is stopped first.
      second: the other one.
      stops: operations before each is stopped.
      dataset: whether there is a dataset before.
      killed: whether the second one does not go on.

    Returns:
      Whether each of them came to its end before.
    """
    world = World()
    try:
        return _stop_at(world, first, second, stops, dataset=dataset, killed=killed)
    finally:
        world.baton.end_all()


def _stop_at(
    world: World,
    first: str,
    second: str,
    stops: tuple[int, int],
    *,
    dataset: bool,
    killed: bool,
) -> tuple[bool, bool]:
    runs, before = RUNS, with_dataset
    if first not in RUNS or second not in RUNS:
        runs, before = VERSION_RUNS, with_version
    (before if dataset else fresh)(world)
    actors, ended = [], []
    for name, stop in zip((first, second), stops, strict=True):
        actor = runs[name](world)
        while actor.is_alive and actor.steps < stop:
            world.baton.turn(actor)
        actors.append(actor)
        ended.append(not actor.is_alive)
    world.baton.finish(actors[0])
    if killed and actors[1].is_alive:
        world.baton.kill(actors[1])
    world.baton.finish(actors[1])
    world.check_end()
    return ended[0], ended[1]
