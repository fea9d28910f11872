"""Makes lists of a declared shape from separated text, or from Arrow lists of any kind.

The lists of a column are taken apart into levels of offsets and one array of values,
so that values are converted all at once. Put together again they are

    at most one unknown dimension    one flat list a row, row-major
    more of them                     lists nested once for every dimension
    sequence                         a list of steps around that

Source of the row-major order: numpy, "Array objects".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.declared import DeclaredFeature
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Shape, shape_text
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.cast_result import ARROW_TYPES, CastResult, present
from recordmill.transforms.cast.cast_values import cast_values
from recordmill.transforms.cast.text_values import trim
from recordmill.transforms.encode.nested import (
    list_lengths,
    null_errors,
    row_starts,
    take_apart,
)
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    by_row,
    flag_invalid,
    merge,
)
from recordmill.transforms.encode.shapes import known_size, shape_errors, wrong_counts


def split_cells(cells: pa.StringArray, separator: str) -> pa.ListArray:
    """Splits cells like 1;2;3 into lists of text, without white space around a value.

    A cell of nothing but white space is missing.
    """
    cells = trim(cells)
    lists = pc.split_pattern(cells, separator)
    starts = offsets_of(np.where(present(cells), list_lengths(lists), 0))
    values = pc.ascii_trim_whitespace(lists.flatten())
    return _list_array(starts, values, ~present(cells))


def cast_lists(array: pa.Array, feature: DeclaredFeature) -> CastResult:
    """Converts a column of lists to the feature's values in its shape.

    Raises:
      SchemaError: the column's type cannot become the feature's.
    """
    shape, valid = feature.shape, present(array)
    levels, values, errors = take_apart(array, len(shape) + feature.sequence)
    made = cast_values(values, feature)
    wrong_values = merge(made.errors, null_errors(made.array))
    errors = merge(errors, by_row(wrong_values, row_starts(levels)))
    ragged = shape.count(None) > 1
    if not feature.sequence:
        _require_depth(levels, shape, array.type)
        errors = merge(errors, shape_errors(levels, valid, shape, ragged=ragged))
        return CastResult(_together(levels, shape, made.array, ~valid), errors)
    if len(levels) == 1 and shape:
        levels, uneven = _cut_steps(levels[0], shape)
        errors = merge(errors, uneven)
    outer, inner, steps = levels[0], levels[1:], made.array
    if shape:
        _require_depth(inner, shape, array.type)
        wrong_steps = shape_errors(inner, None, shape, ragged=ragged)
        errors = merge(errors, by_row(wrong_steps, outer))
        steps = _together(inner, shape, steps, np.zeros(len(inner[0]) - 1, np.bool_))
    elif inner:
        raise SchemaError(f"{array.type} nests lists, but a step is a single value")
    return CastResult(_list_array(outer, steps, ~valid), errors)


def feature_type(feature: DeclaredFeature) -> pa.DataType:
    """Returns the Arrow type of a feature's column."""
    kind = ARROW_TYPES[feature.dtype]
    for _ in range(_depth(feature.shape) + feature.sequence):
        kind = pa.list_(kind)
    return kind


def _depth(shape: Shape) -> int:
    """Returns how many lists are nested in a column of the shape."""
    return len(shape) if shape.count(None) > 1 else min(1, len(shape))


def _require_depth(levels: Sequence[I64], shape: Shape, kind: pa.DataType) -> None:
    if not shape:
        raise SchemaError(
            f"{kind} holds lists, but a single value is declared: give a shape"
        )
    allowed = {len(shape)} if shape.count(None) > 1 else {1, len(shape)}
    if len(levels) not in allowed:
        raise SchemaError(
            f"{kind} nests {len(levels)} lists, but shape {shape_text(shape)} asks for "
            f"{' or '.join(map(str, sorted(allowed)))}"
        )


def _cut_steps(offsets: I64, shape: Shape) -> tuple[list[I64], RowErrors]:
    """Cuts flat lists of steps: of shape [2], [1, 2, 3, 4] is [[1, 2], [3, 4]].

    Args:
      offsets: where each row's values start (rows + 1).
      shape: of a step.

    Returns:
      The levels of steps and of their values, and the rows that end in mid-step.
    """
    size = known_size(shape)
    if None in shape or not size:
        raise SchemaError(
            f"cannot split flat lists into steps of shape {shape_text(shape)}; use nested "
            "lists, or JSON cells"
        )
    lengths = np.diff(offsets)
    uneven = flag_invalid(
        wrong_counts(lengths, (None, *shape)),
        lambda i: (
            f"{count(int(lengths[i]), 'value')}, expected a multiple of {size} "
            f"(steps of {shape_text(shape)})"
        ),
    )
    num_steps = -(-lengths // size)  # the last one of an uneven row is short
    outer = offsets_of(num_steps)
    shift = np.repeat(offsets[:-1] - outer[:-1] * size, num_steps)
    inner = np.append(np.arange(outer[-1]) * size + shift, offsets[-1])
    return [outer, inner], uneven


def _together(
    levels: Sequence[I64], shape: Shape, values: pa.Array, missing: Mask
) -> pa.Array:
    """Puts lists around the values, flat if the shape has no two unknown dimensions."""
    if _depth(shape) == 1:
        return _list_array(row_starts(levels), values, missing)
    for offsets in reversed(levels[1:]):
        values = _list_array(offsets, values, np.zeros(len(offsets) - 1, bool))
    return _list_array(levels[0], values, missing)


def _list_array(starts: I64, values: pa.Array, missing: Mask) -> pa.ListArray:
    offsets = pa.array(starts, pa.int32())
    mask = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)
