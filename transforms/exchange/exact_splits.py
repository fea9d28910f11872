"""Divides rows exactly: so many of each class to each split, by the ranks of their draws.

Ten rows, train=0.8 and test=0.2, two classes:

    class   rows   shares      records of train and test
    cat     7      5.6, 1.4    6, 1
    dog     3      2.4, 0.6    2, 1      (2.4 + 5.6 = 8: dog gives back what cat took)

Each class then has its limits: of the 7 draws of cat the 6 smallest are train, so the limit
is the seventh. A row needs its own draw and the limits of its class, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import assign_splits, split_draws, text_hash
from recordmill.transforms.exchange.rank_sketch import RankSketch


@dataclass(frozen=True)
class SplitLimits:
    """Where the splits of each class end.

    Attributes:
      classes: hashes of the classes' keys, ascending.
      limits: for each of them, the first draw that is beyond each split but the last,
        shape (classes, splits - 1).
      records: of each split.
    """

    classes: U64
    limits: U64
    records: tuple[int, ...]

    def assign(
        self, origins: U64, classes: U64, fractions: Sequence[Fraction], seed: int
    ) -> npt.NDArray[np.uint8]:
        """Returns the index of each row's split.

        Args:
          origins: of the rows.
          classes: hash of each row's class; one that no row had is divided by fractions.
          fractions: share of each split.
          seed: the job's seed.
        """
        if not len(self.classes):
            return assign_splits(origins, fractions, seed)
        index = np.searchsorted(self.classes, classes)
        index = np.minimum(index, len(self.classes) - 1)
        known = self.classes[index] == classes
        beyond = split_draws(origins, seed)[:, None] >= self.limits[index]
        splits: npt.NDArray[np.uint8] = beyond.sum(axis=1).astype(np.uint8)
        if not known.all():
            splits[~known] = assign_splits(origins[~known], fractions, seed)
        return splits


def expected_ends(fractions: Sequence[Fraction]) -> tuple[int, ...]:
    """Returns where every split but the last is expected to end among all draws."""
    return tuple(int(end * (1 << 64)) for end in list(accumulate(fractions))[:-1])


def find_limits(
    sketches: Mapping[str, RankSketch], fractions: Sequence[Fraction]
) -> SplitLimits | None:
    """Returns the limits of all classes.

    Args:
      sketches: of the rows of each class, by its key.
      fractions: share of each split.

    Returns:
      None if a sketch does not reach far enough: count again with a larger width.
    """
    keys = sorted(sketches)
    numbers = divide([sketches[key].count for key in keys], fractions)
    table = {}
    for key, records in zip(keys, numbers, strict=True):
        found = sketches[key].limits(list(accumulate(records))[:-1])
        if found is None:
            return None
        table[text_hash(key)] = found
    hashes = sorted(table)
    limits = np.array([table[each] for each in hashes], np.uint64)
    return SplitLimits(
        np.array(hashes, np.uint64),
        limits.reshape(len(hashes), len(fractions) - 1),
        tuple(map(sum, zip(*numbers, strict=True))) or (0,) * len(fractions),
    )


def divide(
    counts: Sequence[int], fractions: Sequence[Fraction]
) -> list[tuple[int, ...]]:
    """Returns how many rows of each class each split gets.

    The largest remainders are rounded up. What a split got too little of in one class
    counts for it in the next, so that the splits have their shares of all rows, too. No
    number is a whole row or more away from its share.

    >>> divide([7, 3], [Fraction(4, 5), Fraction(1, 5)])
    [(6, 1), (2, 1)]

    Args:
      counts: rows of each class.
      fractions: share of each split; they add up to 1.
    """
    owed = [Fraction(0)] * len(fractions)
    divided = []
    for count in counts:
        shares = [count * fraction for fraction in fractions]
        given = [int(share) for share in shares]
        remainders = [share - whole for share, whole in zip(shares, given, strict=True)]
        order = [index for index, left in enumerate(remainders) if left]
        order.sort(key=lambda index: (-(remainders[index] + owed[index]), index))
        for index in order[: count - sum(given)]:
            given[index] += 1
        owed = [
            before + share - got
            for before, share, got in zip(owed, shares, given, strict=True)
        ]
        divided.append(tuple(given))
    return divided
