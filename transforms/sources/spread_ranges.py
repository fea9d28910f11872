"""Spreads small ranges over the input, to learn of all of it from a part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from recordmill.schemas.ranges import InputRange


def spread_evenly(
    ranges: Sequence[InputRange], count: int, size: int
) -> list[InputRange]:
    """Returns ranges of the same size, spread evenly over larger ones.

    Args:
      ranges: the larger ones; each result lies within one of them.
      count: how many to return; fewer where ranges are small.
      size: of a result, in the ranges' unit; results begin at multiples of it.
    """
    ends = list(accumulate(input_range.num_positions for input_range in ranges))
    chosen: dict[tuple[int, int], InputRange] = {}
    for number in range(count):
        position = ends[-1] * (2 * number + 1) // (2 * count)
        index = bisect_right(ends, position)
        input_range = ranges[index]
        inside = position - (ends[index] - input_range.num_positions)
        start = input_range.start + inside // size * size
        chosen[index, start] = replace(
            input_range,
            start=start,
            stop=min(start + size, input_range.stop),
            first_position=input_range.first_position + start - input_range.start,
        )
    return list(chosen.values())
