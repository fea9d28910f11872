"""Defines the roles of columns: one is a class label, one tells the split of its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.feature_spec import FeatureSpec, Kind
from recordmill.schemas.split_times import SplitTimes
from recordmill.schemas.text import first_names
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.sources.time_splits import split_by_time


@dataclass(frozen=True)
class LabelRole:
    """The column that is a class label.

    Attributes:
      column: its name, and that of the feature.
      names: of the classes; a label is an index among them.
      kept: whether they are those of a dataset that rows are appended to.
    """

    column: str
    names: tuple[str, ...]
    kept: bool = False

    @property
    def feature(self) -> FeatureSpec:
        """Returns the feature that the column becomes."""
        return FeatureSpec(
            self.column, Kind.INT64, dtype="int64", class_names=self.names
        )

    def reason(self, text: str | None) -> str:
        """Returns why a row with this value cannot be converted."""
        if not text:
            return f"{self.column}: no value; each row needs a class"
        if not self.kept:
            return (
                f"{self.column}: {shown(text)} was not there when classes were counted"
            )
        return (
            f"{self.column}: {shown(text)} is a new class; the dataset has "
            f"{first_names(self.names)}, and its labels are positions in that list. "
            "Convert all inputs again without appending"
        )


@dataclass(frozen=True)
class SplitRole:
    """The column that tells the split of its row.

    Attributes:
      column: its name.
      names: of the splits, in the order of the run's.
      rows: of each.
      dropped: whether it is no feature; with a declared schema that decides.
      known: whether the names were given, and not found in the column.
    """

    column: str
    names: tuple[str, ...]
    rows: tuple[int, ...]
    dropped: bool = True
    known: bool = False

    def find(self, values: pa.Array) -> pa.Int64Array:
        """Returns the index of each row's split; null where its value is none."""
        return index_in(values, self.names)

    def reason(self, text: str | None) -> str:
        """Returns why a row with this value cannot be converted."""
        if not text:
            return f"{self.column}: no value; each row needs a split"
        if self.known:
            return (
                f"{self.column}: {shown(text)} is not one of the splits "
                f"{', '.join(self.names)}"
            )
        return (
            f"{self.column}: {shown(text)} is not a valid name of a split; expected "
            "letters, digits, '_' and '-'"
        )


@dataclass(frozen=True)
class TimeRole(SplitRole):
    """The column by whose times, or numbers, rows are divided; it stays a feature.

    Attributes:
      times: where the splits begin.
      decimal_comma: whether numbers in text have a comma before their places.
    """

    times: SplitTimes | None = None
    decimal_comma: bool = False

    @classmethod
    def of(cls, times: SplitTimes, *, decimal_comma: bool = False) -> Self:
        """Returns the role; the rows of each split are not known."""
        return cls(
            times.column,
            times.names,
            (1,) * len(times.names),
            dropped=False,
            times=times,
            decimal_comma=decimal_comma,
        )

    def find(self, values: pa.Array) -> pa.Int64Array:
        assert self.times is not None  # by `of`
        return split_by_time(values, self.times, decimal_comma=self.decimal_comma)

    def reason(self, text: str | None) -> str:
        assert self.times is not None  # by `of`
        what = "a time like 2026-01-01" if self.times.are_times else "a number"
        found = shown(text) if text else "no value"
        return f"{self.column}: {found}; expected {what}"


def index_in(values: pa.Array, names: Sequence[str]) -> pa.Int64Array:
    """Returns the index of each value among some names; null where it is none."""
    texts = values if pt.is_string(values.type) else values.cast(pa.string())
    return pc.index_in(texts, value_set=pa.array(names, pa.string())).cast(pa.int64())
