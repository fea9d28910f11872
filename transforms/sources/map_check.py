"""Calls a user's function with a batch, and checks what it returns, row by row.

    def tokenise(batch):                 # as many rows: row i is made from row i
        return batch.append_column("ids", ...)

    def only_long(batch):                # other rows: it says which they come from
        rows = pc.indices_nonzero(pc.greater(batch["length"], 9))
        return batch.take(rows), rows

A row for which it raises is found by halving: the batch is cut in two until the row is
alone, and all other rows go on.

A few rows are tried first, to learn which columns the function makes. They are given once
together and once in parts: a function that takes the mean of its batch, or draws random
numbers, would give other values for other batches, and mean something else than it seems to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import (
    InputError,
    RecordmillError,
    SchemaError,
    UsageError,
)
from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.column_types import is_list, plain
from recordmill.transforms.sources.base import RowSink, Source
from recordmill.transforms.sources.plain_types import plain_columns

Function = Callable[..., Any]

_REASON_CHARACTERS = 500  # of what an exception says


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """What a function made of a batch."""

    batch: pa.RecordBatch
    rows: I64  # that each one comes from, rising
    invalid_rows: tuple[tuple[int, str], ...] = ()  # (row, reason), ascending

    def dropped(self, num_rows: int) -> int:
        """Returns how many of so many rows became none, and are not invalid."""
        return num_rows - len(self.invalid_rows) - len(np.unique(self.rows))

    @property
    def added(self) -> int:
        """Returns how many rows there are beside the first that comes from each."""
        return len(self.rows) - len(np.unique(self.rows))


def map_batch(function: Function, batch: pa.RecordBatch, label: str) -> MappedBatch:
    """Calls the function with a batch, and with parts of it where it raises.

    Raises:
      UsageError: what it returns is not a batch, or does not say where rows come from.
      SchemaError: its results for parts of the batch have different columns.
    """
    invalid: list[tuple[int, str]] = []
    nothing = pa.RecordBatch.from_pylist([]), np.zeros(0, np.int64)
    parts = list(_call_parts(function, batch, 0, label, invalid)) or [nothing]
    batches, rows = zip(*parts, strict=True)
    return MappedBatch(_joined(batches, label), np.concatenate(rows), tuple(invalid))


def _call_parts(
    function: Function,
    batch: pa.RecordBatch,
    start: int,
    label: str,
    invalid: list[tuple[int, str]],
) -> Iterator[tuple[pa.RecordBatch, I64]]:
    """Yields results for parts of a batch; `invalid` gets rows for which it raises."""
    try:
        returned = function(batch)
    except (MemoryError, RecordmillError):
        raise
    except ImportError as error:
        raise UsageError(
            f"`map` {label}: {type(error).__name__}: {error}. Install what it imports, "
            "on each worker too"
        ) from error
    except Exception as error:  # whatever a person's function raises
        if batch.num_rows == 1:
            text = f"{type(error).__name__}: {error}"
            # Without the file, whose name does not belong to the fingerprint.
            name = label.rpartition(":")[2]
            invalid.append((start, f"map {name}: {text[:_REASON_CHARACTERS]}"))
            return
        half = batch.num_rows // 2
        for part, first in ((batch.slice(0, half), 0), (batch.slice(half), half)):
            yield from _call_parts(function, part, start + first, label, invalid)
        return
    made, rows = _checked(returned, batch.num_rows, label)
    yield made, rows + start


def _checked(returned: Any, num_rows: int, label: str) -> tuple[pa.RecordBatch, I64]:
    """Returns the batch that a function returned, and the rows that it comes from."""
    rows: Any = None
    if isinstance(returned, tuple) and len(returned) == 2:
        returned, rows = returned
    if not isinstance(returned, pa.RecordBatch):
        kind = "nothing" if returned is None else f"a {type(returned).__qualname__}"
        raise UsageError(
            f"`map` {label}: returned {kind}, expected a "
            "pyarrow.RecordBatch, or a pair of it and the number of the row that each "
            "row comes from"
        )
    if rows is None:
        if returned.num_rows != num_rows:
            raise UsageError(
                f"`map` {label}: got {num_rows:,} rows and returned "
                f"{returned.num_rows:,}. Return a second value that says which row each "
                "comes from: `return batch.take(rows), rows`; of a mask it is "
                "pyarrow.compute.indices_nonzero(mask)"
            )
        return returned, np.arange(num_rows, dtype=np.int64)
    return returned, _row_numbers(rows, returned.num_rows, num_rows, label)


def _row_numbers(rows: Any, num_made: int, num_rows: int, label: str) -> I64:
    try:
        if isinstance(rows, pa.Array | pa.ChunkedArray):
            rows = rows.to_numpy(zero_copy_only=False)
        numbers = np.asarray(rows)
    except (ValueError, pa.ArrowException) as error:
        raise UsageError(
            f"`map` {label}: the row numbers that it returned are not an array: {error}"
        ) from error
    found = f"an array of {numbers.dtype}, shape {numbers.shape}"
    if len(numbers) == 0 and numbers.ndim == 1 and num_made == 0:
        return np.zeros(0, np.int64)
    if numbers.dtype.kind in "iu" and numbers.shape == (num_made,):
        made = numbers.astype(np.int64)
        outside = (made < 0) | (made >= num_rows)
        if not outside.any() and (np.diff(made) >= 0).all():
            return made
        what = f"row {int(made[outside][0])}" if outside.any() else "rows not in order"
        found = f"{what}, of the {num_rows:,} that it got"
    raise UsageError(
        f"`map` {label}: the second value says where each of the {num_made:,} returned "
        f"rows comes from: expected rising row numbers from 0 to {num_rows - 1:,}, found "
        f"{found}. Of a mask they are pyarrow.compute.indices_nonzero(mask)"
    )


def _joined(parts: Sequence[pa.RecordBatch], label: str) -> pa.RecordBatch:
    """Joins batches; columns of nulls without a type get that of the others."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0].schema.names
    for part in parts[1:]:
        if sorted(part.schema.names) != sorted(names):
            differ = sorted(set(part.schema.names) ^ set(names)) or sorted(names)
            raise SchemaError(
                f"`map` {label}: returns column {differ[0]!r} for some rows only. It has "
                "to return the same columns for all"
            )
    arrays = []
    for name in names:
        columns = [part[name] for part in parts]
        types = {column.type: None for column in columns}
        types.pop(pa.null(), None)
        if len(types) > 1:
            one, other = map(str, list(types)[:2])
            raise SchemaError(different_types(label, name, one, other))
        kind = next(iter(types), pa.null())
        arrays.append(pa.concat_arrays([column.cast(kind) for column in columns]))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def different_types(label: str, column: str, one: str, other: str) -> str:
    """Returns the message about a column that has not one type for all rows."""
    return (
        f"`map` {label}: column {column!r} is {one} for some rows and {other} for others. "
        "Make it of one type in the function, as by pyarrow.array(values, type) or "
        "cast, or declare the features in a file (`schema`)"
    )


# Sums of many numbers may differ in the last digits when they are added otherwise.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


def require_row_by_row(
    function: Function, batch: pa.RecordBatch, whole: MappedBatch, label: str
) -> None:
    """Checks that two halves of a batch give what the batch gave."""
    half = batch.num_rows // 2
    starts = (0, half) if half else (0,)
    parts = [
        map_batch(function, batch.slice(start, half if start < half else None), label)
        for start in starts
    ]
    rows = [
        row + start
        for start, part in zip(starts, parts, strict=True)
        for row in part.rows.tolist()
    ]
    if rows != whole.rows.tolist():
        raise UsageError(_message(label, "other rows"))
    at = 0
    for part in parts:
        expected = whole.batch.slice(at, part.batch.num_rows)
        at += part.batch.num_rows
        for name in whole.batch.schema.names if part.batch.num_rows else ():
            if name not in part.batch.schema.names or not same_values(
                expected[name], part.batch[name]
            ):
                raise UsageError(_message(label, f"other values in column {name!r}"))


def _message(label: str, what: str) -> str:
    return (
        f"`map` {label}: gives {what} when it gets the same rows in smaller batches, or "
        "again. Make each row from its own row alone: with numbers that are fixed "
        "before, not with the mean or the largest value of the batch, random numbers, or "
        "the time"
    )


def same_values(one: pa.Array, other: pa.Array) -> bool:
    """Tells whether arrays hold the same values; floats as nearly as sums can be."""
    one, other = plain(one), plain(other)
    if pt.is_null(one.type) or pt.is_null(other.type):
        counts = {len(one), len(other), one.null_count, other.null_count}
        return len(counts) == 1
    if one.type != other.type or len(one) != len(other):
        return bool(one.equals(other))
    if not one.is_null().equals(other.is_null()):
        return False
    if pt.is_struct(one.type):
        pairs = zip(one.flatten(), other.flatten(), strict=True)
        return all(same_values(*pair) for pair in pairs)
    if is_list(one.type):
        sizes = [pc.list_value_length(array) for array in (one, other)]
        return bool(sizes[0].equals(sizes[1])) and same_values(
            one.flatten(), other.flatten()
        )
    if not pt.is_floating(one.type):
        return bool(one.equals(other))
    first, second = (
        array.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
        for array in (one, other)
    )
    return bool(
        np.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    )


TRIED_ROWS = 256
_RANGES = 32  # of which the first rows are taken


class RaisedForAllError(UsageError):
    """A function that raises for each of the first rows."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a function made of the first rows."""

    columns: pa.Schema  # with plain types
    kept: frozenset[str] = frozenset()  # columns that it gave back as they were
    rows_each: int = 1  # that it made of one, rounded up
    has_rows: bool = True  # without, only types are known


def first_rows(
    source: Source, ranges: Sequence[InputRange], types: TypeFlags = ()
) -> tuple[pa.RecordBatch, TypeFlags]:
    """Reads a few rows of several ranges, with the types that they need together.

    Returns the rows, maybe none, and the type flags of their columns. Of ranges that
    cannot be read on their own, the others are enough.

    Raises:
      InputError: no range can be read.
    """
    ranges = ranges[:_RANGES]
    parts, seen, problems = [], types, []
    for input_range in ranges:
        sink = RowSink()
        try:
            found = source.read(input_range, types, sink)
            batch = next((r.batch for r in found if r.batch.num_rows), None)
        except InputError as error:
            problems.append(error)  # a range that begins inside a quoted field
            continue
        if batch is not None:
            parts.append(batch.slice(0, -(-TRIED_ROWS // len(ranges))))
            if source.infers_types:
                seen = merge_type_flags(seen, sink.observed)
    if problems and len(problems) == len(ranges):
        raise problems[-1]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=source.columns()), types
    if seen != types:  # again, as the first parts may have narrower types
        return first_rows(source, ranges, seen)
    return _joined(parts, "first rows"), types


def try_function(
    function: Function, batch: pa.RecordBatch, label: str, *, as_declared: bool
) -> Tried:
    """Calls a function with some rows, and learns which columns it makes.

    Raises:
      RaisedForAllError: it raises for all rows.
      UsageError: one row's result depends on others.
      SchemaError: no schema is declared, and the type of a column is not known.
    """
    made = map_batch(function, batch, label)
    if len(made.invalid_rows) == batch.num_rows:
        raise RaisedForAllError(
            f"`map` {label}: raised for {'each of ' if batch.num_rows > 1 else ''}"
            f"{_first(batch.num_rows)}: "
            f"{made.invalid_rows[0][1]}. The columns are "
            f"{', '.join(f'{f.name} {f.type}' for f in batch.schema)}"
        )
    if not made.invalid_rows:
        require_row_by_row(function, batch, made, label)
    found = plain_columns_of(made.batch, label, as_declared=as_declared)
    kept = _unchanged(batch, made)
    for column in found:
        if pt.is_null(column.type) and column.name not in kept and not as_declared:
            raise SchemaError(
                f"`map` {label}: column {column.name!r} has no value in "
                f"{_first(batch.num_rows)}, so its type is not known. Give it one in the "
                "function, as by pyarrow.array(values, type), or declare the features "
                "in a file (`schema`)"
            )
    return Tried(found, kept, max(1, -(-made.batch.num_rows // batch.num_rows)))


def _first(rows: int) -> str:
    """Returns "the first 3 rows" or "the first row"."""
    return "the first row" if rows == 1 else f"the first {count(rows, 'row')}"


def try_without_rows(
    function: Function, columns: pa.Schema, label: str, *, as_declared: bool
) -> Tried:
    """Tries a function with a batch without rows, as `try_function` does with rows."""
    batch = pa.RecordBatch.from_pylist([], schema=columns)
    try:
        returned = function(batch)
    except Exception as error:  # whatever a person's function raises
        raise InputError(
            f"the input has no row, and `map` {label} cannot take a batch without rows: "
            f"{type(error).__name__}: {error}"
        ) from error
    made, _ = _checked(returned, 0, label)
    found = plain_columns_of(made, label, as_declared=as_declared)
    return Tried(found, has_rows=False)


def plain_columns_of(
    batch: pa.RecordBatch, label: str, *, as_declared: bool
) -> pa.Schema:
    """Returns the plain columns of what a function made."""
    where = f"`map` {label}"
    try:
        found = plain_columns(batch.schema, where, as_declared=as_declared)
    except InputError as error:
        raise SchemaError(str(error)) from error
    return pa.schema(list(found.items()))


def _unchanged(batch: pa.RecordBatch, made: MappedBatch) -> frozenset[str]:
    """Returns the columns that a function gave back as it got them."""
    rows = pa.array(made.rows)
    before, after = batch.schema.names, made.batch.schema.names
    return frozenset(
        name
        for name in after
        if before.count(name) == after.count(name) == 1
        and made.batch[name].equals(batch[name].take(rows))
    )
