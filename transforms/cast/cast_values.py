"""Casts values of any Arrow type, in lists or not, to one declared feature."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from recordmill.schemas.declared import DeclaredFeature
from recordmill.schemas.errors import SchemaError
from recordmill.transforms.cast.cast_result import (
    ARROW_TYPES,
    CastResult,
    present,
    without,
)
from recordmill.transforms.cast.cell_bytes import decode_base64, decode_hex
from recordmill.transforms.cast.class_labels import check_indices, label_indices
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.cast.text_times import parse_times
from recordmill.transforms.cast.text_values import (
    parse_booleans,
    parse_floats,
    parse_integers,
)
from recordmill.transforms.cast.typed_values import cast_typed
from recordmill.transforms.encode.arrow_types import BYTES, family_of, plain
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    mask_of,
    merge,
)
from recordmill.transforms.encode.value_limits import bound_errors


def is_text(kind: pa.DataType) -> bool:
    """Returns whether the type is one of Arrow's strings."""
    return bool(
        pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind)
    )


def cast_values(array: pa.Array, feature: DeclaredFeature) -> CastResult:
    """Casts values (not lists) to the feature's dtype, within its bounds and classes.

    Raises:
      SchemaError: no value of the array's type can become one of the dtype.
    """
    array = plain(array)
    if pt.is_null(array.type):
        return CastResult(pa.nulls(len(array), ARROW_TYPES[feature.dtype]), {})
    made = _cast(array, feature)
    outside = _out_of_bounds(made.array, feature)
    if not outside:
        return made
    inside = without(made.array, mask_of(outside, len(array)))
    return CastResult(inside, merge(made.errors, outside))


def _cast(array: pa.Array, feature: DeclaredFeature) -> CastResult:
    dtype = feature.dtype
    if feature.classes and len(feature.classes) - 1 > np.iinfo(dtype).max:
        raise SchemaError(
            f"{len(feature.classes)} classes are too many for {dtype}: declare int64"
        )
    written = feature.cell in ("hex", "base64") or feature.classes
    if is_text(array.type) or (written and family_of(array.type) == BYTES):
        cells, errors = cast_typed(array, "string", None)
        made = _parse(cells, feature)
        return CastResult(made.array, merge(errors, made.errors))
    made = cast_typed(array, dtype, feature.unit)
    if feature.classes:
        checked = check_indices(made.array, feature.classes)
        return CastResult(checked.array, merge(made.errors, checked.errors))
    return made


def _parse(cells: pa.StringArray, feature: DeclaredFeature) -> CastResult:
    if feature.cell == "hex":
        return decode_hex(cells)
    if feature.cell == "base64":
        return decode_base64(cells)
    if feature.classes:
        return label_indices(cells, feature.classes, feature.dtype)
    if feature.dtype in ("string", "bytes"):
        return cast_typed(cells, feature.dtype, None)
    if feature.unit:
        return parse_times(cells, feature.unit)
    if feature.decimal == "comma":
        cells = swap_points(cells)
    if feature.dtype == "bool":
        return parse_booleans(cells)
    if feature.dtype.startswith("float"):
        return parse_floats(cells, feature.dtype)
    return parse_integers(cells, feature.dtype)


def _out_of_bounds(array: pa.Array, feature: DeclaredFeature) -> RowErrors:
    if feature.min is None and feature.max is None:
        return {}
    if pt.is_boolean(array.type):
        array = array.cast(pa.uint8())
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    return bound_errors(values, feature.min, feature.max, present(array))
