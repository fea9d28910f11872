"""Arrow columns as the encoder needs them: plain values, list offsets, validity.

Strict like the tutorials: 1.0 is no int64, text is no number, and what a feature
cannot hold is an error that names the feature, the value and the row.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from schemas.errors import RowsError, SchemaError
from schemas.features import FeatureSpec, Kind
from transforms.wire import I64

MAX_INT64 = (1 << 63) - 1


@dataclass(slots=True)
class Column:
    """A column ready to encode.

    Attributes:
      values: int64 or float32 array, or for bytes an Arrow binary array without
        nulls; one value per row, or for lists all rows' values end to end.
      lists: for a list column, where each row's values start (rows + 1), else None.
      valid: which rows have a value; None if all do.
    """

    values: Any
    lists: I64 | None
    valid: npt.NDArray[np.bool_] | None


def load_column(array: pa.Array, feature: FeatureSpec) -> Column:
    """Checks a column against its feature and takes it apart.

    Raises:
      SchemaError: the column's type cannot become the feature's kind.
      RowsError: single values cannot.
    """
    array = _plain(array, feature.kind)
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(False)
    if not _is_list(array.type):
        return Column(_values(array, feature, None), None, valid)
    lists, flat = _flatten(array)
    flat = _plain(flat, feature.kind)
    if flat.null_count:
        where = np.flatnonzero(flat.is_null().to_numpy(False))
        _refuse(feature, lists, where, lambda _: "a list holds a null value")
    return Column(_values(flat, feature, lists), lists, valid)


_EMPTY_TYPE = {
    Kind.BYTES: pa.binary(),
    Kind.FLOAT: pa.float32(),
    Kind.INT64: pa.int64(),
}


def _plain(array: pa.Array, kind: Kind) -> pa.Array:
    """The array behind an extension type, a dictionary or the type of nothing."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pt.is_null(array.type):
        array = array.cast(_EMPTY_TYPE[kind])
    if pt.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)
    )


def _flatten(array: pa.Array) -> tuple[I64, pa.Array]:
    """Offsets from 0 and the flat values, with nothing behind null rows."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(False).astype(np.int64)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, array.flatten()


def _values(array: pa.Array, feature: FeatureSpec, lists: I64 | None) -> Any:
    kind = array.type
    if feature.kind is Kind.INT64:
        if pt.is_boolean(kind):
            return array.cast(pa.int8()).fill_null(0).to_numpy(False).astype(np.int64)
        if pt.is_integer(kind):
            values = array.fill_null(0).to_numpy(False)
            if pt.is_uint64(kind):
                too_big = np.flatnonzero(values > np.uint64(MAX_INT64))
                _refuse(
                    feature,
                    lists,
                    too_big,
                    lambda i: f"{values[i]} is beyond int64 (at most {MAX_INT64})",
                )
            return values.astype(np.int64, copy=False)
    elif feature.kind is Kind.FLOAT:
        if pt.is_floating(kind):
            wide = array.fill_null(0).to_numpy(False)
            with np.errstate(over="ignore"):
                values = wide.astype(np.float32, copy=False)
            lost = np.flatnonzero(np.isinf(values) & ~np.isinf(wide))
            _refuse(
                feature,
                lists,
                lost,
                lambda i: (
                    f"{float(wide[i])!r} does not fit in float32 (at most 3.4e38)"
                ),
            )
            return values
    elif _is_bytes(kind):
        plain = array.cast(pa.binary())
        return plain.fill_null(b"") if plain.null_count else plain
    found = ""
    if array.null_count < len(array):
        first = int(pc.index(array.is_valid(), True).as_py())
        sample = reprlib.repr(array[first].as_py())  # cut short if it is long
        found = f", for example {sample} in row {_row_of(first, lists)}"
    raise SchemaError(
        f"feature {feature.name!r}: {feature.kind} cannot hold column "
        f"{feature.column!r} of type {kind}{found}"
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind)
        or pt.is_string(kind)
        or pt.is_large_binary(kind)
        or pt.is_large_string(kind)
        or pt.is_fixed_size_binary(kind)
        or pt.is_binary_view(kind)
        or pt.is_string_view(kind)
    )


def _row_of(value_index: int, lists: I64 | None) -> int:
    if lists is None:
        return value_index
    return int(np.searchsorted(lists, value_index, side="right")) - 1


def _refuse(
    feature: FeatureSpec, lists: I64 | None, where: npt.NDArray[np.intp], say: Any
) -> None:
    """Raises RowsError for the rows of these values, if there are any."""
    if not len(where):
        return
    reasons: dict[int, str] = {}
    for index in where.tolist():
        row = _row_of(index, lists)
        reasons.setdefault(row, f"feature {feature.name!r}: {say(index)}")
    raise RowsError(list(reasons), list(reasons.values()))
