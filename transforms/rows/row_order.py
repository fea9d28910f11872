"""Decides in which order rows are read in an epoch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recordmill.transforms.arrow import I64

_BLOCK = 128  # rows that stay together, where reading them together is much cheaper
_BUFFER = 128  # blocks whose rows are mixed

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
