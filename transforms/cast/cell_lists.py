"""Lists of a declared shape: from separated text, or from Arrow lists of any kind.

The lists of a column are taken apart into levels of offsets and one array of values,
so that values are converted all at once. Put together again they are

    at most one unknown dimension    one flat list a row, row-major
    more of them                     lists nested once for every dimension
    sequence                         a list of steps around that

Source of the row-major order: numpy, "Array objects".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.declared import DeclaredFeature
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.cast_result import (
    ARROW_TYPES,
    NULL_IN_LIST,
    CastResult,
    Mask,
    RowErrors,
    by_row,
    merge,
    present,
    refuse,
)
from recordmill.transforms.cast.cast_values import convert_values
from recordmill.transforms.cast.text_values import trim
from recordmill.transforms.encode.arrow_types import is_list, plain

_NO_LIST_IS_LONGER = 1 << 32  # Arrow counts a column's values in 32 bits

Shape = tuple[int | None, ...]


def split_cells(cells: pa.StringArray, separator: str) -> pa.ListArray:
    """Cells like 1;2;3 as lists of text, without the white space around each value.

    A cell of nothing but white space is missing.
    """
    cells = trim(cells)
    lists = pc.split_pattern(cells, separator)
    starts = offsets_of(np.where(present(cells), _lengths(lists), 0))
    values = pc.ascii_trim_whitespace(lists.flatten())
    return _list_array(starts, values, ~present(cells))


def convert_lists(array: pa.Array, feature: DeclaredFeature) -> CastResult:
    """A column of lists as the feature's values in its shape.

    Raises:
      SchemaError: the column's type cannot become the feature's.
    """
    shape = feature.shape
    nested, refused = _take_apart(array, len(shape) + feature.sequence)
    made = convert_values(nested.values, feature)
    null = refuse(~present(made.array), lambda _: NULL_IN_LIST)
    refused = merge(refused, by_row(merge(made.refused, null), nested.starts()))
    levels, valid = nested.levels, nested.valid
    if not feature.sequence:
        _require_depth(levels, shape, array.type)
        refused = merge(refused, _wrong_shapes(levels, valid, feature))
        return CastResult(_together(levels, shape, made.array, ~valid), refused)
    if len(levels) == 1 and shape:
        levels, uneven = _cut_steps(levels[0], shape)
        refused = merge(refused, uneven)
    outer, inner, steps = levels[0], levels[1:], made.array
    if shape:
        _require_depth(inner, shape, array.type)
        every = np.ones(len(inner[0]) - 1, np.bool_)
        wrong = _wrong_shapes(inner, every, feature)
        refused = merge(refused, by_row(wrong, outer))
        steps = _together(inner, shape, steps, ~every)
    elif inner:
        raise SchemaError(f"{array.type} nests lists, but a step is a single value")
    return CastResult(_list_array(outer, steps, ~valid), refused)


def feature_type(feature: DeclaredFeature) -> pa.DataType:
    """The Arrow type of a feature's column."""
    kind = ARROW_TYPES[feature.dtype]
    for _ in range(_depth(feature.shape) + feature.sequence):
        kind = pa.list_(kind)
    return kind


def _depth(shape: Shape) -> int:
    """How many lists are nested in a column of the shape."""
    return len(shape) if shape.count(None) > 1 else min(1, len(shape))


@dataclass(frozen=True, slots=True)
class _Nested:
    """A column of lists taken apart.

    Attributes:
      levels: of each level, outermost first, where its lists' items start (lists + 1).
      values: the innermost values of all rows.
      valid: the rows that are not missing.
    """

    levels: list[I64]
    values: pa.Array
    valid: Mask

    def starts(self) -> I64:
        """Where the values of each row start (rows + 1)."""
        starts = self.levels[0]
        for offsets in self.levels[1:]:
            starts = offsets[starts]
        return starts


def _take_apart(array: pa.Array, full_depth: int) -> tuple[_Nested, RowErrors]:
    valid = present(array)
    levels: list[I64] = []
    refused: RowErrors = {}
    starts = np.arange(len(array) + 1)  # where each row's lists start
    while is_list(array.type) or (pt.is_null(array.type) and len(levels) < full_depth):
        if levels and array.null_count:
            null = refuse(~present(array), lambda _: NULL_IN_LIST)
            refused = merge(refused, by_row(null, starts))
        if pt.is_null(array.type):
            # Lists of type null hold nothing, at this depth and any below.
            array = array.cast(pa.list_(pa.null()))
        levels.append(offsets_of(_lengths(array)))
        starts = levels[-1][starts]
        array = plain(array.flatten())
    return _Nested(levels, array, valid), refused


def _lengths(lists: pa.Array) -> I64:
    lengths = pc.list_value_length(lists).fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _require_depth(levels: Sequence[I64], shape: Shape, kind: pa.DataType) -> None:
    if not shape:
        raise SchemaError(
            f"{kind} holds lists, but a single value is declared: give a shape"
        )
    allowed = {len(shape)} if shape.count(None) > 1 else {1, len(shape)}
    if len(levels) not in allowed:
        raise SchemaError(
            f"{kind} nests {len(levels)} lists, but shape {_text(shape)} asks for "
            f"{' or '.join(map(str, sorted(allowed)))}"
        )


def _cut_steps(offsets: I64, shape: Shape) -> tuple[list[I64], RowErrors]:
    """Levels of steps and of their values, where rows are flat lists of both."""
    size = _size(side or 0 for side in shape)
    if not size:
        raise SchemaError(
            f"flat lists do not tell where a step of shape {_text(shape)} ends: use "
            "nested lists, or JSON cells"
        )
    lengths = np.diff(offsets)
    uneven = refuse(
        lengths % size != 0,
        lambda i: (
            f"{_values(lengths[i])}, expected a multiple of {size} (steps of {_text(shape)})"
        ),
    )
    num_steps = -(-lengths // size)  # the last one of an uneven row is short
    outer = offsets_of(num_steps)
    shift = np.repeat(offsets[:-1] - outer[:-1] * size, num_steps)
    inner = np.append(np.arange(outer[-1]) * size + shift, offsets[-1])
    return [outer, inner], uneven


def _wrong_shapes(
    levels: Sequence[I64], valid: Mask, feature: DeclaredFeature
) -> RowErrors:
    """The valid rows (or steps) whose lists do not have the shape."""
    shape = feature.shape
    if len(levels) == 1 and len(shape) > 1:
        return _wrong_counts(np.diff(levels[0]), valid, shape)
    ragged = feature.to_spec("x").is_ragged
    refused: RowErrors = {}
    starts = np.arange(len(levels[0]))  # where each row's lists of a level start
    for dimension, offsets in enumerate(levels):
        lengths = np.diff(offsets)
        side = shape[dimension]
        if side is not None:
            expected: Any = np.full(len(lengths), side)
        elif dimension and not ragged:
            # One array has one size: that of its first list.
            expected = lengths[np.repeat(starts[:-1], np.diff(starts))]
        else:
            expected = lengths
        differ = lengths != expected
        wrong = refuse(
            differ if dimension else differ & valid,
            lambda i: (
                f"length {lengths[i]} in dimension {dimension}, "  # noqa: B023 (used here)
                f"expected {expected[i]} (shape {_text(shape)})"  # noqa: B023
            ),
        )
        refused = merge(refused, by_row(wrong, starts))
        starts = offsets[starts]
    return refused


def _wrong_counts(lengths: I64, valid: Mask, shape: Shape) -> RowErrors:
    """Rows of flat lists that do not fill the shape."""
    known = _size(side for side in shape if side is not None)
    if None in shape:
        wrong = lengths % known != 0 if known else lengths != 0
        expected = f"a multiple of {known}"
    else:
        wrong = lengths != known
        expected = str(known)
    return refuse(
        wrong & valid,
        lambda i: f"{_values(lengths[i])}, expected {expected} (shape {_text(shape)})",
    )


def _together(
    levels: Sequence[I64], shape: Shape, values: pa.Array, missing: Mask
) -> pa.Array:
    """The lists around the values, flat if the shape has no two unknown dimensions."""
    if _depth(shape) == 1:
        starts = levels[0]
        for offsets in levels[1:]:
            starts = offsets[starts]
        return _list_array(starts, values, missing)
    for offsets in reversed(levels[1:]):
        values = _list_array(offsets, values, np.zeros(len(offsets) - 1, bool))
    return _list_array(levels[0], values, missing)


def _list_array(starts: I64, values: pa.Array, missing: Mask) -> pa.ListArray:
    offsets = pa.array(starts, pa.int32())
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def _size(sides: Iterable[int]) -> int:
    """The values that fill these dimensions, or so many that no list has them."""
    return min(math.prod(sides), _NO_LIST_IS_LONGER)


def _values(count: int) -> str:
    return f"{count} value{'' if count == 1 else 's'}"


def _text(shape: Shape) -> str:
    return f"[{', '.join('null' if side is None else str(side) for side in shape)}]"
