"""Defines what casting a column returns: an Arrow array, and the invalid rows.

Invalid values are nulls in the array; a missing value is a null without a reason.
"""

from __future__ import annotations

import reprlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.encode.row_errors import Mask, RowErrors

ARROW_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 60


class CastResult(NamedTuple):
    """A column of feature values.

    Attributes:
      array: the values, null where one is missing or invalid.
      errors: the reason for each invalid one.
    """

    array: pa.Array
    errors: RowErrors


def without(array: pa.Array, wrong: Mask) -> pa.Array:
    """Returns the array with nulls where `wrong` is set."""
    if not wrong.any():
        return array
    return pc.if_else(pa.array(wrong), pa.scalar(None, array.type), array)


def present(array: pa.Array) -> Mask:
    """Returns which values are not null."""
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def shown(value: Any) -> str:
    """Returns a value as an error shows it, cut short if it is long."""
    return _shown.repr(value)
