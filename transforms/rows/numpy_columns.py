"""Converts decoded batches to NumPy arrays, a whole column at once.

feature's shape             array of a batch of n rows
[]                          (n,), of the feature's dtype; text and bytes: objects
[3], [32, 32, 3]            (n, 3), (n, 32, 32, 3)
all else                    (n,) of objects: what to_dicts gives for each row

Where a value is missing, the column is one of objects, with None. All may be written to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.features.feature import Content, FeatureSpec, Schema
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.rows.dicts import column_values

Column = npt.NDArray[Any]

_TEXT = ("string", "bytes")


def to_numpy(batch: pa.RecordBatch, schema: Schema) -> dict[str, Column]:
    """Returns an array for each feature.

    Args:
      batch: columns as recordmill.transforms.decode makes them.
      schema: of the columns.
    """
    return {
        feature.name: _column(batch[feature.name], feature)
        for feature in schema.features
    }


def _column(array: pa.Array, feature: FeatureSpec) -> Column:
    column = None
    shape = tuple(size for size in feature.shape if size is not None)
    open_shape = len(shape) < len(feature.shape)
    if not (array.null_count or feature.sequence or open_shape):
        if feature.content is Content.ARRAY:
            column = _of_bytes(array, feature.dtype, shape)
        elif feature.content is not Content.PICTURE and feature.dtype not in _TEXT:
            column = _of_values(array, feature.dtype, shape)
    return objects(column_values(array, feature)) if column is None else column


def _of_bytes(array: pa.Array, name: str, shape: tuple[int, ...]) -> Column | None:
    """Returns raw arrays of one size as one array; None if their sizes differ."""
    offsets, data = array_parts(array)
    dtype = np.dtype(name).newbyteorder("<")
    if not (np.diff(offsets) == math.prod(shape) * dtype.itemsize).all():
        return None
    flat = data[offsets[0] : offsets[-1]].view(dtype).astype(name, copy=False)
    return flat.reshape(len(array), *shape)


def _of_values(array: pa.Array, name: str, shape: tuple[int, ...]) -> Column | None:
    """Returns numbers, or lists of one length, as one array; None if lengths differ."""
    rows = len(array)
    if shape:
        if not (np.diff(array.offsets.to_numpy()) == math.prod(shape)).all():
            return None
        array = array.flatten()
    values: Column = array.to_numpy(zero_copy_only=False)
    # Arrow's own memory is read-only, and PyTorch warns of that.
    owned = np.require(values.astype(name, copy=False), requirements="W")
    return owned.reshape(rows, *shape)


def objects(values: Sequence[Any]) -> Column:
    """Returns an array of objects, one for each value."""
    # Assigned, as np.array would make a matrix of arrays of one shape.
    column = np.empty(len(values), object)
    for index, value in enumerate(values):
        column[index] = value
    return column
