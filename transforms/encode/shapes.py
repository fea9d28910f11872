"""Checks lists against a declared shape, and tells the dimensions of each row's value.

A column with d nested lists has a list level for each of the first d - 1 dimensions;
its innermost lists hold all further dimensions row by row (row-major; numpy, "Array
objects"). Rows of shape [null, 2] may be

    [[1, 2], [3, 4]]   levels [0, 2] [0, 2, 4]   2 lists; each has length 2 as it should
    [1, 2, 3, 4]       levels [0, 4]             4 values, a multiple of 2
    [1, 2, 3]          levels [0, 3]             3 values, expected a multiple of 2
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from recordmill.schemas.feature_spec import Shape, shape_text
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.nested import Nested
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    by_row,
    flag_invalid,
    merge,
    prefixed,
    raise_errors,
)

_NO_LIST_IS_LONGER = 1 << 32  # Arrow counts a column's values in 32 bits


def check_shape(nested: Nested) -> None:
    """Checks that every row's lists have the shape that is declared.

    Raises:
      RowsError: the rows whose lists do not.
    """
    feature = nested.feature
    errors = shape_errors(
        nested.levels, nested.valid, feature.shape, ragged=feature.is_ragged
    )
    raise_errors(prefixed(feature.name, errors))


def shape_errors(
    levels: Sequence[I64], valid: Mask | None, shape: Shape, *, ragged: bool
) -> RowErrors:
    """Returns the rows whose lists do not have the shape.

    Args:
      levels: where each list's items start, as `take_apart` gives them.
      valid: which rows have a value; None if all do.
      shape: the declared one.
      ragged: whether the lists of one row may differ in length where the shape leaves
        it open; otherwise a row is one array, which has one size.
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
        errors = merge(errors, by_row(wrong, starts))
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
    """Returns the lists of a level that have a wrong number of items.

    Args:
      counts: items of each list.
      shape: the declared one.
      level: of the lists, 0 is the outermost.
      num_levels: how many lists are nested.
      valid: which lists are there; None if all are.
      first: items of the first list of the row that each list is in; None if they
        may differ.
    """
    dims = dims_in(shape, level, num_levels)

    def reason(index: int, expected: object) -> str:
        found = count(int(counts[index]), "value")
        if len(dims) == 1:
            found = f"length {counts[index]} in dimension {level}"
        return f"{found}, expected {expected} (shape {shape_text(shape)})"

    size = known_size(dims)
    expected = f"a multiple of {size}" if None in dims else str(size)
    wrong = wrong_counts(counts, dims)
    if valid is not None:
        wrong &= valid
    errors = flag_invalid(wrong, lambda index: reason(index, expected))
    if first is None or None not in dims:
        return errors
    uneven = flag_invalid(counts != first, lambda index: reason(index, first[index]))
    return merge(errors, uneven)


def wrong_counts(counts: I64, dims: Shape, item_size: int = 1) -> Mask:
    """Returns which counts of values do not fill some dimensions.

    Args:
      counts: values of each list.
      dims: the dimensions; an unknown one takes any number.
      item_size: what one value adds to a count.
    """
    size = item_size * known_size(dims)
    if None in dims and size == 1:
        return np.zeros(len(counts), np.bool_)
    if None in dims and size:
        counts, size = counts % size, 0
    return np.not_equal(counts, size)


def known_size(dims: Shape) -> int:
    """Returns how many values fill the known dimensions, or more than any list has."""
    return min(math.prod(size for size in dims if size is not None), _NO_LIST_IS_LONGER)


def dims_in(shape: Shape, level: int, num_levels: int) -> Shape:
    """Returns the dimensions that the lists of a level hold.

    >>> dims_in((None, 4, 3), 1, 2)
    (4, 3)
    """
    return shape[level:] if level == num_levels - 1 else shape[level : level + 1]


def dims_of(nested: Nested) -> I64:
    """Returns the dimensions of each row's value; what an empty list leaves open is 0.

    Returns:
      Array of shape (rows, dimensions); zeros in the unknown ones of missing rows.
    """
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
            known = known_size(inside)
            dims[has_lists, level + inside.index(None)] = (
                lengths // known if known else 0
            )
        starts = offsets[starts]
    return dims
