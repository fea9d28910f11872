"""Finds the split hash of a given rank among many, in little memory and one pass.

The split hashes of a class of rows are distributed evenly: among n rows, the split hash
that separates the share f is within a few times 2**64 / sqrt(n) of f * 2**64. Only the
split hashes in such a window are kept, and the smaller ones are counted. The window
shrinks as rows are added:

    rows             window, of all hashes    kept hashes for each end
    1,000            all                      1,000
    1,000,000        1.6 %                    16,000
    1,000,000,000    0.05 %                   490,000 (4 MB)

The result does not depend on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import assign_splits, split_hashes, text_hash

MAX_ROWS_WITHOUT_WINDOW = 4096  # number of rows up to which every split hash is kept
WIDTH = 4  # half a window is at least this many times 2**64 / sqrt(n): 8 sigma
_SPACE = 1 << 64


@dataclass(slots=True)
class RankSketch:
    """A sketch of a class's split hashes: their count, and the ones near split ends."""

    # the expected ends of the splits, as u64
    ends: tuple[int, ...] = ()
    # half a window, in units of 2**64 / sqrt(n); a wider window fails more rarely
    width: int = WIDTH
    count: int = 0  # number of split hashes added
    _shift: int = 0  # half a window is 2**64 >> shift; 0 keeps all
    _counts_below: list[int] = field(init=False)
    _hashes_near_ends: list[U64] = field(init=False)

    def __post_init__(self) -> None:
        self._counts_below = [0] * len(self.ends)
        self._hashes_near_ends = [np.zeros(0, np.uint64)] * len(self.ends)

    def add(self, draws: U64) -> None:
        """Adds the split hashes of some rows."""
        self._merge(len(draws), 0, [0] * len(self.ends), [draws] * len(self.ends))

    def merge(self, other: RankSketch) -> None:
        """Adds the split hashes of another sketch with the same ends and width."""
        self._merge(
            other.count, other._shift, other._counts_below, other._hashes_near_ends
        )

    def _merge(
        self, count: int, shift: int, below: Sequence[int], near: Sequence[U64]
    ) -> None:
        self.count += count
        self._shift = max(self._shift, shift, _shift_of(self.count, self.width))
        for index, end in enumerate(self.ends):
            first = max(0, end - (_SPACE >> self._shift))
            last = min(_SPACE - 1, end + (_SPACE >> self._shift))
            self._counts_below[index] += below[index]
            hashes_in_window = []
            for draws in (self._hashes_near_ends[index], near[index]):
                self._counts_below[index] += int((draws < np.uint64(first)).sum())
                inside = (draws >= np.uint64(first)) & (draws <= np.uint64(last))
                hashes_in_window.append(draws[inside])
            self._hashes_near_ends[index] = np.concatenate(hashes_in_window)

    def limits(self, ranks: Sequence[int]) -> list[int] | None:
        """Returns for each end the split hash with the given rank, from 0.

        None if one of them is outside its window: count again with a larger width.
        """
        limits = []
        for rank, below, near in zip(
            ranks, self._counts_below, self._hashes_near_ends, strict=True
        ):
            if rank == self.count:
                limits.append(_SPACE - 1)  # all split hashes are smaller
            elif 0 <= rank - below < len(near):
                limits.append(int(np.partition(near, rank - below)[rank - below]))
            else:
                return None
        return limits


class SmallestKeys:
    """A collector of the `limit` smallest of many keys, with any distribution.

    It takes at most 40 bytes per collected key: it holds up to twice as many keys, and a
    copy of them while it selects the smallest ones.
    """

    ends = ()

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0  # number of keys added
        self._collected_keys: list[U64] = []
        self._num_collected = 0

    def add(self, keys: U64) -> None:
        """Adds some keys."""
        self.count += len(keys)
        self._collected_keys.append(keys)
        self._num_collected += len(keys)
        if self._num_collected >= 2 * self.limit:  # amortized: few selections per key
            self._collected_keys = [self._smallest()]
            self._num_collected = len(self._collected_keys[0])

    def merge(self, other: SmallestKeys) -> None:
        """Adds the keys of another collector with the same limit."""
        count = self.count + other.count
        self.add(other._smallest())
        self.count = count

    def largest_key(self) -> tuple[int, int] | None:
        """Returns the largest collected key, and the number of its occurrences.

        None if all keys are within the limit.
        """
        if self.count <= self.limit:
            return None
        smallest_keys = self._smallest()
        return int(smallest_keys.max()), int(
            (smallest_keys == smallest_keys.max()).sum()
        )

    def _smallest(self) -> U64:
        keys = np.concatenate([np.zeros(0, np.uint64), *self._collected_keys])
        if len(keys) <= self.limit:
            return keys
        keys.partition(self.limit - 1)
        return keys[: self.limit].copy()


def _shift_of(count: int, width: int) -> int:
    """Returns the shift of the window for a number of split hashes.

    >>> [_shift_of(n, 4) for n in (1, 4096, 1_000_000, 1_000_000_000)]
    [0, 0, 7, 12]
    """
    if count <= MAX_ROWS_WITHOUT_WINDOW:
        return 0
    return max(0, int(np.log2(np.sqrt(count) / width)))


# Ten rows, train=0.8 and test=0.2, two classes:
#
#     class   rows   shares      records of train and test
#     cat     7      5.6, 1.4    6, 1
#     dog     3      2.4, 0.6    2, 1      (2.4 + 5.6 = 8: dog balances the excess of cat)
#
# Each class then has its limits: among the 7 split hashes of cat, the 6 smallest are
# train, so the limit is the seventh. The split of a row depends only on its split hash
# and the limits of its class.


@dataclass(frozen=True)
class SplitLimits:
    """The ends of the splits of each class."""

    classes: U64  # hashes of the classes' keys, ascending
    # for each class, the first split hash after each split but the last, shape
    # (classes, splits - 1)
    limits: U64
    records: tuple[int, ...]  # number of records of each split

    def assign(
        self, origins: U64, classes: U64, fractions: Sequence[Fraction], seed: int
    ) -> npt.NDArray[np.uint8]:
        """Returns the index of each row's split.

        A class without limits is divided by fractions.
        """
        if not len(self.classes):
            return assign_splits(origins, fractions, seed)
        index = np.searchsorted(self.classes, classes)
        index = np.minimum(index, len(self.classes) - 1)
        has_limits = self.classes[index] == classes
        beyond = split_hashes(origins, seed)[:, None] >= self.limits[index]
        splits: npt.NDArray[np.uint8] = beyond.sum(axis=1).astype(np.uint8)
        if not has_limits.all():
            splits[~has_limits] = assign_splits(origins[~has_limits], fractions, seed)
        return splits


def expected_ends(fractions: Sequence[Fraction]) -> tuple[int, ...]:
    """Returns the expected end, as u64, of every split but the last."""
    return tuple(int(end * (1 << 64)) for end in list(accumulate(fractions))[:-1])


def find_limits(
    sketches: Mapping[str, RankSketch], fractions: Sequence[Fraction]
) -> SplitLimits | None:
    """Returns the limits of all classes, from the sketches by the key of each class.

    None if a window is too narrow: count again with a larger width.
    """
    keys = sorted(sketches)
    numbers = divide_rows([sketches[key].count for key in keys], fractions)
    table = {}
    for key, records in zip(keys, numbers, strict=True):
        class_limits = sketches[key].limits(list(accumulate(records))[:-1])
        if class_limits is None:
            return None
        table[text_hash(key)] = class_limits
    hashes = sorted(table)
    limits = np.array([table[class_hash] for class_hash in hashes], np.uint64)
    return SplitLimits(
        np.array(hashes, np.uint64),
        limits.reshape(len(hashes), len(fractions) - 1),
        tuple(map(sum, zip(*numbers, strict=True))) or (0,) * len(fractions),
    )


def divide_rows(
    counts: Sequence[int], fractions: Sequence[Fraction]
) -> list[tuple[int, ...]]:
    """Returns the number of rows per class and split.

    The largest remainders are rounded up. A deficit of a split in one class is carried
    over to the next class, so that the splits also have their shares of all rows. Every
    number differs from its share by less than one row.

    >>> divide_rows([7, 3], [Fraction(4, 5), Fraction(1, 5)])
    [(6, 1), (2, 1)]
    """
    owed = [Fraction(0)] * len(fractions)
    divided = []
    for count in counts:
        shares = [count * fraction for fraction in fractions]
        row_counts = [int(share) for share in shares]
        remainders = [
            share - whole for share, whole in zip(shares, row_counts, strict=True)
        ]
        order = [index for index, remainder in enumerate(remainders) if remainder]
        order.sort(key=lambda index: (-(remainders[index] + owed[index]), index))
        for index in order[: count - sum(row_counts)]:
            row_counts[index] += 1
        owed = [
            deficit + share - row_count
            for deficit, share, row_count in zip(owed, shares, row_counts, strict=True)
        ]
        divided.append(tuple(row_counts))
    return divided
