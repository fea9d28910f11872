"""Makes the columns of rows from those of a file: structs apart, types plain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from recordmill.transforms.encode.arrow_types import is_list, plain
from recordmill.transforms.sources.plain_types import SEPARATOR, has_struct


def flat_batch(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Returns the rows of a file with the columns of its source.

    Args:
      batch: as the file has it.
      columns: the source's; the file has each of them.

    Raises:
      pa.ArrowException: a value does not fit the type.
    """
    found = {
        leaf: array
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for leaf, array in _leaves(name, column)
    }
    arrays = [_as_type(found[field.name], field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _leaves(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    column = plain(column)
    if pt.is_struct(column.type):
        # A missing struct misses each of its fields.
        for field, values in zip(column.type, column.flatten(), strict=True):
            yield from _leaves(f"{name}{SEPARATOR}{field.name}", values)
    elif (pt.is_list(column.type) or pt.is_large_list(column.type)) and has_struct(
        column.type
    ):
        rows = column.cast(pa.list_(column.type.value_type))
        offsets = pa.array(rows.offsets.to_numpy(zero_copy_only=False).copy())
        missing = rows.is_null()
        for leaf, values in _leaves(name, rows.values):
            yield leaf, pa.ListArray.from_arrays(offsets, values, mask=missing)
    else:
        yield name, column


def _as_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type.equals(wanted):
        return column
    if pt.is_decimal(_leaf(column.type)) and pt.is_floating(_leaf(wanted)):
        # Arrow makes 1234567890.1200001 of 1234567890.12, but reads it well.
        column = column.cast(_with_leaf(column.type, pa.string()))
    return column.cast(wanted)


def _leaf(arrow_type: pa.DataType) -> pa.DataType:
    return _leaf(arrow_type.value_type) if is_list(arrow_type) else arrow_type


def _with_leaf(arrow_type: pa.DataType, leaf: pa.DataType) -> pa.DataType:
    """Returns the same lists with other values."""
    if pt.is_fixed_size_list(arrow_type):
        inner = _with_leaf(arrow_type.value_type, leaf)
        return pa.list_(inner, arrow_type.list_size)
    if is_list(arrow_type):
        return pa.list_(_with_leaf(arrow_type.value_type, leaf))
    return leaf


def row_as_json(batch: pa.RecordBatch, row: int) -> bytes:
    """Returns a row as JSON; each byte that is not UTF-8 in hexadecimal digits."""
    values = {
        name: _value(column.slice(row, 1))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    return json.dumps(values, ensure_ascii=False, default=_shown).encode(
        errors="backslashreplace"
    )


def _value(cell: pa.Array) -> Any:
    try:
        (value,) = cell.to_pylist()
    except UnicodeDecodeError:
        (value,) = cell.cast(_with_leaf(cell.type, pa.binary())).to_pylist()
    return value


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
