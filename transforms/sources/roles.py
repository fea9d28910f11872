"""Defines the roles of columns: one is a class label, one tells the split of its row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.feature_spec import FeatureSpec, Kind
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.split_times import SplitTimes
from recordmill.schemas.text import first_names
from recordmill.transforms.cast.text_values import shown, swap_points, without_missing
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.class_keys import texts_of

_MICROSECONDS = pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLED_ROWS = 1_000  # by which a column is taken for one of times or of numbers


def split_by_time(
    values: pa.Array, times: SplitTimes, *, decimal_comma: bool = False
) -> pa.Int64Array:
    """Returns the index of each row's split; null where the value is missing or no time.

    Args:
      values: times or numbers, or text that tells them.
      times: where the splits begin.
      decimal_comma: whether numbers in text have a comma before their places.

    >>> from recordmill.schemas.split_times import parse_split_times
    >>> times = parse_split_times("d=a,2026-01-01,b")
    >>> split_by_time(pa.array(["2025-12-31", "2026-01-01", "?"]), times).to_pylist()
    [0, 1, None]
    """
    found = _found_in(values, are_times=times.are_times, decimal_comma=decimal_comma)
    if found is None:
        return pa.nulls(len(values), pa.int64())
    missing = found.is_null().to_numpy(zero_copy_only=False)
    if pt.is_floating(found.type):
        missing = missing | pc.is_nan(found).fill_null(True).to_numpy(
            zero_copy_only=False
        )
    numbers = found.fill_null(0).to_numpy(zero_copy_only=False)
    splits = np.zeros(len(values), np.int64)
    for bound in times.bounds:
        start = _microseconds(bound) if isinstance(bound, datetime) else bound
        splits += numbers >= start
    return pa.array(splits, pa.int64(), mask=missing)


def require_times(
    source: Source,
    ranges: Sequence[InputRange],
    times: SplitTimes,
    *,
    decimal_comma: bool,
) -> None:
    """Refuses a column in which no row of a sample has a time, or no number.

    Args:
      source: prepared.
      ranges: of it.
      times: the column, and boundaries that are times or numbers.
      decimal_comma: as of `split_by_time`.

    Raises:
      UsageError: all rows would be rejects, but only after all were read.
    """
    found = ""
    for input_range in source.sample_ranges(ranges):
        try:
            rows = next(iter(source.read_as_text(input_range)), None)
        except InputError:
            continue  # a range that begins inside a quoted field; the run tells
        if rows is None:
            continue
        values = rows.batch.column(times.column)[:_SAMPLED_ROWS].drop_null()
        if pt.is_string(values.type):  # a later row may have more than such texts
            values = without_missing(values).drop_null()
        splits = split_by_time(values, times, decimal_comma=decimal_comma)
        if splits.null_count < len(splits):
            return
        if not found and len(values):
            found = shown(str(values[0]))
            kind = "" if pt.is_string(values.type) else f" ({values.type})"
            found = f"{found}{kind}"
    if not found:
        return  # no values at all: each such row is told
    wanted = "times like 2026-01-31" if times.are_times else "numbers like 20.5"
    raise UsageError(
        f"`split_by_time` {times.column}: the first rows have no values like those of its "
        f"boundaries, but {found}; expected {wanted}. Name another column, give boundaries "
        "that are like its values, or write its values so"
    )


def _microseconds(time: datetime) -> int:
    since = time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _found_in(
    values: pa.Array, *, are_times: bool, decimal_comma: bool
) -> pa.Array | None:
    """Returns microseconds since 1970 in UTC, or numbers; None if there can be none."""
    if are_times:
        return _times_in(values)
    if pt.is_integer(values.type) or pt.is_floating(values.type):
        return values
    if not pt.is_string(values.type):
        return None
    if decimal_comma:
        values = swap_points(values)
    return _of_texts(values, _number_in, pa.float64())


def _times_in(values: pa.Array) -> pa.Array | None:
    """Returns microseconds since 1970; None if the column can hold no times."""
    if pt.is_timestamp(values.type) or pt.is_date(values.type):
        return pc.cast(values, _MICROSECONDS, safe=False).cast(pa.int64())
    if not pt.is_string(values.type):
        return None
    try:  # all at once, where no cell has a zone and all are times
        return pc.cast(values, _MICROSECONDS).cast(pa.int64())
    except pa.ArrowInvalid:
        return _of_texts(values, _microseconds_in, pa.int64())


def _of_texts(values: pa.Array, parse: Any, wanted: pa.DataType) -> pa.Array:
    """Parses each different text once."""
    texts, indices = texts_of(values)
    parsed = pa.array([parse(text) if text else None for text in texts], wanted)
    return parsed.take(pa.array(indices))


def _microseconds_in(text: str) -> int | None:
    if (
        text.strip().isdecimal()
    ):  # 20260101: a column of such texts comes out as numbers
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return _microseconds(found.replace(tzinfo=UTC) if found.tzinfo is None else found)


def _number_in(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


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
