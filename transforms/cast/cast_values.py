"""Values of one declared feature, one or many a row, from whatever the column holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.declared import DeclaredFeature
from recordmill.transforms.cast.cast_result import (
    ARROW_TYPES,
    CastResult,
    RowErrors,
    mask_of,
    merge,
    present,
    refuse,
    without,
)
from recordmill.transforms.cast.cell_bytes import decode_base64, decode_hex
from recordmill.transforms.cast.class_labels import check_indices, label_indices
from recordmill.transforms.cast.text_times import parse_times
from recordmill.transforms.cast.text_values import (
    parse_booleans,
    parse_floats,
    parse_integers,
)
from recordmill.transforms.cast.typed_values import convert_typed
from recordmill.transforms.encode.arrow_types import BYTES, family_of, plain


def is_text(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's strings."""
    return bool(
        pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    )


def convert_values(array: pa.Array, feature: DeclaredFeature) -> CastResult:
    """Values (not lists) as the feature's dtype, within its bounds and classes.

    Raises:
      SchemaError: no value of the array's type can become one of the dtype.
    """
    array = plain(array)
    if pt.is_null(array.type):
        return CastResult(pa.nulls(len(array), ARROW_TYPES[feature.dtype]), {})
    made = _convert(array, feature)
    outside = _out_of_bounds(made.array, feature)
    if not outside:
        return made
    inside = without(made.array, mask_of(outside, len(array)))
    return CastResult(inside, merge(made.refused, outside))


def _convert(array: pa.Array, feature: DeclaredFeature) -> CastResult:
    dtype = feature.dtype
    if feature.classes and len(feature.classes) - 1 > np.iinfo(dtype).max:
        raise SchemaError(
            f"{len(feature.classes)} classes are too many for {dtype}: declare int64"
        )
    written = feature.cell in ("hex", "base64") or feature.classes
    if is_text(array.type) or (written and family_of(array.type) == BYTES):
        cells, refused = convert_typed(array, "string", None)
        made = _parse(cells, feature)
        return CastResult(made.array, merge(refused, made.refused))
    made = convert_typed(array, dtype, feature.unit)
    if feature.classes:
        checked = check_indices(made.array, feature.classes)
        return CastResult(checked.array, merge(made.refused, checked.refused))
    return made


def _parse(cells: pa.StringArray, feature: DeclaredFeature) -> CastResult:
    if feature.cell == "hex":
        return decode_hex(cells)
    if feature.cell == "base64":
        return decode_base64(cells)
    if feature.classes:
        return label_indices(cells, feature.classes, feature.dtype)
    if feature.dtype in ("string", "bytes"):
        return convert_typed(cells, feature.dtype, None)
    if feature.unit:
        return parse_times(cells, feature.unit)
    if feature.dtype == "bool":
        return parse_booleans(cells)
    if feature.dtype.startswith("float"):
        return parse_floats(cells, feature.dtype)
    return parse_integers(cells, feature.dtype)


def _out_of_bounds(array: pa.Array, feature: DeclaredFeature) -> RowErrors:
    """The values that are not within min and max; NaN is within no bounds."""
    if feature.min is None and feature.max is None:
        return {}
    if pt.is_boolean(array.type):
        array = array.cast(pa.uint8())
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    wrong = np.zeros(len(values), np.bool_)
    if feature.min is not None:
        wrong |= ~(values >= bound_of(feature.min, values.dtype, math.ceil))
    if feature.max is not None:
        wrong |= ~(values <= bound_of(feature.max, values.dtype, math.floor))
    bounds = ", ".join(
        f"{name} {bound}"
        for name, bound in (("min", feature.min), ("max", feature.max))
        if bound is not None
    )
    return refuse(
        wrong & present(array), lambda i: f"{values[i]} is out of range ({bounds})"
    )


def bound_of(
    bound: float, dtype: np.dtype[Any], to_whole: Callable[[int | float], int]
) -> Any:
    """A bound as values of this dtype are compared with it."""
    if dtype.kind != "f":
        return to_whole(bound)
    try:
        wide = np.float64(bound)
    except OverflowError:
        raise SchemaError(f"bound {bound} is beyond float64") from None
    with np.errstate(over="ignore"):
        narrow = dtype.type(wide)
    # 0.1 is the float32 next to it, as the values are; a bound beyond is kept.
    return narrow if np.isfinite(narrow) else wide
