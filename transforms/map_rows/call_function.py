"""Calls a person's function with a batch; tells which row each row of its result is of.

    def tokenise(batch):                 # as many rows: row i is made from row i
        return batch.append_column("ids", ...)

    def only_long(batch):                # other rows: it says which they come from
        rows = pc.indices_nonzero(pc.greater(batch["length"], 9))
        return batch.take(rows), rows

A row for which it raises is found by halving: the batch is cut in two until the row is
alone, and all other rows go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import RecordmillError, SchemaError, UsageError
from recordmill.transforms.arrow import I64
from recordmill.transforms.map_rows.load_function import Function

_REASON_CHARACTERS = 500  # of what an exception says


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """What a function made of a batch.

    Attributes:
      batch: the rows that it returned.
      rows: the row of the batch that each of them comes from, rising.
      invalid_rows: (row, reason) of those for which it raised, ascending.
    """

    batch: pa.RecordBatch
    rows: I64
    invalid_rows: tuple[tuple[int, str], ...] = ()

    def dropped(self, num_rows: int) -> int:
        """Returns how many of so many rows became none, and are not invalid."""
        return num_rows - len(self.invalid_rows) - len(np.unique(self.rows))

    @property
    def added(self) -> int:
        """Returns how many rows there are beside the first that comes from each."""
        return len(self.rows) - len(np.unique(self.rows))


def map_batch(function: Function, batch: pa.RecordBatch, label: str) -> MappedBatch:
    """Calls the function with a batch, and with parts of it where it raises.

    Args:
      function: the function.
      batch: with at least one row.
      label: the function's name, for messages.

    Raises:
      UsageError: what it returns is not a batch, or does not say where rows come from.
      SchemaError: its results for parts of the batch have different columns.
    """
    invalid: list[tuple[int, str]] = []
    parts = list(_call_parts(function, batch, 0, label, invalid))
    if not parts:
        no_rows = np.zeros(0, np.int64)
        return MappedBatch(pa.RecordBatch.from_pylist([]), no_rows, tuple(invalid))
    joined = join_batches([part for part, _ in parts], label)
    return MappedBatch(
        joined, np.concatenate([rows for _, rows in parts]), tuple(invalid)
    )


def _call_parts(
    function: Function,
    batch: pa.RecordBatch,
    start: int,
    label: str,
    invalid: list[tuple[int, str]],
) -> Iterator[tuple[pa.RecordBatch, I64]]:
    """Yields the results for the parts of a batch that the function takes.

    Args:
      function: the function.
      batch: rows; the first of them is number `start`.
      start: the number of the first row.
      label: the function's name.
      invalid: gets the rows for which it raises.
    """
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
    made, rows = checked(returned, batch.num_rows, label)
    yield made, rows + start


def checked(returned: Any, num_rows: int, label: str) -> tuple[pa.RecordBatch, I64]:
    """Returns the batch that a function returned, and the rows that it comes from.

    Args:
      returned: what the function returned.
      num_rows: how many it was given.
      label: the function's name.

    Raises:
      UsageError: it is not a batch, or does not say where rows come from.
    """
    rows: Any = None
    if isinstance(returned, tuple) and len(returned) == 2:
        returned, rows = returned
    if not isinstance(returned, pa.RecordBatch):
        raise UsageError(
            f"`map` {label}: returned {_kind_of(returned)}, expected a "
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


def _kind_of(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__qualname__}"


def join_batches(parts: Sequence[pa.RecordBatch], label: str) -> pa.RecordBatch:
    """Puts batches end to end; columns of nulls without a type get that of the others.

    Raises:
      SchemaError: names the columns in which they differ.
    """
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
