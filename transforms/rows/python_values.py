"""Converts Python values to Arrow arrays whose types do not depend on other rows.

The runner decides which rows share a bundle, so the record of a row must depend on that
row alone. Each value has a form: how deep its lists are nested, and what they hold.
Values of the same form make one array of one type:

    bool, int, float, str, bytes     bool, int64 (uint64 beyond), float64, string, binary
    numpy scalars and arrays         the same; arrays keep their dtype
    datetime, date, time, timedelta  microseconds (UTC where there is a zone), days
    Decimal                          decimal
    lists and tuples                 lists; integers among floats are floats
    an empty list                    the type of the feature
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.features.declared import DeclaredFeature
from recordmill.schemas.features.feature import shape_text
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.cell_lists import feature_type
from recordmill.transforms.encode.arrow_types import is_list

Form = tuple[int, str]
"""(depth of lists, type inside): a name in _TYPES, a NumPy dtype, or "" if empty."""

_TYPES: dict[str, pa.DataType | None] = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "datetime": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "decimal": None,  # Arrow infers precision and scale
}
_LEAVES: dict[type, str] = {
    bool: "bool",
    np.bool_: "bool",
    int: "int64",
    np.integer: "int64",
    float: "float",
    np.floating: "float",
    str: "text",
    bytes: "bytes",
    bytearray: "bytes",
    memoryview: "bytes",
    dt.datetime: "datetime",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "duration",
    Decimal: "decimal",
}
_INT64 = range(-(1 << 63), 1 << 63)
_ARRAY_KINDS = "biufMm"  # booleans, numbers, times


class InvalidValueError(Exception):
    """A value from which no feature can be made; the message says why."""


def plain_value(value: Any, features: Sequence[DeclaredFeature]) -> Any:
    """Converts a NumPy array to a value that Arrow takes; keeps other values.

    Args:
      value: of one row.
      features: the features that are made from its column.

    Raises:
      InvalidValueError: the array does not have the shape of a feature.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim == 0:
        return value.item()
    for feature in features:
        if value.ndim > 1 and not feature.sequence and not _fits(value, feature):
            raise InvalidValueError(
                f"an array of shape {list(value.shape)} does not fit shape "
                f"{shape_text(feature.shape)}"
            )
    nested = any(f.sequence or f.shape.count(None) > 1 for f in features)
    if nested or value.dtype.kind not in _ARRAY_KINDS:
        return value.tolist()
    return np.ascontiguousarray(value).reshape(-1)  # row-major


def _fits(value: np.ndarray[Any, Any], feature: DeclaredFeature) -> bool:
    return value.ndim == len(feature.shape) and all(
        wanted in (None, found)
        for wanted, found in zip(feature.shape, value.shape, strict=True)
    )


def form_of(value: Any) -> Form | None:
    """Returns the form of a value from `plain_value`; None if it is missing.

    Raises:
      InvalidValueError: a value of another type, or a list with values of several
        types.
    """
    if value is None:
        return None
    kind: type = type(value)
    leaf = _leaf_of(kind)
    if leaf == "int64":
        return 0, _integers((value,))
    if leaf == "datetime":
        return 0, _datetimes((value,))
    if leaf is not None:
        return 0, leaf
    if isinstance(value, np.ndarray):
        return 1, value.dtype.newbyteorder("=").str
    if isinstance(value, list | tuple):
        depth, leaf = _form_inside(value)
        return depth + 1, leaf
    raise InvalidValueError(
        f"a value of type {type(value).__name__}; expected a bool, a number, text, "
        "bytes, a date or time, a list or a NumPy array"
    )


def array_of(values: Sequence[Any], form: Form, feature: DeclaredFeature) -> pa.Array:
    """Returns an array of values of one form, and of missing ones.

    Args:
      values: as `plain_value` returns them.
      form: of all values that are not None.
      feature: a feature that is made from them; it has the type of empty lists.

    Raises:
      ValueError, TypeError, OverflowError: Arrow cannot hold one of the values.
    """
    depth, leaf = form
    if leaf not in _TYPES and leaf:
        return _lists_of_arrays(values, np.dtype(leaf))
    if not leaf:
        return pa.array(values, _empty_lists(depth, feature))
    kind = _TYPES[leaf]
    if kind is None:
        return pa.array(values)
    for _ in range(depth):
        kind = pa.list_(kind)
    return pa.array(values, kind)


def _empty_lists(depth: int, feature: DeclaredFeature) -> pa.DataType:
    """Returns a list type, nested as deep as the values and at least as the feature."""
    nested = leaf = feature_type(feature)
    while is_list(leaf):
        leaf, depth = leaf.value_type, depth - 1
    for _ in range(depth):
        nested = pa.list_(nested)
    return nested


def _lists_of_arrays(values: Sequence[Any], dtype: np.dtype[Any]) -> pa.Array:
    arrays = [value for value in values if value is not None]
    inner = pa.array(np.concatenate(arrays).astype(dtype, copy=False))
    lengths = np.fromiter((0 if v is None else len(v) for v in values), np.int64)
    missing = pa.array([value is None for value in values])
    offsets = pa.array(offsets_of(lengths).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, inner, mask=missing)


@cache
def _leaf_of(kind: type) -> str | None:
    return next((_LEAVES[base] for base in kind.__mro__ if base in _LEAVES), None)


def _form_inside(values: Sequence[Any]) -> Form:
    """Returns the form that all items of a list share."""
    if not values:
        return 0, ""
    kind: type = type(values[0])
    if set(map(type, values)) == {kind}:  # the usual case is fast
        leaf = _leaf_of(kind)
        if leaf == "int64":
            return 0, _integers(values)
        if leaf == "datetime":
            return 0, _datetimes(values)
        if leaf is not None:
            return 0, leaf
    items = (item.tolist() if isinstance(item, np.ndarray) else item for item in values)
    forms = {form for form in map(form_of, items) if form is not None}
    depths = {depth for depth, leaf in forms}
    if len(depths) > 1:
        raise InvalidValueError(f"{shown(values)} mixes lists and single values")
    leaves = {leaf for _, leaf in forms if leaf}
    return max(depths, default=0), _joined(leaves, values)


def _joined(leaves: set[str], values: Sequence[Any]) -> str:
    if len(leaves) < 2:
        return next(iter(leaves), "")
    if leaves <= {"int64", "uint64"}:
        return "uint64"
    if leaves <= {"int64", "uint64", "float"}:
        return "float"
    raise InvalidValueError(
        f"{shown(values)} mixes values of type {', '.join(sorted(leaves))}"
    )


def _integers(values: Sequence[Any]) -> str:
    lowest, highest = int(min(values)), int(max(values))
    if lowest in _INT64 and highest in _INT64:
        return "int64"
    if lowest >= 0 and highest < 1 << 64:
        return "uint64"
    raise InvalidValueError(
        f"{shown(highest if lowest >= 0 else lowest)} does not fit into 64 bits"
    )


def _datetimes(values: Iterable[dt.datetime]) -> str:
    zones = {value.tzinfo is not None for value in values}
    if len(zones) > 1:
        raise InvalidValueError("the list mixes times with and without a time zone")
    return "instant" if zones == {True} else "datetime"
