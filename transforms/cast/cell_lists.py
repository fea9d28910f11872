"""Builds lists of a declared shape from separated text, or from Arrow lists of any type.

The lists of a column are taken apart into levels of offsets and one array of values,
so that all values are converted together. Put together again they are

    at most one unknown dimension    one flat list per row, row-major
    more unknown dimensions          lists nested once for every dimension
    sequence                         a list of such steps

Source of the row-major order: numpy, "Array objects".
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from recordmill.schemas.declared import DeclaredFeature
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Shape, format_shape
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import (
    ARROW_TYPES,
    CastColumn,
    shorten,
    trim,
    valid_mask,
)
from recordmill.transforms.cast.typed_values import cast_values, class_index_reason
from recordmill.transforms.encode.columns import (
    NULL_IN_LIST,
    flatten_lists,
    known_size,
    list_lengths,
    lists_of,
    nest_values,
    null_errors,
    row_starts,
    shape_errors,
    wrong_counts,
)
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    errors_by_row,
    flag_invalid,
    float_range_reason,
    integer_range_reason,
    merge_errors,
)


def split_cells(cells: pa.StringArray, separator: str) -> pa.ListArray:
    """Splits cells like 1;2;3 into lists of text, without white space around a value.

    A cell of only white space is missing.
    """
    cells = trim(cells)
    lists = pc.split_pattern(cells, separator)
    starts = offsets_of(np.where(valid_mask(cells), list_lengths(lists), 0))
    values = pc.ascii_trim_whitespace(lists.flatten())
    return nest_values(values, [starts], valid_mask(cells))


def cast_lists(array: pa.Array, feature: DeclaredFeature) -> CastColumn:
    """Converts a column of lists to the feature's values in its shape.

    Raises:
      SchemaError: the column's type cannot become the feature's.
    """
    shape, valid = feature.shape, valid_mask(array)
    levels, values, errors = flatten_lists(array, len(shape) + feature.sequence)
    cast_result = cast_values(values, feature)
    wrong_values = merge_errors(cast_result.errors, null_errors(cast_result.array))
    errors = merge_errors(errors, errors_by_row(wrong_values, row_starts(levels)))
    ragged = shape.count(None) > 1
    if not feature.sequence:
        _require_depth(levels, shape, array.type)
        errors = merge_errors(errors, shape_errors(levels, valid, shape, ragged=ragged))
        return CastColumn(_nest_values(levels, shape, cast_result.array, valid), errors)
    if len(levels) == 1 and shape:
        levels, uneven = _cut_steps(levels[0], shape)
        errors = merge_errors(errors, uneven)
    outer, inner, steps = levels[0], levels[1:], cast_result.array
    if shape:
        _require_depth(inner, shape, array.type)
        wrong_steps = shape_errors(inner, None, shape, ragged=ragged)
        errors = merge_errors(errors, errors_by_row(wrong_steps, outer))
        steps = _nest_values(inner, shape, steps)
    elif inner:
        raise SchemaError(f"{array.type} nests lists, but a step is a single value")
    return CastColumn(nest_values(steps, [outer], valid), errors)


def feature_type(feature: DeclaredFeature) -> pa.DataType:
    """Returns the Arrow type of a feature's column."""
    shape = (None,) * (_list_depth(feature.shape) + feature.sequence)
    return lists_of(ARROW_TYPES[feature.dtype], shape)


def _list_depth(shape: Shape) -> int:
    """Returns the number of nested lists in a column of the shape."""
    return len(shape) if shape.count(None) > 1 else min(1, len(shape))


def _require_depth(levels: Sequence[I64], shape: Shape, kind: pa.DataType) -> None:
    if not shape:
        raise SchemaError(
            f"{kind} contains lists, but the schema declares a single value: set a "
            "shape"
        )
    allowed = {len(shape)} if shape.count(None) > 1 else {1, len(shape)}
    if len(levels) not in allowed:
        raise SchemaError(
            f"{kind} nests {len(levels)} lists, but shape {format_shape(shape)} requires "
            f"{' or '.join(map(str, sorted(allowed)))}"
        )


def _cut_steps(offsets: I64, shape: Shape) -> tuple[list[I64], RowErrors]:
    """Cuts flat lists into steps: with shape [2], [1, 2, 3, 4] is [[1, 2], [3, 4]]."""
    size = known_size(shape)
    if None in shape or not size:
        raise SchemaError(
            f"cannot split flat lists into steps of shape {format_shape(shape)}; use nested "
            "lists, or JSON cells"
        )
    lengths = np.diff(offsets)
    uneven = flag_invalid(
        wrong_counts(lengths, (None, *shape)),
        lambda i: (
            f"{format_count(int(lengths[i]), 'value')}, expected a multiple of {size} "
            f"(steps of {format_shape(shape)})"
        ),
    )
    num_steps = -(-lengths // size)  # the last one of an uneven row is short
    outer = offsets_of(num_steps)
    shift = np.repeat(offsets[:-1] - outer[:-1] * size, num_steps)
    inner = np.append(np.arange(outer[-1]) * size + shift, offsets[-1])
    return [outer, inner], uneven


def _nest_values(
    levels: Sequence[I64], shape: Shape, values: pa.Array, valid: Mask | None = None
) -> pa.Array:
    """Returns the values as lists, flat if at most one dimension is unknown."""
    is_flat = _list_depth(shape) == 1
    return nest_values(values, [row_starts(levels)] if is_flat else levels, valid)


# All cells of a column are joined to one text of lines {"v": cell}, which Arrow's JSON
# reader turns into lists of numbers in C++ (four times as fast as json.loads row by row).
# If it rejects the text, blocks of rows are read in this way. Only the rows of a block
# with an invalid cell are read one by one, by Python's json module, which finds the
# reason. Both accept the same language: JSON with NaN, Infinity and -Infinity.

_BLOCK_ROWS = 256  # Python's json module reads so few rows as fast as Arrow


def parse_json(
    cells: pa.StringArray, levels: int, feature: DeclaredFeature
) -> CastColumn:
    """Parses JSON cells into an Arrow column with `levels` levels of nested lists.

    The values have the widest type of the dtype's family. Classes and times are text; if
    all cells have class indices, classes are integers.
    """
    cells = trim(cells)
    leaf = _LeafType.of(feature)
    kinds = [leaf.kind, pa.int64()] if feature.classes else [leaf.kind]
    for kind in kinds:
        whole = _read_block(cells, lists_of(kind, (None,) * levels))
        if whole is not None:
            return CastColumn(whole, {})
    errors: RowErrors = {}
    parts, kind = [], lists_of(leaf.kind, (None,) * levels)
    for start in range(0, len(cells), _BLOCK_ROWS):
        block = cells.slice(start, _BLOCK_ROWS)
        block_array = _read_block(block, kind)
        if block_array is None:
            values: list[Any] = [None] * len(block)
            for row, text in enumerate(block.to_pylist()):
                try:
                    values[row] = text and _read_cell(text, levels, leaf)
                except ValueError as error:
                    errors[start + row] = str(error)
            block_array = pa.array(values, kind)
        parts.append(block_array)
    return CastColumn(pa.concat_arrays(parts), errors)


@dataclass(frozen=True, slots=True)
class _LeafType:
    kind: pa.DataType
    expected: str
    dtype: str
    classes: tuple[str, ...] = ()

    @classmethod
    def of(cls, feature: DeclaredFeature) -> _LeafType:
        dtype = feature.dtype
        if feature.classes:
            return cls(pa.string(), "a class name or index", dtype, feature.classes)
        if feature.unit:
            return cls(pa.string(), "a date or time as a string", "string")
        if dtype in ("string", "bytes"):
            return cls(pa.string(), "a string", "string")
        if dtype == "bool":
            return cls(pa.bool_(), "true or false", dtype)
        if dtype.startswith("float"):
            return cls(pa.float64(), f"a number ({dtype})", dtype)
        wide = pa.uint64() if dtype == "uint64" else pa.int64()
        return cls(wide, f"a whole number ({dtype})", dtype)

    def check_value(self, value: Any) -> Any:
        """Returns the value as it is stored in the Arrow column.

        Raises:
          ValueError: the value has another type or is out of range.
        """
        if isinstance(value, str) and self.kind == pa.string():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"{shorten(value)} has an unpaired surrogate"
                ) from None
            return value
        if isinstance(value, bool):
            if self.kind == pa.bool_():
                return value
        elif isinstance(value, int) and self.classes:
            if not 0 <= value < len(self.classes):
                raise ValueError(class_index_reason(value, self.classes))
            return self.classes[value]
        elif isinstance(value, int) and pa.types.is_integer(self.kind):
            limits = np.iinfo(self.dtype)
            if not limits.min <= value <= limits.max:
                raise ValueError(integer_range_reason(value, self.dtype))
            return value
        elif isinstance(value, float) and self.kind == pa.float64():
            return value
        actual = json.dumps(value) if isinstance(value, bool) else shorten(value)
        raise ValueError(f"{actual} instead of {self.expected}")


def _read_block(cells: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    """Reads all cells together; returns None if one of them has another type."""
    if not len(cells):
        return pa.array([], kind)
    present = cells.fill_null("null")
    lines = pc.binary_join_element_wise('{"v":', present, "}\n", "")
    text = lines.cast(pa.binary()).buffers()[2]
    try:
        table = pa_json.read_json(
            pa.BufferReader(text),
            pa_json.ReadOptions(use_threads=False, block_size=text.size + 16),
            pa_json.ParseOptions(
                explicit_schema=pa.schema([("v", kind)]),
                newlines_in_values=True,
                unexpected_field_behavior="error",
            ),
        )
    except pa.ArrowInvalid:
        return None
    # Every line is a row or an error, so more rows mean a cell like 1} {"v": 2.
    if table.num_rows != len(cells):
        return None
    values = leaves = table.column("v").combine_chunks()
    while pa.types.is_list(leaves.type):
        leaves = leaves.flatten()
    if pa.types.is_floating(leaves.type) and np.isinf(leaves.to_numpy(False)).any():
        return None  # Infinity, or too many digits: Arrow does not distinguish them
    return values


def _read_cell(text: str, levels: int, leaf: _LeafType) -> Any:
    to_float = leaf.kind == pa.float64()
    try:
        json_value = json.loads(
            text,
            parse_float=_parse_finite,
            parse_int=_parse_finite if to_float else int,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"{shorten(text)} is not valid JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"{shorten(text)} nests too many lists") from None
    return None if json_value is None else _check_values(json_value, levels, leaf)


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(float_range_reason(shorten(digits), "float64"))
    return number


def _check_values(value: Any, levels: int, leaf: _LeafType) -> Any:
    if value is None:
        raise ValueError(NULL_IN_LIST)
    if not levels:
        if isinstance(value, list):
            raise ValueError(f"a list instead of {leaf.expected}")
        return leaf.check_value(value)
    if not isinstance(value, list):
        raise ValueError(f"{shorten(value)} instead of a list")
    return [_check_values(element, levels - 1, leaf) for element in value]
