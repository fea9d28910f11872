"""Counts the classes of a label, by split and by shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import I64

MAX_MIX = 1_000_000  # shards times classes that are counted, of all labels


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """How often each class comes.

    Attributes:
      feature: the label.
      names: of the classes, by index; an index without a name is its number.
      by_split: rows of each class, for each split.
      by_shard: rows of each class, for each shard in the manifest's order; empty if that
        were too many numbers.
      outside: values that no class has.
    """

    feature: str
    names: tuple[str, ...]
    by_split: tuple[tuple[int, ...], ...]
    by_shard: tuple[tuple[int, ...], ...]
    outside: int = 0

    @property
    def totals(self) -> tuple[int, ...]:
        """Returns the rows of each class in all splits."""
        if not self.by_split:
            return (0,) * len(self.names)
        return tuple(map(sum, zip(*self.by_split, strict=True)))


class ClassCounts:
    """The classes of a label seen so far.

    Args:
      num_classes: how many there are.
      splits: of each shard, the number of its split.
      max_mix: shards times classes, beyond which shards are not counted one by one.
    """

    def __init__(
        self, num_classes: int, splits: tuple[int, ...], max_mix: int = MAX_MIX
    ) -> None:
        self._splits = splits
        self._by_shard = num_classes * len(splits) <= max_mix
        groups = len(splits) if self._by_shard else max(splits, default=-1) + 1
        self._counts: I64 = np.zeros((groups, num_classes), np.int64)
        self._outside = 0

    def add(self, values: npt.NDArray[np.integer], shard: int) -> None:
        """Counts values of a shard."""
        classes = self._counts.shape[1]
        valid = (values >= 0) & (values < classes)
        if not valid.all():
            self._outside += int((~valid).sum())
            values = values[valid]
        group = shard if self._by_shard else self._splits[shard]
        found = np.bincount(values.astype(np.int64), minlength=classes)
        self._counts[group] += found

    def figures(
        self, feature: str, names: tuple[str, ...], num_splits: int
    ) -> ClassFigures:
        """Returns the counts.

        Args:
          feature: the label's name.
          names: of the classes; may be empty.
          num_splits: how many there are, also such without a shard.
        """
        classes = self._counts.shape[1]
        by_split = np.zeros((num_splits, classes), np.int64)
        for group, counts in enumerate(self._counts):
            by_split[self._splits[group] if self._by_shard else group] += counts
        return ClassFigures(
            feature,
            names or tuple(map(str, range(classes))),
            _rows(by_split),
            _rows(self._counts) if self._by_shard else (),
            self._outside,
        )


def _rows(matrix: I64) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
