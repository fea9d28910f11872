"""Finds the draw of a given rank among many, in little memory and one reading.

The draws of a class of rows are hashes, so they lie evenly: of n rows, the draw that cuts
off the share f lies within a few times 2**64 / sqrt(n) of f * 2**64. Only the draws in such
a window are kept, and those below it are counted. The window shrinks as rows come:

    rows             window, of all draws     kept draws of each end
    1,000            all                      1,000
    1,000,000        1.6 %                    16,000
    1,000,000,000    0.05 %                   490,000 (4 MB)

Whatever the order of the rows, the draw that is found is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recordmill.transforms.arrow import U64

ALL_KEPT = 4096  # rows up to which every draw is kept
WIDTH = 4  # half a window is at least this many times 2**64 / sqrt(n): 8 sigma
_SPACE = 1 << 64


@dataclass(slots=True)
class RankSketch:
    """The draws of one class of rows: counted, and kept near the ends of the splits.

    Attributes:
      ends: where the ends of the splits are expected among all u64.
      width: half a window, in 2**64 / sqrt(n); a wider one misses even more rarely.
      count: of all draws.
    """

    ends: tuple[int, ...]
    width: int = WIDTH
    count: int = 0
    _shift: int = 0  # half a window is 2**64 >> shift; 0 keeps all
    _below: list[int] = field(init=False)
    _near: list[U64] = field(init=False)

    def __post_init__(self) -> None:
        self._below = [0] * len(self.ends)
        self._near = [np.zeros(0, np.uint64)] * len(self.ends)

    def add(self, draws: U64) -> None:
        """Adds the draws of some rows."""
        self._merge(len(draws), 0, [0] * len(self.ends), [draws] * len(self.ends))

    def merge(self, other: RankSketch) -> None:
        """Adds the draws of another sketch with the same ends and width."""
        self._merge(other.count, other._shift, other._below, other._near)

    def _merge(
        self, count: int, shift: int, below: Sequence[int], near: Sequence[U64]
    ) -> None:
        self.count += count
        self._shift = max(self._shift, shift, _shift_of(self.count, self.width))
        for index, end in enumerate(self.ends):
            first = max(0, end - (_SPACE >> self._shift))
            last = min(_SPACE - 1, end + (_SPACE >> self._shift))
            self._below[index] += below[index]
            kept = []
            for draws in (self._near[index], near[index]):
                self._below[index] += int((draws < np.uint64(first)).sum())
                inside = (draws >= np.uint64(first)) & (draws <= np.uint64(last))
                kept.append(draws[inside])
            self._near[index] = np.concatenate(kept)

    def limits(self, ranks: Sequence[int]) -> list[int] | None:
        """Returns the draws that as many others lie below, one for each end.

        Args:
          ranks: how many draws are to lie below each.

        Returns:
          None if one lies outside its window: count again with a larger width.
        """
        found = []
        for rank, below, near in zip(ranks, self._below, self._near, strict=True):
            if rank == self.count:
                found.append(_SPACE - 1)  # all lie below
            elif 0 <= rank - below < len(near):
                found.append(int(np.partition(near, rank - below)[rank - below]))
            else:
                return None
        return found


def _shift_of(count: int, width: int) -> int:
    """Returns the shift of the window for so many draws.

    >>> [_shift_of(n, 4) for n in (1, 4096, 1_000_000, 1_000_000_000)]
    [0, 0, 7, 12]
    """
    if count <= ALL_KEPT:
        return 0
    return max(0, int(np.log2(np.sqrt(count) / width)))
