"""Opens the columns of features: checks lists and innermost values, and converts them.

column  [[[1, 2], [3, 4]], [[5, 6]]]
levels  [0, 2, 3]      row i has the lists levels[0][i] to levels[0][i + 1]
        [0, 2, 4, 6]   list j has the values levels[1][j] to levels[1][j + 1]
values  1 2 3 4 5 6

In all of encode/, a column type that cannot become the feature raises a SchemaError. Rows
with values that cannot raise a RowsError with a reason for each row.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    Shape,
    format_shape,
)
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, offsets_of, require_fit
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    errors_by_row,
    flag_invalid,
    integer_errors,
    integers_as_floats,
    merge_errors,
    narrow_floats,
    prefix_errors,
    raise_errors,
    rows_of,
    utf8_errors,
)

#     integers of every width, bool, date, time, timestamp, duration  -> int64_list
#     float16, float32, float64                                       -> float_list
#     string, binary: plain, large, view, of fixed size               -> bytes_list
#     tensors and arrays take the numbers, or the bytes, of their dtype
#     list, large list, fixed-size list, list view                    -> a shape
#     dictionary, run-end encoded, extension                          -> the inner type
#     null                                                            -> any feature
#
# Dates and times are the integers that Arrow stores, in the column's own unit. Decimals,
# structs, maps, unions and intervals cannot be features without a conversion.

INTEGER, BOOL, TIME, FLOAT, BYTES, NULL = range(6)

_FAMILIES = {
    INTEGER: "INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64",
    BOOL: "BOOL",
    TIME: "DATE32 DATE64 TIME32 TIME64 TIMESTAMP DURATION",
    FLOAT: "HALF_FLOAT FLOAT DOUBLE",
    BYTES: "STRING LARGE_STRING STRING_VIEW BINARY LARGE_BINARY BINARY_VIEW "
    "FIXED_SIZE_BINARY",
    NULL: "NA",
}
_STORED_AS = {FLOAT: Kind.FLOAT, BYTES: Kind.BYTES}  # all others as integers


def _ids(names: str) -> set[int]:
    """Returns the ids of the Arrow types with these names."""
    return {getattr(pa.lib, f"Type_{name}") for name in names.split()}


_FAMILY = {
    type_id: family for family, names in _FAMILIES.items() for type_id in _ids(names)
}
_LISTS = _ids("LIST LARGE_LIST FIXED_SIZE_LIST LIST_VIEW LARGE_LIST_VIEW")
_TEXTS = _ids("STRING LARGE_STRING STRING_VIEW")


def check_types(arrow_schema: pa.Schema, schema: Schema) -> None:
    """Checks that every column can become its feature; the error lists all others."""
    problems = []
    for feature in schema.features:
        try:
            require_column(arrow_schema, feature.name, feature.column)
            _require_type(arrow_schema.field(feature.column).type, feature)
        except SchemaError as error:
            problems.append(str(error))
    if problems:
        raise SchemaError("\n  ".join(problems))


def require_column(arrow_schema: pa.Schema, feature_name: str, column: str) -> None:
    """Checks that a feature's column exists exactly once."""
    names = arrow_schema.names
    if names.count(column) == 1:
        return
    if column in names:
        raise SchemaError(f"feature {feature_name!r}: two columns {column!r}")
    near = get_close_matches(column, names, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise SchemaError(
        f"feature {feature_name!r}: no column {column!r} among {', '.join(names)}{hint}"
    )


def _require_type(
    arrow_type: pa.DataType, feature: FeatureSpec, array: pa.Array | None = None
) -> None:
    """Checks that a type can become a feature; the error has a value of the array."""
    leaf, shape = inside_lists(arrow_type)
    depth = len(shape)
    family = family_of(leaf)
    fewest, most = list_depths(feature, of_bytes=family == BYTES)
    if family == NULL:
        fewest = 0
    elif family not in _accepted_families(feature, depth):
        example = "" if array is None else _example_text(array)
        raise SchemaError(
            f"feature {feature.name!r}: {_storage_text(feature)} cannot hold column "
            f"{feature.column!r} of type {leaf}{example}: {_type_advice(leaf)}"
        )
    if not fewest <= depth <= most:
        needed = f"{fewest} to {most}" if most > fewest else str(most)
        steps = ", a list of steps included" if feature.is_sequence else ""
        raise SchemaError(
            f"feature {feature.name!r}: column {feature.column!r} of type {arrow_type} "
            f"has list depth {depth}, but shape {format_shape(feature.shape)} requires "
            f"{needed}{steps}: declare the shape that the column has"
        )


def list_depths(feature: FeatureSpec, *, of_bytes: bool) -> tuple[int, int]:
    """Returns the minimum and maximum number of nested lists in a feature's column.

    The innermost list may contain several dimensions row by row (row-major), if at most
    one of them is unknown.
    """
    steps = 1 if feature.is_sequence else 0
    whole = feature.content is Content.ARRAY and of_bytes  # the array's bytes
    if feature.content is Content.IMAGE or whole or not feature.shape:
        return steps, steps
    unknown = [i for i, size in enumerate(feature.shape) if size is None]
    fewest = 1
    if feature.is_ragged:
        fewest = unknown[-1] + 1
    elif len(unknown) > 1:
        fewest = unknown[-2] + 2
    return steps + fewest, steps + len(feature.shape)


def plain_type(arrow_type: pa.DataType) -> pa.DataType:
    """Returns the type behind extension types, dictionaries and run-end encoding."""
    while True:
        if isinstance(arrow_type, pa.BaseExtensionType):
            arrow_type = arrow_type.storage_type
        elif arrow_type.id in (pa.lib.Type_DICTIONARY, pa.lib.Type_RUN_END_ENCODED):
            arrow_type = arrow_type.value_type
        else:
            return arrow_type


def unwrap_array(array: pa.Array) -> pa.Array:
    """Returns the array behind an extension type, a dictionary or run-end encoding.

    Views of text and bytes become arrays with offsets, because most functions of Arrow
    do not support views.
    """
    while True:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif array.type.id == pa.lib.Type_DICTIONARY:
            array = array.dictionary_decode()
        elif array.type.id == pa.lib.Type_RUN_END_ENCODED:
            array = pc.run_end_decode(array)
        elif array.type.id == pa.lib.Type_STRING_VIEW:
            array = array.cast(pa.large_string())
        elif array.type.id == pa.lib.Type_BINARY_VIEW:
            array = array.cast(pa.large_binary())
        else:
            return array


def is_list(arrow_type: pa.DataType) -> bool:
    """Checks whether a type is one of Arrow's list types."""
    return arrow_type.id in _LISTS


def is_text(arrow_type: pa.DataType) -> bool:
    """Checks whether a type is one of Arrow's string types."""
    return arrow_type.id in _TEXTS


def family_of(arrow_type: pa.DataType) -> int | None:
    """Returns INTEGER, BOOL, TIME, FLOAT, BYTES or NULL; None for any other type."""
    return _FAMILY.get(arrow_type.id)


def inside_lists(arrow_type: pa.DataType) -> tuple[pa.DataType, Shape]:
    """Returns the innermost type of nested lists, and the fixed list length per level.

    >>> inside_lists(pa.list_(pa.list_(pa.int8(), 3)))
    (DataType(int8), (None, 3))
    """
    shape: Shape = ()
    leaf = plain_type(arrow_type)
    while is_list(leaf):
        size = leaf.list_size if pt.is_fixed_size_list(leaf) else None
        shape, leaf = (*shape, size), plain_type(leaf.value_type)
    return leaf, shape


def lists_of(leaf: pa.DataType, shape: Shape) -> pa.DataType:
    """Returns the type of nested lists: the inverse of `inside_lists`."""
    for side in reversed(shape):
        leaf = pa.list_(leaf, -1 if side is None else side)
    return leaf


def _accepted_families(feature: FeatureSpec, depth: int) -> set[int]:
    """Returns the families of types that the feature's values may have."""
    if feature.content in (Content.TENSOR, Content.ARRAY):
        accepted = _accepted_by_dtype(feature.dtype)
        if feature.content is Content.ARRAY and depth == int(feature.is_sequence):
            accepted = accepted | {BYTES}
        return accepted
    if feature.kind is Kind.BYTES:
        return {BYTES}
    if feature.kind is Kind.FLOAT:
        # Integers only if they are declared: beyond 2**24, float32 has gaps.
        by_dtype = _accepted_by_dtype(feature.dtype)
        return by_dtype | {BOOL} if INTEGER in by_dtype else by_dtype
    return {INTEGER, BOOL, TIME}


def _accepted_by_dtype(dtype: str) -> set[int]:
    if dtype in ("string", "bytes"):
        return {BYTES}
    if dtype == "bool":
        return {BOOL}
    return {FLOAT} if dtype.startswith("float") else {INTEGER, TIME}


def _storage_text(feature: FeatureSpec) -> str:
    if feature.content in (Content.TENSOR, Content.ARRAY):
        return f"{feature.content} of {feature.dtype}"
    return str(feature.kind)


def _type_advice(leaf: pa.DataType) -> str:
    if pt.is_decimal(leaf):
        return "declare its dtype, a float, an integer or string"
    family = _FAMILY.get(leaf.id)
    if family is None:
        return "leave it out, or split its parts into separate columns"
    stored = _STORED_AS.get(family, Kind.INT64)
    return f"declare a dtype that fits, {stored} can hold the column"


NULL_IN_LIST = "a list contains an empty or null value"


def flatten_lists(
    array: pa.Array, fewest: int = 0, most: int | None = None
) -> tuple[list[I64], pa.Array, RowErrors]:
    """Takes the lists of a column apart.

    A null row counts as an empty list.

    Args:
      array: the column.
      fewest: number of levels for empty lists of type null.
      most: maximum number of levels to take apart; None for all.

    Returns:
      The offsets of each level (lists + 1), the outermost first; the innermost values;
        and errors of the rows with a null instead of an inner list.
    """
    levels: list[I64] = []
    errors: RowErrors = {}
    starts = np.arange(len(array) + 1)  # start of each row's elements of the level
    while most is None or len(levels) < most:
        if pt.is_null(array.type) and 0 < len(levels) < fewest:
            array = array.cast(pa.list_(pa.null()))
        if not is_list(array.type):
            break
        if levels:
            errors = merge_errors(errors, errors_by_row(null_errors(array), starts))
        levels.append(offsets_of(list_lengths(array)))
        starts = levels[-1][starts]
        array = unwrap_array(array.flatten())
    return levels, array, errors


def nest_values(
    leaf: pa.Array, levels: Sequence[I64], present: Mask | None = None
) -> pa.Array:
    """Wraps values in lists: the inverse of `flatten_lists`; the outermost level is first.

    Outermost lists that are not `present` are null.
    """
    for level, offsets in reversed(list(enumerate(levels))):
        mask = None
        if level == 0 and present is not None and not present.all():
            mask = pa.array(~present)
        starts = pa.array(offsets).cast(pa.int32())
        leaf = pa.ListArray.from_arrays(starts, leaf, mask=mask)
    return leaf


def null_errors(values: pa.Array) -> RowErrors:
    """Returns errors for nulls among the values of lists."""
    if not values.null_count:
        return {}
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return flag_invalid(missing, lambda _: NULL_IN_LIST)


def list_lengths(lists: pa.Array) -> I64:
    """Returns the length of each list; 0 for a null."""
    lengths = pc.list_value_length(lists)
    if lists.null_count:
        lengths = lengths.fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def row_starts(levels: Sequence[I64]) -> I64:
    """Returns the start of the innermost values of each row (rows + 1)."""
    starts = levels[0]
    for offsets in levels[1:]:
        starts = offsets[starts]
    return starts


@dataclass(slots=True)
class NestedColumn:
    """A column of a feature, taken apart and checked for its type, shape and nulls."""

    feature: FeatureSpec
    num_rows: int  # rows of the column
    # the innermost values of all rows, concatenated. Without nulls if there are lists;
    # otherwise one value for each row, null if the row has none.
    leaf: pa.Array
    # the offsets of each level of lists (lists + 1), the outermost first. Null rows have
    # an empty list.
    levels: list[I64]
    # start of each row's values in `leaf` (rows + 1); None without lists
    starts: I64 | None
    valid: Mask | None  # mask of the rows with a value; None if all have one

    def reject(self, errors: RowErrors) -> None:
        """Raises the errors of innermost values as errors of their rows."""
        if self.starts is not None:
            errors = errors_by_row(errors, self.starts)
        raise_errors(prefix_errors(self.feature.name, errors))


def open_column(
    array: pa.Array, feature: FeatureSpec, *, steps: bool = False
) -> NestedColumn:
    """Takes a column apart, and checks its shape.

    With `steps`, only the outer lists of a feature list are taken apart: the leaf
    contains its steps.
    """
    _require_type(array.type, feature, array)
    array = unwrap_array(array)
    if steps and not is_list(array.type):  # only nulls
        array = array.cast(pa.list_(pa.null()))
    fewest = 0 if steps else list_depths(feature, of_bytes=False)[0]
    levels, leaf, errors = flatten_lists(array, fewest, 1 if steps else None)
    starts = None
    if levels:
        starts = row_starts(levels)
        errors = merge_errors(errors, errors_by_row(null_errors(leaf), starts))
        raise_errors(prefix_errors(feature.name, errors))
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(False)
    if not steps:
        errors = shape_errors(levels, valid, feature.shape, ragged=feature.is_ragged)
        raise_errors(prefix_errors(feature.name, errors))
    return NestedColumn(feature, len(array), leaf, levels, starts, valid)


def _example_text(array: pa.Array) -> str:
    """Returns text with the first innermost value, shortened if long; "" if none."""
    levels, leaf, _ = flatten_lists(unwrap_array(array))
    if leaf.null_count == len(leaf):
        return ""
    row = first = int(pc.index(leaf.is_valid(), True).as_py())
    if levels:
        (row,) = rows_of(np.array([first]), row_starts(levels))
    return f", for example {reprlib.repr(leaf[first].as_py())} in row {row}"


# A column with d nested lists has a list level for each of the first d - 1 dimensions;
# its innermost lists contain all further dimensions row by row (row-major; numpy, "Array
# objects"). Rows of shape [null, 2] may be
#
#     [[1, 2], [3, 4]]   levels [0, 2] [0, 2, 4]   2 lists; each has the expected length 2
#     [1, 2, 3, 4]       levels [0, 4]             4 values, a multiple of 2
#     [1, 2, 3]          levels [0, 3]             3 values, expected a multiple of 2

_NO_LIST_IS_LONGER = 1 << 32  # Arrow counts a column's values in 32 bits


def shape_errors(
    levels: Sequence[I64], valid: Mask | None, shape: Shape, *, ragged: bool
) -> RowErrors:
    """Returns errors for the rows whose lists (see `flatten_lists`) do not fit the shape.

    Ragged lists of one row may differ in length in unknown dimensions. Otherwise a row is
    one array, so its lists have equal lengths.
    """
    errors: RowErrors = {}
    starts = np.arange(len(levels[0]) if levels else 0)  # of each row's lists
    for level, offsets in enumerate(levels):
        counts = np.diff(offsets)
        first = None
        if level and not ragged:
            first = counts[np.repeat(starts[:-1], np.diff(starts))]
        checked = valid if level == 0 else None
        wrong = _wrong_lists(counts, shape, level, len(levels), checked, first)
        errors = merge_errors(errors, errors_by_row(wrong, starts))
        starts = offsets[starts]
    return errors


def _wrong_lists(
    counts: I64,
    shape: Shape,
    level: int,
    num_levels: int,
    valid: Mask | None,
    first: I64 | None,
) -> RowErrors:
    """Returns errors for the lists of a level (0 is the outermost) with a wrong length.

    `first` has, for each list, the length of the first list of its row, if these must be
    equal.
    """
    dims = dims_in(shape, level, num_levels)

    def reason(index: int, expected: object) -> str:
        actual = format_count(int(counts[index]), "value")
        if len(dims) == 1:
            actual = f"length {counts[index]} in dimension {level}"
        return f"{actual}, expected {expected} (shape {format_shape(shape)})"

    size = known_size(dims)
    expected = f"a multiple of {size}" if None in dims else str(size)
    wrong = wrong_counts(counts, dims)
    if valid is not None:
        wrong &= valid
    errors = flag_invalid(wrong, lambda index: reason(index, expected))
    if first is None or None not in dims:
        return errors
    uneven = flag_invalid(counts != first, lambda index: reason(index, first[index]))
    return merge_errors(errors, uneven)


def wrong_counts(counts: I64, dims: Shape, item_size: int = 1) -> Mask:
    """Returns a mask of the counts of values that do not fill the dimensions.

    An unknown dimension may have any length; `item_size` is the count of one value.
    """
    size = item_size * known_size(dims)
    if None in dims and size == 1:
        return np.zeros(len(counts), np.bool_)
    if None in dims and size:
        counts, size = counts % size, 0
    return np.not_equal(counts, size)


def known_size(dims: Shape) -> int:
    """Returns the product of the known dimensions, at most _NO_LIST_IS_LONGER."""
    return min(math.prod(size for size in dims if size is not None), _NO_LIST_IS_LONGER)


def dims_in(shape: Shape, level: int, num_levels: int) -> Shape:
    """Returns the dimensions that the lists of a level contain.

    >>> dims_in((None, 4, 3), 1, 2)
    (4, 3)
    """
    return shape[level:] if level == num_levels - 1 else shape[level : level + 1]


def dims_of(nested: NestedColumn) -> I64:
    """Returns the dimensions of each row's value; 0 if an empty list leaves one open."""
    feature, levels = nested.feature, nested.levels
    dims = np.zeros((nested.num_rows, len(feature.shape)), np.int64)
    for dimension, size in enumerate(feature.shape):
        if size is not None:
            dims[:, dimension] = size
    starts = np.arange(nested.num_rows + 1)
    for level, offsets in enumerate(levels):
        inside = dims_in(feature.shape, level, len(levels))
        if None in inside:
            has_lists = starts[1:] > starts[:-1]
            first = starts[:-1][has_lists]
            lengths = offsets[first + 1] - offsets[first]
            inner_size = known_size(inside)
            dims[has_lists, level + inside.index(None)] = (
                lengths // inner_size if inner_size else 0
            )
        starts = offsets[starts]
    return dims


# Conversions are strict: 1.0 is not an int64, text is not a number. If the type is
# allowed but a single value is not (an integer beyond int64, text that is not UTF-8), the
# row is rejected with the feature and the value.

_STORED: dict[Kind, np.dtype[Any]] = {
    Kind.INT64: np.dtype(np.int64),
    Kind.FLOAT: np.dtype(np.float32),
}


@dataclass(slots=True)
class StoredColumn:
    """The values of one key of the feature map, ready to encode."""

    # int64 or float32 array, or for bytes an Arrow binary array without nulls; one
    # value per row, or for lists the concatenated values of all rows
    values: Any
    lists: I64 | None  # for lists, the start of each row's values (rows + 1), else None
    valid: npt.NDArray[np.bool_] | None  # rows with a value; None if all have one


def value_column(nested: NestedColumn) -> StoredColumn:
    """Converts the values to the stored type of the feature's kind of list."""
    values: Any
    if nested.feature.kind is Kind.BYTES:
        values = byte_values(nested)
    else:
        values = numbers(nested, _STORED[nested.feature.kind])
    return StoredColumn(values, nested.starts, nested.valid)


def numbers(nested: NestedColumn, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns the innermost values as numbers of a dtype; 0 for nulls."""
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


def byte_values(nested: NestedColumn) -> pa.BinaryArray:
    """Returns the innermost values as plain binary; empty for nulls."""
    leaf = nested.leaf
    if family_of(leaf.type) == NULL:
        leaf = leaf.cast(pa.binary())
    try:
        plain = leaf.cast(pa.binary())
    except pa.ArrowInvalid:  # for large types, of which only the size can be wrong
        require_fit(pc.sum(pc.binary_length(leaf)).as_py())
        raise
    if plain.null_count:
        plain = plain.fill_null(b"")
    if nested.feature.dtype == "string":
        nested.reject(utf8_errors(plain))
    return plain
