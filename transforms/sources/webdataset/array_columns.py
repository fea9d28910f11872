"""Finds the type that arrays of many samples have, and makes columns of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import offsets_of

Array = npt.NDArray[Any]
_DTYPES = {"int64": "i8", "uint64": "u8", "float": "f4", "double": "f8"}


def array_type(values: Sequence[Array]) -> pa.DataType:
    """Returns the type that holds most of these arrays, of the types of `plain_values`.

    Arrays of one shape are lists of fixed sizes, others of one number of axes lists of
    any. Arrays of another number of axes do not fit.

    Raises:
      ValueError: there are none.
    """
    ranks = [value.ndim for value in values]
    rank = max(set(ranks), key=lambda each: (ranks.count(each), -each))
    chosen = [value for value in values if value.ndim == rank]
    found = pa.from_numpy_dtype(np.result_type(*chosen))
    if pa.types.is_floating(found):
        found = pa.float64() if pa.types.is_float64(found) else pa.float32()
    elif pa.types.is_boolean(found) and any(v.dtype != bool for v in chosen):
        found = pa.int64()
    shapes = {value.shape for value in chosen}
    is_fixed = len(shapes) == 1 and all(next(iter(shapes)))
    for side in reversed(chosen[0].shape):
        found = pa.list_(found, side if is_fixed else -1)
    return found


def misfit_of(value: Array, arrow_type: pa.DataType) -> str:
    """Returns why an array cannot be in a column, or ""."""
    leaf = arrow_type
    shape = []
    while pa.types.is_list(leaf) or pa.types.is_fixed_size_list(leaf):
        shape.append(leaf.list_size if pa.types.is_fixed_size_list(leaf) else None)
        leaf = leaf.value_type
    same = len(shape) == value.ndim and all(
        side in (None, found) for side, found in zip(shape, value.shape, strict=True)
    )
    if not same:
        return f"an array of shape {list(value.shape)}"
    if not np.can_cast(value.dtype, _dtype(leaf), "same_kind"):
        return f"an array of {value.dtype}"
    return ""


def array_column(values: Sequence[Array | None], arrow_type: pa.DataType) -> pa.Array:
    """Returns arrays that all fit as a column; None is a missing one."""
    found = [value for value in values if value is not None]
    mask = np.array([value is None for value in values], np.bool_)
    leaf, fixed = arrow_type, list[int]()
    rank = 0
    while pa.types.is_list(leaf) or pa.types.is_fixed_size_list(leaf):
        fixed.append(leaf.list_size if pa.types.is_fixed_size_list(leaf) else -1)
        leaf, rank = leaf.value_type, rank + 1
    dtype = _dtype(leaf)
    if not rank:
        filled = [False if value is None else value[()] for value in values]
        return pa.array(np.array(filled, dtype), leaf, mask=mask)
    if fixed[0] >= 0:
        blank = np.zeros(fixed, dtype)
        parts = [blank if value is None else value for value in values]
    else:
        parts = found
    flat = [part.reshape(-1) for part in parts]
    column = pa.array(
        np.concatenate(flat).astype(dtype) if flat else np.zeros(0, dtype), leaf
    )
    for level in reversed(range(rank)):
        if fixed[level] >= 0:
            column = pa.FixedSizeListArray.from_arrays(
                column, fixed[level], mask=pa.array(mask) if not level else None
            )
            continue
        if level:
            lengths = [
                part.shape[level]
                for part in parts
                for _ in range(math.prod(part.shape[:level]))
            ]
            offsets = pa.array(offsets_of(np.array(lengths, np.int64)), pa.int32())
            column = pa.ListArray.from_arrays(offsets, column)
            continue
        lengths = [0 if value is None else len(value) for value in values]
        offsets = pa.array(offsets_of(np.array(lengths, np.int64)), pa.int32())
        column = pa.ListArray.from_arrays(offsets, column, mask=pa.array(mask))
    return column


def _dtype(leaf: pa.DataType) -> Any:
    return np.dtype("bool" if pa.types.is_boolean(leaf) else _DTYPES[str(leaf)])
