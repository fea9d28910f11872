"""Converts decoded batches to dicts, the inverse of dict_tables.py.

feature's shape                   value
[]                                bool, int, float, str or bytes
[3], [null], [28, 28, 1]          NumPy array of the dtype and shape; of text and
                                  bytes nested lists
several unknown dimensions        nested lists
image                             the bytes of its file
missing                           None
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema

_Shape = tuple[int | None, ...]


def to_dicts(batch: pa.RecordBatch, schema: Schema) -> Iterator[dict[str, Any]]:
    """Yields a dict for each row.

    Args:
      batch: columns as recordmill.transforms.decode makes them.
      schema: of the columns; features without a column are left out.
    """
    columns = {
        feature.name: column_values(batch[feature.name], feature)
        for feature in schema.features
        if feature.name in batch.schema.names
    }
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


def column_values(array: pa.Array, feature: FeatureSpec) -> list[Any]:
    """Returns the value of each row, as the table above says."""
    if feature.sequence:
        return _steps(array, feature)
    shape, whole = feature.shape, feature.content is Content.ARRAY
    if feature.content is Content.IMAGE or not (shape or whole):
        return list(array.to_pylist())
    if whole:
        dtype = np.dtype(feature.dtype).newbyteorder("<")
        return [
            None
            if cell is None
            else _shaped(np.frombuffer(cell, dtype).astype(feature.dtype), shape)
            for cell in array.to_pylist()
        ]
    if shape.count(None) > 1:
        return list(array.to_pylist())
    if feature.dtype in ("string", "bytes"):
        return [
            None if cell is None else _nested(cell, _sides(len(cell), shape))
            for cell in array.to_pylist()
        ]
    offsets = array.offsets.to_numpy()
    values = array.values.to_numpy(zero_copy_only=False)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    return [
        # A copy: a view would keep the whole batch in memory as long as the row.
        _shaped(values[start:stop].astype(feature.dtype), shape) if there else None
        for start, stop, there in zip(offsets, offsets[1:], valid, strict=False)
    ]


def _steps(array: pa.Array, feature: FeatureSpec) -> list[Any]:
    """Returns for each row the list of its steps' values."""
    one = FeatureSpec(
        feature.name,
        feature.kind,
        dtype=feature.dtype,
        shape=feature.shape,
        content=feature.content,
    )
    steps = column_values(array.values, one)
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    return [
        steps[start:stop] if there else None
        for start, stop, there in zip(offsets, offsets[1:], valid, strict=False)
    ]


def _shaped(values: np.ndarray[Any, Any], shape: _Shape) -> np.ndarray[Any, Any]:
    return values.reshape(_sides(len(values), shape))


def _nested(values: Sequence[Any], sides: tuple[int, ...]) -> list[Any]:
    """Nests row-major values in lists of these lengths."""
    if len(sides) == 1:
        return list(values)
    step = len(values) // sides[0] if sides[0] else 0
    return [
        _nested(values[index * step : (index + 1) * step], sides[1:])
        for index in range(sides[0])
    ]


def _sides(count: int, shape: _Shape) -> tuple[int, ...]:
    """Returns the shape of `count` values; a side that cannot be computed is 0."""
    known = math.prod(size for size in shape if size is not None)
    open_side = count // known if known else 0
    return tuple(open_side if size is None else size for size in shape)
