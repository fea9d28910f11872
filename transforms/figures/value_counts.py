"""Counts the commonest values of a column, in bounded memory.

At most KEPT values are counted one by one. Where there are more, the rarest are given
up as Misra and Gries do (1982): the count of the first value too many is taken from all.
A count is then too low by at most the sum of what was taken, so the commonest values
stay, and their counts are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

KEPT = 10_000
MAX_BYTES = 256  # of a value that is counted; longer ones are counted together
_PENDING = 4 * KEPT


@dataclass(frozen=True, slots=True)
class CommonValues:
    """The commonest values.

    Attributes:
      values: each with its count, the commonest first; equal counts by value.
      total: how many values there are, with those that are not counted one by one.
      distinct: how many different ones are counted; all of them if `complete`.
      too_low: a count is too low by at most this; 0 if all are exact.
      long: values above MAX_BYTES, which are not counted one by one.
    """

    values: tuple[tuple[str | bytes | bool, int], ...] = ()
    total: int = 0
    distinct: int = 0
    too_low: int = 0
    long: int = 0

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
      kept: values that are counted one by one.
      pending: counts that are collected before they are joined.
    """

    def __init__(self, kept: int = KEPT, pending: int = _PENDING) -> None:
        self._kept, self._max_pending = kept, pending
        self._pending: list[pa.Table] = []
        self._num_pending = 0
        self._total = self._too_low = self._long = 0

    def add(self, values: pa.Array) -> None:
        """Adds values of text, bytes or bool, none of them null."""
        self._total += len(values)
        if not pa.types.is_boolean(values.type):
            short = pc.less_equal(pc.binary_length(values), MAX_BYTES)
            kept = values.filter(short)
            self._long += len(values) - len(kept)
            values = kept
        counted = pc.value_counts(values)
        self._pending.append(
            pa.table([counted.field("values"), counted.field("counts")], ["v", "n"])
        )
        self._num_pending += len(counted)
        if self._num_pending > self._max_pending:
            self._pending = [self._pruned(self._joined())]
            self._num_pending = len(self._pending[0])

    def _joined(self) -> pa.Table:
        """Returns the counts of all pending values, the commonest first."""
        grouped = (
            pa.concat_tables(self._pending).group_by("v").aggregate([("n", "sum")])
        )
        joined = pa.table([grouped["v"], grouped["n_sum"]], ["v", "n"])
        return joined.sort_by([("n", "descending"), ("v", "ascending")])

    def _pruned(self, joined: pa.Table) -> pa.Table:
        """Returns the counts that are kept on."""
        if len(joined) <= self._kept:
            return joined
        taken = joined["n"][self._kept].as_py()
        self._too_low += taken
        joined = joined[: self._kept]
        joined = joined.set_column(1, "n", pc.subtract(joined["n"], taken))
        return joined.filter(pc.greater(joined["n"], 0))

    def figures(self, limit: int) -> CommonValues:
        """Returns the commonest values, at most `limit`."""
        if not self._pending:
            return CommonValues()
        joined = self._joined()
        self._pending, self._num_pending = [joined], len(joined)
        first = joined[:limit]
        return CommonValues(
            values=tuple(
                zip(first["v"].to_pylist(), first["n"].to_pylist(), strict=True)
            ),
            total=self._total,
            distinct=len(joined),
            too_low=self._too_low,
            long=self._long,
        )
