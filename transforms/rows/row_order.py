"""Decides in which order rows are read in an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from recordmill.schemas.errors import UsageError
from recordmill.transforms.arrow import I64

_BLOCK = 128  # rows that stay together, where reading them together is much cheaper
_BUFFER = 128  # blocks whose rows are mixed

_DRAWS = 1 << 10  # random places at once: one by one they would take longer than a row

Row = TypeVar("Row")
Order = Callable[[int, int], I64]  # order(start, stop): numbers of these rows


def row_order(count: int, seed: int | None, epoch: int, *, near: bool) -> Order:
    """Returns a function from places in an epoch to the numbers of rows.

    Every row comes once. The order depends on nothing but the arguments.

    Args:
      count: of the rows.
      seed: of the order; None is the order in which they lie.
      epoch: another one gives another order.
      near: whether rows that follow each other should be read together, as from a store.
        Then blocks of 128 rows are drawn, and 128 such blocks are mixed at a time.
    """
    if seed is None:
        return np.arange
    random = np.random.default_rng([seed % (1 << 64), epoch])
    if not near:
        return _pieces_of(random.permutation(count))
    blocks = random.permutation(-(-count // _BLOCK)) * _BLOCK
    rows = (blocks[:, None] + np.arange(_BLOCK)).ravel()
    rows = rows[rows < count]
    for start in range(0, count, _BLOCK * _BUFFER):
        random.shuffle(rows[start : start + _BLOCK * _BUFFER])
    return _pieces_of(rows)


def _pieces_of(rows: I64) -> Order:
    return lambda start, stop: rows[start:stop]


def check_worker(worker: int, num_workers: int) -> None:
    """Refuses a worker that there is not, with a UsageError."""
    if not 0 <= worker < num_workers:
        raise UsageError(
            f"worker={worker} of num_workers={num_workers}: expected a worker from 0 to "
            "num_workers - 1"
        )


def mixed(
    rows: Iterable[Row], seed: int, epoch: int, worker: int, buffer: int
) -> Iterator[Row]:
    """Yields rows in another order: the next one is any of those that wait.

    Args:
      rows: that come in some order.
      seed: of the order.
      epoch: another one gives another order.
      worker: another one draws other places.
      buffer: how many rows wait, 1 or more.
    """
    random = np.random.default_rng([seed % (1 << 64), epoch, worker])
    draws = (random.integers(buffer, size=_DRAWS).tolist() for _ in itertools.count())
    places = itertools.chain.from_iterable(draws)
    waiting: list[Row] = []
    for row in rows:
        if len(waiting) < buffer:
            waiting.append(row)
            continue
        place = next(places)
        yield waiting[place]
        waiting[place] = row
    for place in random.permutation(len(waiting)).tolist():
        yield waiting[place]
