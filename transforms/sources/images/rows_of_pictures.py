"""Tells which rows of tables are of which picture: one each, or one for each object in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.sources.images.noted import Gathered


@dataclass(frozen=True, slots=True)
class RowsOfPictures:
    """The rows of each picture.

    Attributes:
      first: the first row of each, or -1.
      joined: all rows of the first picture, then those of the next, ...; None if each
        picture has one row.
      starts: where the rows of each begin among them, and the end of the last.
    """

    first: I64
    joined: I64 | None = None
    starts: I64 | None = None

    def values_of(self, column: pa.Array) -> pa.Array:
        """Returns the value of each picture, or the list of those of its rows.

        Pictures of the rows [0, 2] and [1] have the lists [a, c] and [b] of a, b, c.
        """
        if self.joined is None or self.starts is None:
            return column.take(pa.array(self.first, mask=self.first < 0))
        values = column.take(pa.array(self.joined))
        offsets = pa.array(self.starts, pa.int32())
        return pa.ListArray.from_arrays(offsets, values)

    def lacking(self, column: pa.Array) -> npt.NDArray[np.bool_]:
        """Tells which pictures have a row without a value."""
        missing = column.is_null().to_numpy(zero_copy_only=False)
        if self.joined is None or self.starts is None:
            lacks: npt.NDArray[np.bool_] = missing[self.first]
            return lacks & (self.first >= 0)
        before = offsets_of(missing[self.joined])
        return np.asarray(np.diff(before[self.starts]) > 0)


def find_rows(
    found: Gathered, indices: I64, told: str, *, of_objects: bool
) -> RowsOfPictures:
    """Finds the rows of each picture; what has none, or too many, is told.

    Args:
      found: is told.
      indices: the picture of each row, or -1.
      told: names of the tables.
      of_objects: whether a picture has a row for each object in it.
    """
    size = len(found.pictures)
    rows = np.flatnonzero(indices >= 0)
    counts = np.bincount(indices[rows], minlength=size)
    first = np.full(size, -1, np.int64)
    first[indices[rows][::-1]] = rows[::-1]
    found.leave_unlisted(counts == 0, f"no row of {told} names it")
    if of_objects:
        order = rows[np.argsort(indices[rows], kind="stable")]
        return RowsOfPictures(first, order, offsets_of(counts))
    for number in np.unique(counts[counts > 1]).tolist():
        found.reject(
            counts == number,
            f"{number:,} rows of {told} name it, expected one: join them into one row, "
            "with lists for what is there several times, or use `table_rows=object`",
        )
    return RowsOfPictures(first)
