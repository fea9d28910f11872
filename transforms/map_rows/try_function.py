"""Tries a person's function on the first rows, to learn which columns it makes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import InputError, SchemaError, UsageError
from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.schemas.text import count
from recordmill.transforms.map_rows.call_function import (
    MappedBatch,
    checked,
    join_batches,
    map_batch,
)
from recordmill.transforms.map_rows.check_function import require_row_by_row
from recordmill.transforms.map_rows.load_function import Function
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.plain_types import plain_columns

TRIED_ROWS = 256
_RANGES = 32  # of which the first rows are taken


class RaisedForAllError(UsageError):
    """A function that raises for each of the first rows."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a function made of the first rows.

    Attributes:
      columns: name and plain type of each column that it made.
      kept: those that it gave back as they were.
      rows_each: how many rows it made of one, rounded up.
      has_rows: whether there were rows; without, only types are known.
    """

    columns: tuple[tuple[str, pa.DataType], ...]
    kept: frozenset[str]
    rows_each: int = 1
    has_rows: bool = True

    def arrow_schema(self) -> pa.Schema:
        """Returns the columns as Arrow has them."""
        return pa.schema(list(self.columns))


NOTHING_TRIED = Tried((), frozenset())


def first_rows(
    source: Source, ranges: Sequence[InputRange], types: TypeFlags = ()
) -> tuple[pa.RecordBatch, TypeFlags]:
    """Reads a few rows of several ranges, with the types that they need together.

    Args:
      source: prepared.
      ranges: each can be read on its own; of rows that cannot, the others are enough.
      types: the type flags to assume.

    Returns:
      The rows, maybe none, and the type flags that their columns have.

    Raises:
      InputError: no range can be read.
    """
    while True:
        parts, seen = [], types
        for batch, observed in _starts(source, ranges[:_RANGES], types):
            parts.append(batch)
            if source.infers_types:
                seen = merge_type_flags(seen, observed)
        if seen == types or not parts:
            break
        types = seen  # again, as the first parts may have narrower types
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=source.columns()), types
    return join_batches(parts, "first rows"), types


def _starts(
    source: Source, ranges: Sequence[InputRange], types: TypeFlags
) -> Iterator[tuple[pa.RecordBatch, TypeFlags]]:
    """Yields the first rows of ranges with their type flags, TRIED_ROWS in all."""
    problem: InputError | None = None
    each = -(-TRIED_ROWS // max(1, len(ranges)))
    any_read = False
    for input_range in ranges:
        try:
            for rows in source.read(input_range, types):
                if rows.batch.num_rows:
                    yield rows.batch.slice(0, each), rows.observed
                    break
            any_read = True
        except InputError as error:
            problem = error  # a range that begins inside a quoted field
    if problem is not None and not any_read:
        raise problem


def try_function(
    function: Function, batch: pa.RecordBatch, label: str, *, as_declared: bool
) -> Tried:
    """Calls a function with some rows, and learns which columns it makes.

    Args:
      function: the function.
      batch: the rows.
      label: its name.
      as_declared: whether a declared schema says what becomes of the columns.

    Raises:
      RaisedForAllError: it raises for all rows.
      UsageError: one row's result depends on others.
      SchemaError: the type of a column is not known, or can be no feature.
    """
    if not batch.num_rows:
        return NOTHING_TRIED
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
    found = _plain(made.batch, label, as_declared=as_declared)
    kept = _unchanged(batch, made)
    for name, kind in found.items():
        if pt.is_null(kind) and name not in kept and not as_declared:
            raise SchemaError(
                f"`map` {label}: column {name!r} has no value in "
                f"{_first(batch.num_rows)}, so its type is not known. Give it one in the "
                "function, as by pyarrow.array(values, type), or declare the features "
                "in a file (`schema`)"
            )
    return Tried(
        tuple(found.items()), kept, max(1, -(-made.batch.num_rows // batch.num_rows))
    )


def _first(rows: int) -> str:
    """Returns "the first 3 rows" or "the first row"."""
    return "the first row" if rows == 1 else f"the first {count(rows, 'row')}"


def try_without_rows(
    function: Function, columns: pa.Schema, label: str, *, as_declared: bool
) -> Tried:
    """Calls a function with a batch without rows, as `try_function` does with rows.

    Raises:
      InputError: it cannot take such a batch.
      UsageError, SchemaError: as `try_function`.
    """
    batch = pa.RecordBatch.from_pylist([], schema=columns)
    try:
        returned = function(batch)
    except Exception as error:  # whatever a person's function raises
        raise InputError(
            f"the input has no row, and `map` {label} cannot take a batch without rows: "
            f"{type(error).__name__}: {error}"
        ) from error
    made, _ = checked(returned, 0, label)
    found = _plain(made, label, as_declared=as_declared)
    return Tried(tuple(found.items()), frozenset(), has_rows=False)


def _plain(
    batch: pa.RecordBatch, label: str, *, as_declared: bool
) -> dict[str, pa.DataType]:
    try:
        return plain_columns(batch.schema, f"`map` {label}", as_declared=as_declared)
    except InputError as error:
        raise SchemaError(str(error)) from error


def _unchanged(batch: pa.RecordBatch, made: MappedBatch) -> frozenset[str]:
    """Returns the columns that a function gave back as it got them."""
    rows = pa.array(made.rows)
    return frozenset(
        name
        for name in made.batch.schema.names
        if batch.schema.names.count(name) == 1
        and made.batch.schema.names.count(name) == 1
        and made.batch[name].equals(batch[name].take(rows))
    )
