"""Counts numbers in bins of equal width, whose range need not be known before.

A bin is 2**level wide and begins at a multiple of that: bin 3 at level -1 has the numbers
from 1.5 to below 2. When numbers come that would need too many bins, the level rises and
pairs of bins are joined. So every count is exact, in bounded memory:

    [1, 2, 3] at level 0      bins 1, 2, 3: 1 each
    and 9000                  level 2: bins of 4; 0: 3 numbers, 2250: 1 number
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import I64

NUM_BINS = 1 << 14  # at most
_EXACT_BITS = 53  # of a float64: the number of a bin must fit
_MAX_SHIFT = 63
_OF_ZERO = -1200

F64 = npt.NDArray[np.float64]


class NumberBins:
    """The counts of finite numbers, in bins.

    Args:
      lowest_level: no bin is narrower: 0 for integers.

    Attributes:
      level: a bin is 2**level wide.
      first: number of the first bin that is counted.
      counts: numbers in each bin, from the first one on.
    """

    def __init__(self, lowest_level: int | None = None) -> None:
        self._lowest_level = lowest_level
        self._limits: tuple[float, float] | None = None
        self.level = 0
        self.first = 0
        self.counts: I64 = np.zeros(0, np.int64)

    def add(self, numbers: F64) -> None:
        """Counts numbers, all of them finite."""
        if not len(numbers):
            return
        low, high = float(numbers.min()), float(numbers.max())
        if self._limits is None:
            self._limits = low, high
            self.level = self._level_of(low, high)
        else:
            self._limits = min(self._limits[0], low), max(self._limits[1], high)
            self._coarsen(max(self.level, self._level_of(*self._limits)))
        bins = bins_of(numbers, self.level)
        start, stop = int(bins.min()), int(bins.max()) + 1
        self._widen(start, stop)
        found = np.bincount(bins - start, minlength=stop - start)
        self.counts[start - self.first : stop - self.first] += found

    def _level_of(self, low: float, high: float) -> int:
        """Returns the lowest level at which the bins from low to high are few enough."""
        magnitude = _exponent(max(abs(low), abs(high)))
        spread = _exponent(high / 2 - low / 2) + 1  # halves, as it may overflow
        level = max(magnitude - _EXACT_BITS, spread - NUM_BINS.bit_length())
        if self._lowest_level is not None:
            level = max(level, self._lowest_level)
        ends = np.array([low, high])
        while np.ptp(bins_of(ends, level)) >= NUM_BINS:
            level += 1
        return level

    def _coarsen(self, level: int) -> None:
        """Joins bins until they have this level."""
        if level == self.level:
            return
        shift = min(level - self.level, _MAX_SHIFT)
        numbers = (self.first + np.arange(len(self.counts))) >> shift
        self.first, self.level = int(numbers[0]), level
        joined = np.zeros(int(numbers[-1]) - self.first + 1, np.int64)
        np.add.at(joined, numbers - self.first, self.counts)
        self.counts = joined

    def _widen(self, start: int, stop: int) -> None:
        """Makes room for the bins from start to stop."""
        if not len(self.counts):
            self.first = start
        before = max(0, self.first - start)
        after = max(0, stop - self.first - len(self.counts))
        if before or after:
            self.counts = np.pad(self.counts, (before, after))
            self.first -= before


def _exponent(number: float) -> int:
    """Returns how many bits are before the binary point; of 0 fewer than of any other."""
    return math.frexp(number)[1] if number else _OF_ZERO


def bins_of(numbers: F64, level: int) -> I64:
    """Returns the number of each number's bin: floor(number / 2**level), exactly."""
    scaled = np.ldexp(numbers, -level)
    bins = np.floor(scaled).astype(np.int64)
    bins -= (scaled == 0) & (
        numbers < 0
    )  # too small to be scaled: below 0 all the same
    return bins
