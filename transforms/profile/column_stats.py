"""Computes statistics of a column of text cells; those of ranges merge in any order.

    ["1", "", "3"]    INTEGER            3 rows, 1 null, 1 to 3,   values {"1": 1, "3": 1}
    ["2.5"]           DECIMAL            1 row,  0 null, 2.5,      values {"2.5": 1}
    merged            INTEGER | DECIMAL  4 rows, 1 null, 1 to 3,   3 distinct values

What is known of other ranges saves work: text is not tried as numbers again, and values
past the limit are not counted. So the statistics of a range may depend on it, but those
of the whole column (`dtype`, `limits` and the others) do not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.transforms.cast.text_values import without_missing
from recordmill.transforms.sources.text_types import (
    TypeFlag,
    column_dtype,
    convert,
    has_missing_words,
    is_text,
)

MAX_DISTINCT = 1000  # values counted one by one; beyond, only that there are more
MAX_VALUE_BYTES = 64  # of a value that is kept; of a longer one its digest is
_FIRST_ROWS = 2 * MAX_DISTINCT  # show most columns with too many values
_DIGEST = b"\xff"  # before a digest: no byte of UTF-8

Number = int | float


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Statistics of a column, or of some of its rows; the default is that of no row.

    Attributes:
      flags: type flags of its cells; of a column of text not all of them.
      rows: cells, missing ones included.
      nulls: missing cells.
      words: cells like NA, which are missing if the column comes out as numbers.
      minimum, maximum: of the numbers (NaN left out), None if there is none; they
        mean nothing if the column's final type is not a number.
      shortest, longest: UTF-8 bytes of a cell's text, None if there is none.
      values: rows of each distinct text, as UTF-8 (of a long one a digest); None if
        there are more than MAX_DISTINCT.
    """

    flags: TypeFlag = TypeFlag.NOTHING
    rows: int = 0
    nulls: int = 0
    words: int = 0
    minimum: Number | None = None
    maximum: Number | None = None
    shortest: int | None = None
    longest: int | None = None
    values: Mapping[bytes, int] | None = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Returns the dtype that the column is converted to."""
        return column_dtype(self.flags)

    @property
    def missing(self) -> int:
        """Returns the missing values of the column."""
        return self.nulls + (self.words if has_missing_words(self.flags) else 0)

    @property
    def limits(self) -> tuple[Number, Number] | None:
        """Returns the lowest and highest value of a column of numbers, else None."""
        if self.minimum is None or self.maximum is None:
            return None
        if self.dtype == "int64":
            return self.minimum, self.maximum
        if self.dtype == "float32":
            # Integers may have been seen before the first decimal; and no -0.0.
            return float(self.minimum) + 0.0, float(self.maximum) + 0.0
        return None

    @property
    def distinct(self) -> int | None:
        """Returns the number of distinct cells as text; None if above MAX_DISTINCT."""
        return None if self.values is None else len(self.values)

    def texts(self) -> dict[str, int] | None:
        """Returns the rows of each value; None if not all values are kept."""
        if self.values is None or any(key[:1] == _DIGEST for key in self.values):
            return None
        return {key.decode(): count for key, count in self.values.items()}

    def merge(self, other: ColumnStats) -> ColumnStats:
        """Returns the statistics of both, which have no row in common."""
        return ColumnStats(
            flags=self.flags | other.flags,
            rows=self.rows + other.rows,
            nulls=self.nulls + other.nulls,
            words=self.words + other.words,
            minimum=_least(self.minimum, other.minimum),
            maximum=_most(self.maximum, other.maximum),
            shortest=_least(self.shortest, other.shortest),
            longest=_most(self.longest, other.longest),
            values=_add_counts(self.values, other.values),
        )


def column_stats(
    cells: pa.StringArray, expected: int = TypeFlag.NOTHING, counted: bool = True
) -> ColumnStats:
    """Returns the statistics of some cells.

    Args:
      cells: text, null where a cell is empty.
      expected: type flags that the column is known to have; saves work.
      counted: whether to count values; false where other ranges have too many.
    """
    converted, flags = convert(cells, expected)
    words = 0
    if flags & TypeFlag.MISSING and not is_text(flags):
        words = without_missing(cells).null_count - cells.null_count
    lengths = pc.min_max(pc.binary_length(cells))
    minimum, maximum = _limits(converted)
    return ColumnStats(
        flags=flags,
        rows=len(cells),
        nulls=cells.null_count,
        words=words,
        minimum=minimum,
        maximum=maximum,
        shortest=lengths["min"].as_py(),
        longest=lengths["max"].as_py(),
        values=_count(cells) if counted else None,
    )


def _limits(values: pa.Array) -> tuple[Number | None, Number | None]:
    if not (pt.is_integer(values.type) or pt.is_floating(values.type)):
        return None, None
    found = pc.min_max(values)  # ignores NaN
    minimum, maximum = found["min"].as_py(), found["max"].as_py()
    if minimum is None or math.isnan(minimum):
        return None, None
    return minimum, maximum


def _count(cells: pa.StringArray) -> dict[bytes, int] | None:
    if len(pc.unique(cells[:_FIRST_ROWS])) > MAX_DISTINCT + 1:  # null may be one
        return None
    counted = pc.value_counts(cells.drop_null())
    if len(counted) > MAX_DISTINCT:
        return None
    keys = counted.field("values").cast(pa.binary()).to_pylist()
    counts = counted.field("counts").to_pylist()
    # Python per distinct value: at most MAX_DISTINCT for some ten thousand rows.
    return {
        key if len(key) <= MAX_VALUE_BYTES else _digest(key): count
        for key, count in zip(keys, counts, strict=True)
    }


def _digest(key: bytes) -> bytes:
    return _DIGEST + blake2b(key, digest_size=16).digest()


def _add_counts(
    one: Mapping[bytes, int] | None, other: Mapping[bytes, int] | None
) -> Mapping[bytes, int] | None:
    if one is None or other is None:
        return None
    if not one or not other:
        return one or other
    # Once there are too many it stays so: the order of merging cannot matter.
    added = dict(one)
    for key, count in other.items():
        added[key] = added.get(key, 0) + count
    return added if len(added) <= MAX_DISTINCT else None


_Known = TypeVar("_Known", int, Number)


def _least(one: _Known | None, other: _Known | None) -> _Known | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one: _Known | None, other: _Known | None) -> _Known | None:
    return max((value for value in (one, other) if value is not None), default=None)
