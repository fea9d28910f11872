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
}


def fresh(world: World) -> None:
    """Leaves the folder empty."""


def with_dataset(world: World) -> None:
    """Publishes a dataset that the runs find."""
    world.baton.finish(world.publish("first"))


def random_history(seed: int, *, conditional: bool = True) -> World:
    """Runs two or three runs at once, with kills, late operations and lost answers."""
    choose = random.Random(seed)
    world = World(conditional=conditional)
    choose.choice([fresh, with_dataset, with_dataset])(world)
    names = choose.choices(list(RUNS), k=choose.choice([2, 2, 3]))
    waiting = [RUNS[name] for name in names]
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
    return world


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
    (with_dataset if dataset else fresh)(world)
    actors, ended = [], []
    for name, stop in zip((first, second), stops, strict=True):
        actor = RUNS[name](world)
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
