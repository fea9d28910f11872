"""Casts Arrow numbers, times and bytes to a declared dtype.

from                      to
bool                      bool, integers
integers                  integers and bool in range, floats if exact
floats                    floats, rounded to the nearest
decimals                  integers if whole, floats rounded, string
date, time, timestamp,    int64 in the declared unit, if exact; timestamps with a
duration                  zone count from 1970-01-01 UTC
string, binary            string (valid UTF-8), bytes
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.declared import DeclaredFeature
from recordmill.schemas.errors import SchemaError
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.cast.text_values import (
    ARROW_TYPES,
    CastColumn,
    cast_floats,
    inexact_reason,
    parse_times,
    parse_values,
    rescale,
    shorten,
    swap_points,
    valid_mask,
    with_nulls,
)
from recordmill.transforms.encode.columns import (
    BOOL,
    BYTES,
    FLOAT,
    INTEGER,
    TIME,
    family_of,
    is_text,
    nest_values,
    unwrap_array,
)
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    bound_errors,
    error_mask,
    flag_invalid,
    integer_errors,
    integer_range_reason,
    integers_as_floats,
    merge_errors,
    utf8_errors,
)


def cast_typed(array: pa.Array, dtype: str, unit: str | None) -> CastColumn:
    """Casts single values of any type, without parsing text.

    Raises:
      SchemaError: values of the array's type cannot become values of the dtype.
    """
    family = family_of(array.type)
    to_integer = dtype.startswith(("int", "uint"))
    if family == BYTES and dtype in ("string", "bytes"):
        binary = array.cast(pa.binary())
        return _cast_valid(binary, dtype, lambda: utf8_errors(binary))
    if family in (INTEGER, BOOL) and (to_integer or dtype == "bool"):
        return _cast_integers(array, dtype)
    if family == INTEGER and dtype.startswith("float"):
        floats, errors = integers_as_floats(_numbers(array), dtype)
        missing = ~valid_mask(array) | error_mask(errors, len(array))
        return CastColumn(pa.array(floats, mask=missing), errors)
    if family == FLOAT and dtype.startswith("float"):
        return cast_floats(array, dtype)
    if family == TIME and dtype == "int64":
        return _cast_times(array, unit)
    if pt.is_decimal(array.type) and dtype not in ("bool", "bytes"):
        return _cast_decimals(array, dtype)
    raise SchemaError(f"{array.type} cannot become {dtype}{_cast_hint(array, dtype)}")


def _cast_hint(array: pa.Array, dtype: str) -> str:
    family = family_of(array.type)
    if family == TIME:
        return ": declare dtype int64 and a unit"
    if family == FLOAT and dtype.startswith(("int", "uint")):
        return ": 1.0 is not an integer; declare a float dtype"
    if family == BYTES:
        return ": binary values contain a list; declare a shape"
    if family is None and not pt.is_decimal(array.type):
        return ": leave the column out, or split its parts into separate columns"
    return ""


def _cast_valid(
    array: pa.Array, dtype: str, find_errors: Callable[[], RowErrors]
) -> CastColumn:
    """Casts all values by Arrow; if that fails, only the values without an error."""
    try:
        return CastColumn(array.cast(ARROW_TYPES[dtype]), {})
    except pa.ArrowInvalid:
        errors = find_errors()
    valid = with_nulls(array, error_mask(errors, len(array)))
    return CastColumn(valid.cast(ARROW_TYPES[dtype]), errors)


def _cast_integers(array: pa.Array, dtype: str) -> CastColumn:
    if dtype != "bool":
        return _cast_valid(array, dtype, lambda: integer_errors(_numbers(array), dtype))
    if pt.is_boolean(array.type):
        return CastColumn(array, {})
    values = _numbers(array)
    wrong = (values != 0) & (values != 1)
    errors = flag_invalid(wrong, lambda i: f"{values[i]} is not a valid bool (1 or 0)")
    return CastColumn(with_nulls(array, wrong).cast(pa.bool_()), errors)


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Returns the values as a NumPy array; 0 for a missing value."""
    return np.asarray(array.fill_null(0).to_numpy(zero_copy_only=False))


def _cast_decimals(array: pa.Array, dtype: str) -> CastColumn:
    text = array.cast(pa.string())
    if dtype == "string":
        return CastColumn(text, {})
    if dtype.startswith("float"):
        # Via text, which is rounded to the nearest; Arrow's cast is not.
        return cast_floats(text.cast(pa.float64()), dtype)
    limits = np.iinfo(dtype)

    def reason(number: Decimal | None) -> str:
        if number is None:
            return ""
        if number != number.to_integral_value():
            return f"{number} is not a valid {dtype}"
        inside = limits.min <= number <= limits.max
        return "" if inside else integer_range_reason(f"{number:f}", dtype)

    # Row by row, only for a batch with an invalid value.
    return _cast_valid(
        array,
        dtype,
        lambda: {row: why for row, v in enumerate(array) if (why := reason(v.as_py()))},
    )


def _cast_times(array: pa.Array, target_unit: str | None) -> CastColumn:
    kind = array.type
    if target_unit is None:
        raise SchemaError(
            f"{kind} becomes int64 only with a declared unit: set unit to d, s, ms, us "
            "or ns"
        )
    unit = "d" if pt.is_date32(kind) else "ms" if pt.is_date64(kind) else kind.unit
    if pt.is_time(kind) and target_unit == "d":
        raise SchemaError(
            f"{kind} is a time of day, which cannot be stored in days; use unit: s"
        )
    bits = pa.int32() if kind.bit_width == 32 else pa.int64()
    valid = valid_mask(array)
    raw = array.view(bits).cast(pa.int64()).fill_null(0).to_numpy()
    counts, exact, inside = rescale(raw, unit, target_unit)
    is_invalid: Mask = ~(exact & inside)

    def reason(row: int) -> str:
        text, naive = f"{raw[row]} {unit}", array.slice(row, 1)
        if pt.is_timestamp(kind):
            naive = naive.cast(pa.timestamp(unit))
        if not pt.is_duration(kind):
            text = shorten(naive.cast(pa.string())[0].as_py())
        return inexact_reason(text, target_unit, is_exact=bool(exact[row]))

    errors = flag_invalid(valid & is_invalid, reason)
    return CastColumn(pa.array(counts, mask=is_invalid | ~valid), errors)


#     hex      two digits 0-9 a-f A-F for each byte
#     base64   A-Z a-z 0-9 + / (RFC 4648, section 4), four digits for three bytes; the
#              padding = at the end may be left out completely
#     array    row-major little-endian values

_EXPECTED = {
    "hex": "hex (two digits per byte, 0-9 and a-f)",
    "base64": "base64 (four digits A-Z a-z 0-9 + / for three bytes, = at the end)",
}


def _unbase64(text: str) -> bytes:
    padding = "" if text.endswith("=") else "=" * (-len(text) % 4)
    return binascii.a2b_base64(text + padding, strict_mode=True)


def _decode(cells: pa.StringArray, form: str) -> CastColumn:
    decode = binascii.unhexlify if form == "hex" else _unbase64
    errors: RowErrors = {}
    values: list[bytes | None] = []
    # A loop over the cells: 0.7 us for a cell of 12 bytes. Decoding the whole column
    # together took 0.2 us, but as long as this for cells of 60 kB, such as images.
    for row, text in enumerate(pc.ascii_trim_whitespace(cells).to_pylist()):
        decoded_bytes = None
        try:
            decoded_bytes = None if text is None else decode(text)
        except ValueError:  # base class of binascii.Error
            errors[row] = f"{shorten(text)} is not valid {_EXPECTED[form]}"
        values.append(decoded_bytes)
    return CastColumn(pa.array(values, pa.binary()), errors)


def array_lists(column: pa.BinaryArray, dtype: str) -> CastColumn:
    """Converts bytes of arrays to lists of their values; booleans are bytes 0 and 1."""
    read_as = np.dtype("uint8" if dtype == "bool" else dtype).newbyteorder("<")
    valid = valid_mask(column)
    column = column.fill_null(b"")
    size = read_as.itemsize
    lengths = np.diff(array_parts(column)[0])
    wrong = lengths % size != 0
    errors = flag_invalid(
        wrong,
        lambda i: (
            f"{lengths[i]} bytes are not a whole number of {dtype} values ({size} bytes each)"
        ),
    )
    column = with_nulls(column, wrong).fill_null(b"")
    offsets, data = array_parts(column)
    offsets, data = offsets - offsets[0], data[offsets[0] : offsets[-1]]
    # A slice may begin anywhere; Arrow requires aligned values.
    values = np.require(data.view(read_as), requirements="A")
    leaf = pa.array(values, ARROW_TYPES[read_as.name])
    return CastColumn(nest_values(leaf, [offsets // size], valid), errors)


# Labels are compared exactly: white space is not trimmed, and "3" is a label only if a
# class has this name. An integer column has class indices.

_NAMES_SHOWN = 10
_COMPARISONS = 20_000  # of labels with class names in one batch; each takes 10 us
_LONGEST_LABEL = 64  # a longer label is not a typing error, and slow to compare


def _label_indices(
    labels: pa.StringArray, classes: Sequence[str], dtype: str
) -> CastColumn:
    names = pa.array(classes, pa.string())
    indices = pc.index_in(labels, value_set=names)
    unknown = valid_mask(labels) & ~valid_mask(indices)
    budget = _COMPARISONS

    @cache
    def reason(label: str) -> str:
        nonlocal budget
        near: list[str] = []
        if len(label) <= _LONGEST_LABEL and budget >= len(classes):
            budget -= len(classes)
            near = get_close_matches(label, classes, 1, cutoff=0.6)
        names = ", ".join(map(shorten, classes[:_NAMES_SHOWN]))
        if more := len(classes[_NAMES_SHOWN:]):
            names += f" and {more} more"
        hint = f"did you mean {near[0]!r}?" if near else f"the names are {names}"
        return f"{shorten(label)} is not a class name; {hint}"

    errors = flag_invalid(unknown, lambda i: reason(labels[i].as_py()))
    return CastColumn(indices.cast(ARROW_TYPES[dtype]), errors)


NO_LABEL = -1  # the index of a row without a label, as in test sets


def index_errors(
    indices: npt.NDArray[Any], classes: Sequence[str], lowest: int = 0
) -> RowErrors:
    """Returns errors for indices without a class; `lowest` NO_LABEL allows -1."""
    wrong = (indices < lowest) | (indices >= len(classes))
    return flag_invalid(wrong, lambda i: class_index_reason(indices[i], classes))


def class_index_reason(index: int | np.integer, classes: Sequence[str]) -> str:
    """Returns the reason for an index without a class."""
    return f"{index} is not a class index (0 to {len(classes) - 1})"


def cast_values(array: pa.Array, feature: DeclaredFeature) -> CastColumn:
    """Casts single values to the feature's dtype, within its bounds and classes.

    Raises:
      SchemaError: values of the array's type cannot become values of the dtype.
    """
    array = unwrap_array(array)
    if pt.is_null(array.type):
        return CastColumn(pa.nulls(len(array), ARROW_TYPES[feature.dtype]), {})
    cast_result = _cast(array, feature)
    if feature.min is None and feature.max is None:
        return cast_result
    numbers = cast_result.array
    if pt.is_boolean(numbers.type):
        numbers = numbers.cast(pa.uint8())
    outside = bound_errors(
        _numbers(numbers), feature.min, feature.max, valid_mask(numbers)
    )
    inside = with_nulls(cast_result.array, error_mask(outside, len(array)))
    return CastColumn(inside, merge_errors(cast_result.errors, outside))


def _cast(array: pa.Array, feature: DeclaredFeature) -> CastColumn:
    dtype = feature.dtype
    if feature.classes and len(feature.classes) - 1 > np.iinfo(dtype).max:
        raise SchemaError(
            f"{len(feature.classes)} classes are too many for {dtype}: declare int64"
        )
    written = feature.cell in _EXPECTED or feature.classes
    if is_text(array.type) or (written and family_of(array.type) == BYTES):
        cells, errors = cast_typed(array, "string", None)
        return _parse(cells, feature).with_earlier_errors(errors)
    cast_result = cast_typed(array, dtype, feature.unit)
    if feature.classes:
        lowest = NO_LABEL if feature.min == NO_LABEL else 0
        errors = index_errors(_numbers(cast_result.array), feature.classes, lowest)
        indices = with_nulls(cast_result.array, error_mask(errors, len(array)))
        return CastColumn(indices, merge_errors(cast_result.errors, errors))
    return cast_result


def _parse(cells: pa.StringArray, feature: DeclaredFeature) -> CastColumn:
    if feature.cell in _EXPECTED:
        return _decode(cells, feature.cell)
    if feature.classes:
        return _label_indices(cells, feature.classes, feature.dtype)
    if feature.dtype in ("string", "bytes"):
        return cast_typed(cells, feature.dtype, None)
    if feature.unit:
        return parse_times(cells, feature.unit)
    if feature.decimal == "comma":
        cells = swap_points(cells)
    return parse_values(cells, feature.dtype)
