"""Keeps the first pictures of each class, as thumbnails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recordmill.transforms.arrow import I64
from recordmill.transforms.figures.thumbnails import Thumbnail

MAX_PICTURES = 480  # of a dataset
MAX_OF_CLASS = 10
MAX_CLASSES = 160  # that have pictures
ALL = -1  # in place of a class, where there are none


@dataclass(frozen=True, slots=True)
class ContactSheet:
    """The first pictures of each class, or of all.

    Attributes:
      feature: that holds the pictures.
      label: the feature that tells their classes; "" if there is none.
      rows: class and its pictures, by class; the class ALL without a label.
      of_classes: how many classes there are, also such without pictures here.
    """

    feature: str
    label: str
    rows: tuple[tuple[int, tuple[Thumbnail, ...]], ...]
    of_classes: int


class SheetSketch:
    """Pictures chosen so far.

    Args:
      feature: that holds the pictures.
      label: the feature that tells their classes; "" if there is none.
      num_classes: of the label.
      max_pictures: at most.
    """

    def __init__(
        self, feature: str, label: str, num_classes: int, max_pictures: int
    ) -> None:
        self._feature, self._label = feature, label
        self._num_classes = num_classes if label else 0
        shown = min(max(1, self._num_classes), MAX_CLASSES)
        self._each = max(1, min(MAX_OF_CLASS, max_pictures // shown))
        if not label:
            self._each = min(max_pictures, 2 * MAX_OF_CLASS)
        wanted = range(shown) if label else (ALL,)
        self._rows: dict[int, list[Thumbnail]] = {label: [] for label in wanted}

    def add(
        self, classes: I64 | None, count: int, make: Callable[[int], Thumbnail]
    ) -> None:
        """Takes pictures of classes that still lack some.

        Args:
          classes: of each picture; None if they have none.
          count: how many pictures there are.
          make: gives the thumbnail of one of them, by its index.
        """
        lacking = [name for name, row in self._rows.items() if len(row) < self._each]
        if not lacking:
            return
        indices = np.arange(count)
        if classes is not None:
            indices = np.flatnonzero(np.isin(classes, lacking))
        for index in indices.tolist():
            row = self._rows[ALL if classes is None else int(classes[index])]
            if len(row) < self._each:
                row.append(make(index))
            elif classes is None or all(map(self._is_full, self._rows)):
                return

    def _is_full(self, name: int) -> bool:
        return len(self._rows[name]) >= self._each

    def figures(self) -> ContactSheet:
        """Returns the pictures that were taken."""
        rows = tuple((name, tuple(row)) for name, row in sorted(self._rows.items()))
        return ContactSheet(self._feature, self._label, rows, self._num_classes)
