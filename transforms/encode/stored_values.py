"""Converts a column's innermost values to what is stored: numbers or bytes.

Strict like the tutorials: 1.0 is not an int64, text is not a number. What a type allows
and a single value does not (an integer beyond int64, text that is not UTF-8) is
rejected with the feature, the value and the row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import Kind
from recordmill.transforms.arrow import I64, require_fit
from recordmill.transforms.encode.arrow_types import BOOL, FLOAT, NULL, TIME, family_of
from recordmill.transforms.encode.nested import Nested
from recordmill.transforms.encode.value_limits import (
    integer_errors,
    integers_as_floats,
    narrow_floats,
    utf8_errors,
)

_STORED: dict[Kind, np.dtype[Any]] = {
    Kind.INT64: np.dtype(np.int64),
    Kind.FLOAT: np.dtype(np.float32),
}


@dataclass(slots=True)
class Column:
    """What one key of the feature map holds, ready to encode.

    Attributes:
      values: int64 or float32 array, or for bytes an Arrow binary array without
        nulls; one value per row, or for lists all rows' values end to end.
      lists: for lists, where each row's values start (rows + 1), else None.
      valid: which rows have a value; None if all do.
    """

    values: Any
    lists: I64 | None
    valid: npt.NDArray[np.bool_] | None


def value_column(nested: Nested) -> Column:
    """Converts the values to what the feature's kind of list stores.

    Raises:
      RowsError: rows with a value that the list cannot hold.
    """
    values: Any
    if nested.feature.kind is Kind.BYTES:
        values = byte_values(nested)
    else:
        values = numbers(nested, _STORED[nested.feature.kind])
    return Column(values, nested.starts, nested.valid)


def numbers(nested: Nested, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns the innermost values as numbers of a dtype; 0 for nulls.

    Raises:
      RowsError: rows with a number that the dtype cannot hold.
    """
    leaf = nested.leaf
    family = family_of(leaf.type)
    if family == NULL:
        return np.zeros(len(leaf), dtype)
    if family == TIME:
        leaf = leaf.view(pa.int32() if leaf.type.bit_width == 32 else pa.int64())
    elif family == BOOL:
        leaf = leaf.cast(pa.int8())
    if leaf.null_count:
        leaf = leaf.fill_null(0)
    values: npt.NDArray[Any] = leaf.to_numpy(False)
    if family == FLOAT:
        values, errors = narrow_floats(values, dtype.name)
    elif dtype.kind == "f":
        values, errors = integers_as_floats(values, dtype.name)
    else:
        errors = integer_errors(values, dtype.name) if dtype.kind != "b" else {}
    nested.reject(errors)
    return values.astype(dtype, copy=False)


def byte_values(nested: Nested) -> pa.BinaryArray:
    """Returns the innermost values as plain binary; empty for nulls.

    Raises:
      RowsError: rows with text that is not UTF-8, if the feature is a string.
      RecordmillError: the values together are beyond 2 GiB.
    """
    leaf = nested.leaf
    if family_of(leaf.type) == NULL:
        leaf = leaf.cast(pa.binary())
    try:
        plain = leaf.cast(pa.binary())
    except pa.ArrowInvalid:  # of large types, and only their size can be wrong
        require_fit(pc.sum(pc.binary_length(leaf)).as_py())
        raise
    if plain.null_count:
        plain = plain.fill_null(b"")
    if nested.feature.dtype == "string":
        nested.reject(utf8_errors(plain))
    return plain
