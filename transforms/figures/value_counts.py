"""Counts the commonest values of a column, in bounded memory.

A limited number of values is counted one by one. Where there are more, the rarest are given
up as Misra and Gries do (1982): the count of the first value too many is taken from all.
A count is then too low by at most the sum of what was taken, so the commonest values
stay, and their counts are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import I64

KEPT = 10_000  # values counted one by one
KEPT_BYTES = 1 << 20  # of them
MAX_BYTES = 256  # of a value that is counted; longer ones are counted together
MAX_BY_SPLIT = 64  # different values that are counted for each split
_PENDING = 4  # times what is kept is collected before it is joined

Value = str | bytes | bool


@dataclass(frozen=True, slots=True)
class CommonValues:
    """The commonest values.

    Attributes:
      values: each with its count, the commonest first; equal counts by value.
      total: how many values there are, with those that are not counted one by one.
      distinct: how many different ones are counted; all of them if `complete`.
      too_low: a count is too low by at most this; 0 if all are exact.
      long: values above MAX_BYTES, which are not counted one by one.
      by_split: for each of `values` its count in each split; empty if there are more than
        MAX_BY_SPLIT different values.
    """

    values: tuple[tuple[Value, int], ...] = ()
    total: int = 0
    distinct: int = 0
    too_low: int = 0
    long: int = 0
    by_split: tuple[tuple[int, ...], ...] = ()

    @property
    def at_most(self) -> int:
        """Returns a number of times that no counted value comes more often than."""
        return self.too_low + (self.values[0][1] if self.values else 0)

    @property
    def complete(self) -> bool:
        """Returns whether every different value is counted."""
        return not (self.too_low or self.long)


class ValueCounts:
    """Values seen so far, and how often.

    Args:
      num_splits: of the dataset.
      kept: values that are counted one by one.
      kept_bytes: of these values, in all.
    """

    def __init__(
        self, num_splits: int = 1, kept: int = KEPT, kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._num_splits, self._kept, self._kept_bytes = num_splits, kept, kept_bytes
        self._pending: list[pa.Table] = []
        self._num_pending = self._pending_bytes = 0
        self._by_split: dict[Value, list[int]] | None = {}
        self._total = self._too_low = self._long = 0

    def add(self, values: pa.Array, split: int = 0) -> None:
        """Adds values of text, bytes or bool, none of them null."""
        self._total += len(values)
        if not pa.types.is_boolean(values.type):
            short = pc.less_equal(pc.binary_length(values), MAX_BYTES)
            kept = values.filter(short)
            self._long += len(values) - len(kept)
            values = kept
        counted = pc.value_counts(values)
        self._count_by_split(counted, split)
        self._append(
            pa.table([counted.field("values"), counted.field("counts")], ["v", "n"])
        )
        full = self._num_pending > _PENDING * self._kept
        if full or self._pending_bytes > _PENDING * self._kept_bytes:
            pruned = self._pruned(self._joined())
            self._pending, self._num_pending, self._pending_bytes = [], 0, 0
            self._append(pruned)

    def _append(self, counts: pa.Table) -> None:
        self._pending.append(counts)
        self._num_pending += len(counts)
        self._pending_bytes += int(_lengths(counts).sum())

    def _count_by_split(self, counted: pa.StructArray, split: int) -> None:
        if self._by_split is None or self._long or len(counted) > MAX_BY_SPLIT:
            self._by_split = None
            return
        for item in counted.to_pylist():  # at most MAX_BY_SPLIT
            counts = self._by_split.setdefault(item["values"], [0] * self._num_splits)
            counts[split] += item["counts"]
        if len(self._by_split) > MAX_BY_SPLIT:
            self._by_split = None

    def _joined(self) -> pa.Table:
        """Returns the counts of all pending values, the commonest first."""
        grouped = (
            pa.concat_tables(self._pending).group_by("v").aggregate([("n", "sum")])
        )
        joined = pa.table([grouped["v"], grouped["n_sum"]], ["v", "n"])
        return joined.sort_by([("n", "descending"), ("v", "ascending")])

    def _pruned(self, joined: pa.Table) -> pa.Table:
        """Returns the counts that are kept on."""
        fitting = np.searchsorted(
            np.cumsum(_lengths(joined)), self._kept_bytes, "right"
        )
        kept = min(self._kept, int(fitting))
        if len(joined) <= kept:
            return joined
        taken = joined["n"][kept].as_py()
        self._too_low += taken
        joined = joined[:kept]
        joined = joined.set_column(1, "n", pc.subtract(joined["n"], taken))
        return joined.filter(pc.greater(joined["n"], 0))

    def figures(self, limit: int) -> CommonValues:
        """Returns the commonest values, at most `limit`."""
        if not self._pending:
            return CommonValues()
        joined = self._joined()
        first = joined[:limit]
        values = first["v"].to_pylist()
        by_split = self._by_split
        return CommonValues(
            values=tuple(zip(values, first["n"].to_pylist(), strict=True)),
            total=self._total,
            distinct=len(joined),
            too_low=self._too_low,
            long=self._long,
            by_split=tuple(tuple(by_split[v]) for v in values) if by_split else (),
        )


def _lengths(counts: pa.Table) -> I64:
    """Returns the bytes of each value."""
    values = counts["v"]
    if pa.types.is_boolean(values.type):
        return np.ones(len(values), np.int64)
    lengths: I64 = pc.binary_length(values).to_numpy().astype(np.int64)
    return lengths
