"""Turns one column of a table into the class label, and one into the split of each row.

This transform wraps the source of a table, so CSV, Parquet, Arrow and JSON Lines behave
the same. The names of classes and splits are known before the run: they are counted
first, or they come from the dataset to which rows are appended. A row with any other
value is a reject.

A value has the same class key whatever type its column has. The first pass reads a table
as text. The pass that converts uses the types of all cells: 007 becomes 7, 1.50 becomes
1.5, and NA among numbers is missing. Both passes must find the same class, so a key is
computed from the value: rows that differ only in the spelling of a number or of a missing
value belong to one class. If numbers have a decimal comma, 1,5 is the number 1.5 and
"1.5" is text; otherwise "1,5" is text, as for all cells.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_summary import InputReport, InputWarning
from recordmill.schemas.job import JobSpec, SplitTimes
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.text import format_names
from recordmill.transforms.arrow import U64
from recordmill.transforms.cast.text_values import (
    MISSING_WORDS,
    match_cells,
    match_values,
    parse_times,
    shorten,
    swap_points,
    with_nulls,
    without_missing,
)
from recordmill.transforms.exchange.keys import text_hashes
from recordmill.transforms.sources.base import (
    InputFindings,
    RangeFindings,
    Rows,
    RowSource,
    RowTransform,
)
from recordmill.transforms.sources.text_columns import TypeFlag

_MAX_EXACT_INTEGER = 1 << 53  # float64 represents all integers below this exactly
_MISSING = {word.strip().lower() for word in MISSING_WORDS}
_SWAPPED_SEPARATORS = str.maketrans(",.", ".,")
MISSING_KEY = ""


def find_distinct_texts(column: pa.Array) -> tuple[list[str | None], np.ndarray]:
    """Returns the distinct values as text, and the index of each row's value in them."""
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pt.is_binary(column.type) or pt.is_large_binary(column.type):
        texts = [None if cell is None else cell.hex() for cell in column.to_pylist()]
        column = pa.array(texts, pa.string())
    column = column.cast(pa.string())
    encoded = column.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), indices


def find_class_keys(
    column: pa.Array, *, decimal_comma: bool = False
) -> tuple[list[str], np.ndarray]:
    """Returns the distinct class keys, and the index of each row's key in them.

    >>> find_class_keys(pa.array(["007", " 7.0", "1.50", "1,5", "NA"]))[0]
    ['7', '7', '1.5', '1,5', '']
    """
    texts, indices = find_distinct_texts(column)
    comma = decimal_comma and pt.is_string(column.type)  # numbers have no spelling
    return [
        _compute_class_key(text or "", decimal_comma=comma) for text in texts
    ], indices


def _compute_class_key(text: str, *, decimal_comma: bool) -> str:
    """Returns the class key of a text; equal for all spellings of a number."""
    text = text.strip()
    if text.lower() in _MISSING:
        return MISSING_KEY
    if text.lower() in ("true", "false"):
        return text.lower()
    written = text.translate(_SWAPPED_SEPARATORS) if decimal_comma else text
    if "_" in text or not text.isascii():
        return text  # Python may parse it as a number, but recordmill reads it as text
    try:
        number = float(written)
    except ValueError:
        return text
    if not abs(number) < _MAX_EXACT_INTEGER or number != int(number):  # true for NaN
        return repr(number)
    return str(int(number))


def has_decimal_commas(job: JobSpec, source: RowSource, column: str) -> bool:
    """Returns True if numbers in the text of a column have a decimal comma.

    The declared feature of the column decides; without one, the setting of the input.
    """
    if job.declared is not None:
        marks = [
            feature.decimal == "comma"
            for name, feature in job.declared.features.items()
            if job.declared.column_of(name) == column
        ]
        if marks:
            return all(marks)
    return source.input_source.decimal_comma


def class_hashes(column: pa.Array, *, decimal_comma: bool = False) -> U64:
    """Returns the hash of each row's class key; the arguments are those of `find_class_keys`."""
    keys, indices = find_class_keys(column, decimal_comma=decimal_comma)
    hashes: U64 = text_hashes(keys)[indices]
    return hashes


def sorted_names(texts: Sequence[str]) -> list[str]:
    """Sorts class names: by number if all are numbers, otherwise by text.

    >>> sorted_names(["10", "9"]), sorted_names(["10", "b"])
    (['9', '10'], ['10', 'b'])
    """
    try:
        numbers = {text: float(text) for text in texts}
    except ValueError:
        return sorted(texts)
    if any(map(math.isnan, numbers.values())):
        return sorted(texts)
    return sorted(texts, key=lambda text: (numbers[text], text))


_MICROSECONDS = pa.timestamp("us")
_DATE_PREFIX = r"^\s*[0-9]{4}-"
_NANOSECONDS = r"(\.[0-9]{6})[0-9]+"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SAMPLED_ROWS = 1_000  # per range, to check that a column has times or numbers


def split_by_time(
    column: pa.Array, times: SplitTimes, *, decimal_comma: bool = False
) -> pa.Int64Array:
    """Returns the index of each row's split; null if its value is missing or invalid.

    >>> from recordmill.schemas.job import parse_split_times
    >>> times = parse_split_times("d=a,2026-01-01,b")
    >>> split_by_time(pa.array(["2025-12-31", "2026-01-01", "?"]), times).to_pylist()
    [0, 1, None]
    """
    if times.are_times:
        nullable_numbers = _parse_times(column)
    else:
        nullable_numbers = _parse_numbers(column, decimal_comma=decimal_comma)
    missing = nullable_numbers.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    numbers = nullable_numbers.fill_null(0).to_numpy(zero_copy_only=False)
    splits = np.zeros(len(column), np.int64)
    for bound in times.bounds:
        if isinstance(bound, datetime):
            bound = (bound - _EPOCH) // timedelta(microseconds=1)
        splits += numbers >= bound
    return pa.array(splits, pa.int64(), mask=missing)


def require_times(
    source: RowSource,
    ranges: Sequence[InputRange],
    times: SplitTimes,
    *,
    decimal_comma: bool,
) -> None:
    """Raises UsageError if no sampled row of the column has a time (or a number).

    Without this check, the run would reject every row, and fail only after reading all.
    """
    actual = ""
    for input_range in source.input_source.sample_ranges(ranges):
        rows = None
        with suppress(InputError):  # may begin in a quoted field; the run reports it
            rows = next(iter(source.read_as_text(input_range)), None)
        if rows is None:
            continue
        column = rows.batch.column(times.column)[:_SAMPLED_ROWS].drop_null()
        if pt.is_string(column.type):  # words for missing values are not evidence
            column = without_missing(column).drop_null()
        splits = split_by_time(column, times, decimal_comma=decimal_comma)
        if splits.null_count < len(splits):
            return
        if not actual and len(column):
            kind = "" if pt.is_string(column.type) else f" ({column.type})"
            actual = f"{shorten(str(column[0]))}{kind}"
    if not actual:
        return  # all values are missing: the run rejects each row with its reason
    expected = "times like 2026-01-31" if times.are_times else "numbers like 20.5"
    raise UsageError(
        f"`split_by_time` {times.column}: the values in the first rows do not match "
        f"the boundaries: found {actual}; expected {expected}. Name another column, use "
        "boundaries of the same form, or change the values"
    )


def _parse_numbers(column: pa.Array, *, decimal_comma: bool) -> pa.Array:
    """Returns the values as numbers; null for any other value."""
    if pt.is_integer(column.type) or pt.is_floating(column.type):
        return column
    if not pt.is_string(column.type):
        return pa.nulls(len(column), pa.float64())
    cells = swap_points(column) if decimal_comma else column
    return match_values(without_missing(cells), "float64")[0]


def _parse_times(column: pa.Array) -> pa.Array:
    """Returns the values in microseconds since 1970 in UTC; null if not a time."""
    if pt.is_timestamp(column.type) or pt.is_date(column.type):
        return pc.cast(column, _MICROSECONDS, safe=False).cast(pa.int64())
    if not pt.is_string(column.type):
        return pa.nulls(len(column), pa.int64())
    # 10:30 has no date; digits after the microseconds do not change the split.
    days = with_nulls(column, ~match_cells(column, _DATE_PREFIX))
    cells = pc.replace_substring_regex(days, _NANOSECONDS, r"\1")
    cells = pc.replace_substring_regex(cells, r" ([+-])", r"\1")  # before a zone
    return parse_times(cells, "us").array


@dataclass(frozen=True)
class _Role(ABC):
    """A column whose values are the names of classes or of splits."""

    column: str
    names: tuple[str, ...]

    def name_indices(self, column: pa.Array) -> pa.Int64Array:
        """Returns the index of each row's name in `names`; null for any other value."""
        names = pa.array(self.names, pa.string())
        return pc.index_in(column.cast(pa.string()), value_set=names).cast(pa.int64())

    @abstractmethod
    def reject_reason(self, text: str | None) -> str:
        """Returns why a row with this value cannot be converted."""

    def require_names(
        self, batch: pa.RecordBatch, reasons: dict[int, str]
    ) -> pa.Int64Array:
        """Returns the index of each row's name; adds the reasons of rows without one."""
        column = batch.column(self.column)
        name_indices = self.name_indices(column)
        missing = name_indices.is_null().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(missing).tolist():
            cell = column[row].as_py()
            reasons.setdefault(
                row, self.reject_reason(None if cell is None else str(cell))
            )
        return name_indices


@dataclass(frozen=True)
class LabelRole(_Role):
    """The column of the class label; a label is an index into `names`.

    `names` has all classes of the input, so only appended rows can have unknown classes.
    """

    def reject_reason(self, text: str | None) -> str:
        if not text:
            return f"{self.column}: no value; each row needs a class"
        return (
            f"{self.column}: {shorten(text)} is a new class; the dataset has "
            f"{format_names(self.names)}, and its labels are positions in that list. "
            "Convert all inputs again without `append`"
        )


@dataclass(frozen=True)
class SplitRole(_Role):
    """The column that names the split of each row; `names` has the order of the run."""

    split_rows: tuple[int, ...] = ()  # number of rows of each split; () if not known
    # True if the column does not become a feature; a declared schema decides that
    is_dropped: bool = True
    # True if the user gave the names; False if the column did
    has_given_names: bool = False

    def reject_reason(self, text: str | None) -> str:
        if not text:
            return f"{self.column}: no value; each row needs a split"
        if self.has_given_names:
            return (
                f"{self.column}: {shorten(text)} is not one of the splits "
                f"{', '.join(self.names)}"
            )
        return (
            f"{self.column}: {shorten(text)} is not a valid name of a split; expected "
            "letters, digits, '_' and '-'"
        )


@dataclass(frozen=True)
class TimeRole(SplitRole):
    """The column whose times or numbers determine the split; it remains a feature."""

    times: SplitTimes = field(kw_only=True)
    decimal_comma: bool = False

    @classmethod
    def from_times(cls, times: SplitTimes, *, decimal_comma: bool = False) -> Self:
        """Returns the role of the column in `times`."""
        return cls(
            times.column,
            times.names,
            is_dropped=False,
            times=times,
            decimal_comma=decimal_comma,
        )

    def name_indices(self, column: pa.Array) -> pa.Int64Array:
        return split_by_time(column, self.times, decimal_comma=self.decimal_comma)

    def reject_reason(self, text: str | None) -> str:
        expected = "a time like 2026-01-01" if self.times.are_times else "a number"
        actual = shorten(text) if text else "no value"
        return f"{self.column}: {actual}; expected {expected}"


@dataclass(frozen=True)
class LabelSplitRows(RowTransform):
    """The rows of a table with a label column or a split column."""

    label: LabelRole | None = None
    split: SplitRole | None = None
    report_lines: tuple[tuple[str, str], ...] = ()
    warnings: tuple[InputWarning, ...] = ()

    @cached_property
    def _dropped_column(self) -> str | None:
        """Returns the name of the column that does not become a feature, or None."""
        return self.split.column if self.split and self.split.is_dropped else None

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        if input_findings is not None:
            input_findings = input_findings._replace(
                schema=self.inner_source.schema(input_findings.type_flags)
            )
        input_report = self.inner_source.input_report(input_findings)
        return input_report.merged_with(InputReport(self.report_lines, self.warnings))

    def input_splits(self) -> tuple[str, ...]:
        return self.split.names if self.split else self.inner_source.input_splits()

    def input_split_rows(self) -> tuple[int, ...]:
        # If the numbers of rows are not known, they are assumed to be equal.
        return (
            (self.split.split_rows or (1,) * len(self.split.names))
            if self.split
            else ()
        )

    def columns(self) -> pa.Schema:
        inner_columns = self.inner_source.columns()
        if self.label is not None:
            number = inner_columns.get_field_index(self.label.column)
            inner_columns = inner_columns.set(
                number, pa.field(self.label.column, pa.int64())
            )
        return pa.schema(
            [column for column in inner_columns if column.name != self._dropped_column]
        )

    def sample_type_flags(self, input_range: InputRange) -> TypeFlags:
        return self._with_text_flags(self.inner_source.sample_type_flags(input_range))

    @cached_property
    def _is_text_column(self) -> list[bool]:
        """Returns, for each column of the inner source, True if it is read as text."""
        by_text = () if isinstance(self.split, TimeRole) else (self.split,)
        roles = [role.column for role in (self.label, *by_text) if role]
        return [name in roles for name in self.inner_source.columns().names]

    def _with_text_flags(self, flags: TypeFlags) -> TypeFlags:
        """Returns the type flags with label and split columns set to text."""
        if not flags or not self.infers_types:
            return flags  # sources with known types use the flags for other notes
        return tuple(
            int(TypeFlag.TEXT) if is_text else flag
            for flag, is_text in zip(flags, self._is_text_column, strict=True)
        )

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        features = []
        for feature in self.inner_source.schema(
            self._with_text_flags(observed), nulls
        ).features:
            if self.label and feature.column == self.label.column:
                feature = FeatureSpec(
                    feature.column,
                    Kind.INT64,
                    dtype="int64",
                    class_names=self.label.names,
                )
            if feature.column != self._dropped_column:
                features.append(feature)
        return Schema(tuple(features))

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        if self.infers_types and not expected:
            expected = (int(TypeFlag.NOTHING),) * len(self._is_text_column)
        for rows in self.inner_source.read(
            input_range, self._with_text_flags(expected), range_findings
        ):
            range_findings.type_flags = self._with_text_flags(range_findings.type_flags)
            yield self._with_roles(rows, input_range, range_findings)
        range_findings.type_flags = self._with_text_flags(range_findings.type_flags)

    def _with_roles(
        self, rows: Rows, input_range: InputRange, range_findings: RangeFindings
    ) -> Rows:
        """Returns the rows with labels and splits; rejects rows that lack one of them."""
        batch, splits = rows.batch, None
        reasons: dict[int, str] = {}
        if self.split is not None:
            split_indices = self.split.require_names(batch, reasons)
            splits = split_indices.fill_null(0).to_numpy().astype(np.uint8)
        if self.label is not None:
            number = batch.schema.get_field_index(self.label.column)
            labels = self.label.require_names(batch, reasons)
            batch = batch.set_column(number, self.label.column, labels)
        if self._dropped_column is not None:
            batch = batch.drop_columns([self._dropped_column])
        rows = replace(rows, batch=batch, split_indices=splits)
        return range_findings.reject_rows(rows, reasons, input_range, "label")
