"""Sums up numbers: limits, mean, quantiles and a histogram, in bounded memory."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.figures.number_bins import NumberBins

SHOWN_BINS = 40  # of a histogram, at most
_TAIL = 0.005  # of the numbers on each side, left out where they would hide all others
_CROWDED = 0.2  # of the bins shown hold all but the tails: look closer

Number = int | float


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many numbers lie in each of some intervals; all counts are exact.

    Attributes:
      edges: where the intervals begin, and where the last one ends.
      counts: numbers in each. An edge belongs to the interval that begins there; the
        last edge to the last one.
      below: numbers before the first interval.
      above: numbers behind the last one.
      discrete: whether each interval is a single integer.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    below: int = 0
    above: int = 0
    discrete: bool = False


@dataclass(frozen=True, slots=True)
class NumberFigures:
    """What is known of some numbers; NaN and infinities are counted, but not summed up.

    Attributes:
      values: how many there are, with NaN and infinities.
      nans: how many are NaN.
      infinities: how many are infinite.
      minimum, maximum, mean, deviation: of the finite ones; None if there is none, or
        (mean, deviation) if they overflow.
      median: the middle one; None if there is none.
      median_within: how far the median may be from it: half an interval of 16,384; 0 if
        it is exact.
      histogram: of the finite ones; None if there is none.
    """

    values: int = 0
    nans: int = 0
    infinities: int = 0
    minimum: Number | None = None
    maximum: Number | None = None
    mean: float | None = None
    deviation: float | None = None
    median: float | None = None
    median_within: float = 0.0
    histogram: Histogram | None = None


class NumberSketch:
    """Numbers seen so far.

    Args:
      whole: whether all are integers.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._bins = NumberBins(lowest_level=0 if whole else None)
        self._values = self._nans = self._infinities = self._finite = 0
        self._minimum: Number | None = None
        self._maximum: Number | None = None
        self._mean = self._squares = 0.0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Adds numbers, of any dtype."""
        self._values += len(values)
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            if not finite.all():
                nans = int(np.isnan(values).sum())
                self._nans += nans
                values = values[finite]
                self._infinities += int((~finite).sum()) - nans
        if not len(values):
            return
        low, high = values.min().item(), values.max().item()
        self._minimum = low if self._minimum is None else min(self._minimum, low)
        self._maximum = high if self._maximum is None else max(self._maximum, high)
        numbers = values.astype(np.float64)
        self._add_moments(numbers)
        self._bins.add(numbers)

    def _add_moments(self, numbers: npt.NDArray[np.float64]) -> None:
        """Joins mean and squared deviations of two sets, as Chan et al. do (1979)."""
        count, before = len(numbers), self._finite
        self._finite += count
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(numbers.mean())
            squares = float(np.square(numbers - mean).sum())
        step = mean - self._mean
        share = count / self._finite
        self._mean += step * share
        # A product that overflows is inf; a power would raise.
        self._squares += squares + step * step * before * share

    def figures(self) -> NumberFigures:
        """Returns what is known by now."""
        if not self._finite:
            return NumberFigures(self._values, self._nans, self._infinities)
        median, within = self._median()
        deviation = math.sqrt(self._squares / self._finite) if self._squares >= 0 else 0
        return NumberFigures(
            values=self._values,
            nans=self._nans,
            infinities=self._infinities,
            minimum=self._minimum,
            maximum=self._maximum,
            mean=self._mean if math.isfinite(self._mean) else None,
            deviation=deviation if math.isfinite(deviation) else None,
            median=median,
            median_within=within,
            histogram=self._histogram(),
        )

    def _median(self) -> tuple[float, float]:
        """Returns the lower one of two medians, and how far it may be from that."""
        bins = self._bins
        middle = (self._finite + 1) // 2
        index = int(np.searchsorted(np.cumsum(bins.counts), middle))
        number = bins.first + index
        if self._whole and bins.level == 0:
            return number, 0.0
        assert self._minimum is not None
        assert self._maximum is not None
        if self._minimum == self._maximum:
            return self._minimum, 0.0
        half = _edge(1, bins.level - 1)
        center = _edge(2 * number + 1, bins.level - 1)
        return min(max(center, self._minimum), self._maximum), half

    def _histogram(self) -> Histogram:
        """Joins the bins to SHOWN_BINS or fewer; leaves out tails that hide the rest."""
        bins = self._bins
        start, stop = 0, len(bins.counts)
        total = np.cumsum(bins.counts)
        low = int(np.searchsorted(total, _TAIL * self._finite, side="right"))
        high = int(np.searchsorted(total, (1 - _TAIL) * self._finite)) + 1
        if stop > SHOWN_BINS and high - low < _CROWDED * stop:
            start, stop = low, high
        width = 1
        while _span(bins.first + start, bins.first + stop, width) > SHOWN_BINS:
            width *= 2
        first = (bins.first + start) // width
        span = _span(bins.first + start, bins.first + stop, width)
        counts = np.zeros(span, np.int64)
        np.add.at(
            counts,
            (bins.first + np.arange(start, stop)) // width - first,
            bins.counts[start:stop],
        )
        edges = [_edge((first + i) * width, bins.level) for i in range(span + 1)]
        discrete = self._whole and bins.level == 0 and width == 1
        above = self._finite - int(total[stop - 1])
        if not discrete and span > 1 and not above and edges[-2] == self._maximum:
            counts[-2] += counts[-1]  # the largest one alone: the last edge is it
            counts, edges = counts[:-1], edges[:-1]
        below = int(total[start - 1]) if start else 0
        return Histogram(tuple(edges), tuple(counts.tolist()), below, above, discrete)


def _edge(number: int, level: int) -> float:
    """Returns where a bin begins; behind the largest float, that float."""
    try:
        return math.ldexp(number, level)
    except OverflowError:
        return math.copysign(sys.float_info.max, number)


def _span(start: int, stop: int, width: int) -> int:
    """Returns how many multiples of a width the bins from start to stop lie in."""
    return (stop - 1) // width - start // width + 1
