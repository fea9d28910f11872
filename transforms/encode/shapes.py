"""Lists against the declared shape: are the lengths right, what are the dimensions?

A column with d nested lists has a list level for each of the first d - 1 dimensions;
its innermost lists hold all further dimensions row by row (row-major).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.arrow_types import shape_text
from recordmill.transforms.encode.nested import Nested


def check_shape(nested: Nested) -> None:
    """Makes sure that every row's lists have the shape that is declared.

    Raises:
      RowsError: the rows whose lists do not.
    """
    starts = np.arange(nested.num_rows + 1)  # each row's first list of the level
    for level, offsets in enumerate(nested.levels):
        lengths = np.diff(offsets)
        wrong = _wrong_lengths(nested, level, lengths, starts)
        if wrong is not None:
            if level == 0 and nested.valid is not None:
                wrong &= nested.valid
            _refuse_lists(nested, level, wrong, lengths, starts)
        starts = offsets[starts]


def _wrong_lengths(
    nested: Nested, level: int, lengths: I64, starts: I64
) -> npt.NDArray[np.bool_] | None:
    """Which lists of a level cannot be; None if all can."""
    dims = _dims_in(nested, level)
    known = _known_part(dims)
    wrong: npt.NDArray[np.bool_] | None = None
    if None not in dims:
        wrong = lengths != known
    elif known != 1:
        wrong = lengths % known != 0 if known else lengths != 0
    if None in dims and level and not nested.feature.is_ragged:
        uneven = lengths != _first_of_row(lengths, starts)
        wrong = uneven if wrong is None else wrong | uneven
    return wrong


def dims_of(nested: Nested) -> I64:
    """The dimensions of each row's value; what an empty list leaves open is 0.

    Returns:
      Array of shape (rows, dimensions); zeros in the unknown ones of missing rows.
    """
    feature, levels = nested.feature, nested.levels
    dims = np.zeros((nested.num_rows, len(feature.shape)), np.int64)
    for place, size in enumerate(feature.shape):
        if size is not None:
            dims[:, place] = size
    starts = np.arange(nested.num_rows + 1)
    for level, offsets in enumerate(levels):
        inside = _dims_in(nested, level)
        if None in inside:
            has_lists = starts[1:] > starts[:-1]
            first = starts[:-1][has_lists]
            lengths = offsets[first + 1] - offsets[first]
            known = _known_part(inside)
            dims[has_lists, level + inside.index(None)] = (
                lengths // known if known else 0
            )
        starts = offsets[starts]
    return dims


def _dims_in(nested: Nested, level: int) -> tuple[int | None, ...]:
    """The dimensions that the lists of a level hold."""
    shape = nested.feature.shape
    return (
        shape[level:] if level == len(nested.levels) - 1 else shape[level : level + 1]
    )


def _known_part(dims: tuple[int | None, ...]) -> int:
    return math.prod(size for size in dims if size is not None)


def _first_of_row(lengths: I64, starts: I64) -> I64:
    """For every list the length of the first one of its row."""
    counts = np.diff(starts)
    firsts = lengths[starts[:-1][counts > 0]]
    return np.repeat(firsts, counts[counts > 0])


def _refuse_lists(
    nested: Nested,
    level: int,
    wrong: npt.NDArray[np.bool_],
    lengths: I64,
    starts: I64,
) -> None:
    where = np.flatnonzero(wrong)
    if not len(where):
        return
    shape = shape_text(nested.feature)
    sort = "values" if level == len(nested.levels) - 1 else "lists"

    def say(index: int) -> str:
        return f"a list of {lengths[index]} {sort} does not fit shape {shape}"

    nested.refuse_at(where, starts, say)
