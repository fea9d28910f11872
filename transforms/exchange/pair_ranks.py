"""Finds the pairs (value, origin) of given ranks among many, exactly, in flat memory.

Values, such as times, may lie anywhere and many may be equal; origins are hashes, so pairs
differ and equal values have an order. Up to MAX_KEPT pairs are all kept, and one reading
is enough. Of more, a sample by their origins is kept that halves whenever it is full; it
tells a narrower window for each rank, in which the next reading looks:

    rows                readings
    2,000,000           1
    200,000,000         2
    20,000,000,000      3

Whatever the order of the rows, the pairs that are found are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import mix

MAX_KEPT = 1 << 21  # pairs of one window: 32 MB
SIGMAS = 8  # how far from its place in a sample a rank is looked for
_MOST = (1 << 64) - 1
_SALT = np.uint64(0x5851F42D4C957F2D)

Pair = tuple[int, int]
Window = tuple[Pair, Pair]  # the first and the last pair in it
WHOLE: Window = ((0, 0), (_MOST, _MOST))


@dataclass(frozen=True)
class PairLimits:
    """The first pair beyond each split but the last.

    Attributes:
      values: of these pairs, ascending.
      origins: of the same.
    """

    values: U64
    origins: U64

    def assign(self, values: U64, origins: U64) -> npt.NDArray[np.int64]:
        """Returns the index of each row's split."""
        splits = np.zeros(len(values), np.int64)
        for value, origin in zip(self.values, self.origins, strict=True):
            splits += (values > value) | ((values == value) & (origins >= origin))
        return splits


@dataclass(slots=True)
class PairSketch:
    """The pairs of some rows: counted below a window, and kept or sampled in it.

    Attributes:
      window: what is kept.
      max_kept: pairs.
      below: how many pairs lie below the window.
      inside: how many lie in it.
    """

    window: Window = WHOLE
    max_kept: int = MAX_KEPT
    below: int = 0
    inside: int = 0
    _shift: int = 0  # of 2**shift pairs one is kept
    _values: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))
    _origins: U64 = field(default_factory=lambda: np.zeros(0, np.uint64))

    def add(self, values: U64, origins: U64) -> None:
        """Adds the pairs of some rows."""
        is_below = _less(values, origins, self.window[0])
        is_inside = ~is_below & ~_greater(values, origins, self.window[1])
        self.below += int(is_below.sum())
        self.inside += int(is_inside.sum())
        self._keep(values[is_inside], origins[is_inside], 0)

    def merge(self, other: PairSketch) -> None:
        """Adds the pairs of another sketch of the same window."""
        self.below += other.below
        self.inside += other.inside
        self._keep(other._values, other._origins, other._shift)

    def _keep(self, values: U64, origins: U64, shift: int) -> None:
        if shift < self._shift:
            values, origins = _sampled(values, origins, self._shift)
        elif shift > self._shift:
            self._thin(shift)
        self._values = np.concatenate([self._values, values])
        self._origins = np.concatenate([self._origins, origins])
        while len(self._values) > self.max_kept:
            self._thin(self._shift + 1)

    def _thin(self, shift: int) -> None:
        self._shift = shift
        self._values, self._origins = _sampled(self._values, self._origins, shift)

    def has(self, rank: int) -> bool:
        """Tells whether the pair above as many others lies in the window."""
        return self.below <= rank < self.below + self.inside

    def pair(self, rank: int) -> Pair | None:
        """Returns the pair above as many others; None if only a sample was kept."""
        if self._shift or not self.has(rank):
            return None
        order = np.lexsort((self._origins, self._values))
        return self._at(int(order[rank - self.below]))

    def narrower(self, rank: int, sigmas: float) -> Window:
        """Returns the window in which the pair above as many others lies very likely."""
        order = np.lexsort((self._origins, self._values))
        number = len(order)
        share = (rank - self.below) / max(1, self.inside)
        # Of the sampled pairs, those below are as many as heads of so many coins.
        around = sigmas * np.sqrt(number * share * (1 - share)) + sigmas
        first, last = int(share * number - around), int(share * number + around)
        return (
            self._at(int(order[first])) if first >= 0 else self.window[0],
            self._at(int(order[last])) if last < number else self.window[1],
        )

    def _at(self, index: int) -> Pair:
        return int(self._values[index]), int(self._origins[index])


def _less(values: U64, origins: U64, pair: Pair) -> npt.NDArray[np.bool_]:
    value, origin = np.uint64(pair[0]), np.uint64(pair[1])
    found: npt.NDArray[np.bool_] = values < value
    found |= (values == value) & (origins < origin)
    return found


def _greater(values: U64, origins: U64, pair: Pair) -> npt.NDArray[np.bool_]:
    value, origin = np.uint64(pair[0]), np.uint64(pair[1])
    found: npt.NDArray[np.bool_] = values > value
    found |= (values == value) & (origins > origin)
    return found


def _sampled(values: U64, origins: U64, shift: int) -> tuple[U64, U64]:
    """Returns one of 2**shift pairs, chosen by its origin."""
    if not shift:
        return values, origins
    kept = mix(origins ^ _SALT) >> np.uint64(64 - shift) == 0
    return values[kept], origins[kept]


def next_windows(
    sketches: Sequence[PairSketch], ranks: Sequence[int], sigmas: float
) -> list[Window] | None:
    """Returns the windows for the next reading; None if a rank was missed by its own.

    Args:
      sketches: of the last reading, one for each rank.
      ranks: as in `PairSketch.pair`.
      sigmas: how far to look.
    """
    pairs = list(zip(sketches, ranks, strict=True))
    if not all(sketch.has(rank) for sketch, rank in pairs):
        return None
    return [sketch.narrower(rank, sigmas) for sketch, rank in pairs]
