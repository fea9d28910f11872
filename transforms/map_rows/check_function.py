"""Checks with a few rows that each row of a function's result depends on its row alone.

A function that takes the mean of its batch, or draws random numbers, gives other values
for other batches. Its result would mean something else than it seems to.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import UsageError
from recordmill.transforms.encode.column_types import is_list, plain
from recordmill.transforms.map_rows.call_function import MappedBatch, map_batch
from recordmill.transforms.map_rows.load_function import Function

# Sums of many numbers may differ in the last digits when they are added otherwise.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


def require_row_by_row(
    function: Function, batch: pa.RecordBatch, whole: MappedBatch, label: str
) -> None:
    """Checks that two halves of a batch give what the batch gives.

    Args:
      function: the function.
      batch: some rows.
      whole: what it made of them.
      label: its name.

    Raises:
      UsageError: they give other values.
    """
    half = batch.num_rows // 2
    first = map_batch(function, batch.slice(0, half), label) if half else None
    parts = [*([first] if first else []), map_batch(function, batch.slice(half), label)]
    starts = [0, half] if first else [half]
    rows = np.concatenate(
        [part.rows + start for part, start in zip(parts, starts, strict=True)]
    )
    if not np.array_equal(rows, whole.rows):
        raise UsageError(_message(label, "other rows"))
    at = 0
    for part in parts:
        expected = whole.batch.slice(at, part.batch.num_rows)
        at += part.batch.num_rows
        if not part.batch.num_rows:
            continue
        for name in whole.batch.schema.names:
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
    if is_list(one.type) or pt.is_struct(one.type):
        return _same_nested(one, other)
    if not pt.is_floating(one.type):
        return bool(one.equals(other))
    if not one.is_null().equals(other.is_null()):
        return False
    first, second = (
        array.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
        for array in (one, other)
    )
    return bool(
        np.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    )


def _same_nested(one: pa.Array, other: pa.Array) -> bool:
    if not one.is_null().equals(other.is_null()):
        return False
    if pt.is_struct(one.type):
        pairs = zip(one.flatten(), other.flatten(), strict=True)
        return all(same_values(*pair) for pair in pairs)
    sizes = [pc.list_value_length(array) for array in (one, other)]
    return bool(sizes[0].equals(sizes[1])) and same_values(
        one.flatten(), other.flatten()
    )
