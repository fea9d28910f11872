"""Takes Arrow columns apart: the innermost values, and the lists around them.

column  [[[1, 2], [3, 4]], [[5, 6]]]
levels  [0, 2, 3]      row i holds the lists levels[0][i] to levels[0][i + 1]
        [0, 2, 4, 6]   list j holds the values levels[1][j] to levels[1][j + 1]
values  1 2 3 4 5 6
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.encode.arrow_types import (
    depth_problem,
    is_list,
    list_depths,
    plain,
    value_problem,
)
from recordmill.transforms.encode.row_errors import (
    Mask,
    RowErrors,
    by_row,
    flag_invalid,
    merge,
    prefixed,
    raise_errors,
    rows_of,
)

NULL_IN_LIST = "a list holds an empty or null value"


def take_apart(
    array: pa.Array, fewest: int = 0, most: int | None = None
) -> tuple[list[I64], pa.Array, RowErrors]:
    """Takes the lists of a column apart.

    Args:
      array: a plain column; a null row counts as an empty list.
      fewest: levels that empty lists of type null are given.
      most: levels to take apart; None takes all.

    Returns:
      For every level, outermost first, where its lists' items start (lists + 1); the
      innermost values; and the rows with a null in place of an inner list.
    """
    levels: list[I64] = []
    errors: RowErrors = {}
    starts = np.arange(len(array) + 1)  # where each row's items of the level start
    while most is None or len(levels) < most:
        if pt.is_null(array.type) and 0 < len(levels) < fewest:
            array = array.cast(pa.list_(pa.null()))
        if not is_list(array.type):
            break
        if levels:
            errors = merge(errors, by_row(null_errors(array), starts))
        levels.append(offsets_of(list_lengths(array)))
        starts = levels[-1][starts]
        array = plain(array.flatten())
    return levels, array, errors


def null_errors(values: pa.Array) -> RowErrors:
    """Returns the nulls among the items of lists."""
    if not values.null_count:
        return {}
    missing = values.is_null().to_numpy(zero_copy_only=False)
    return flag_invalid(missing, lambda _: NULL_IN_LIST)


def list_lengths(lists: pa.Array) -> I64:
    """Returns how many items each list has; 0 for a null."""
    lengths = pc.list_value_length(lists)
    if lists.null_count:
        lengths = lengths.fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def row_starts(levels: Sequence[I64]) -> I64:
    """Returns where the innermost values of each row start (rows + 1)."""
    starts = levels[0]
    for offsets in levels[1:]:
        starts = offsets[starts]
    return starts


@dataclass(slots=True)
class Nested:
    """A column of a feature, no more than checked for its type and its nulls.

    Attributes:
      feature: what the column is for.
      num_rows: rows of the column.
      leaf: the innermost values of all rows end to end. Without nulls if there are
        lists; otherwise one for each row, null where the row has none.
      levels: for every level of lists, outermost first, where each list's items start
        (lists + 1). Null rows have an empty list.
      starts: where each row's values start in `leaf` (rows + 1); None without lists.
      valid: which rows have a value; None if all do.
    """

    feature: FeatureSpec
    num_rows: int
    leaf: pa.Array
    levels: list[I64]
    starts: I64 | None
    valid: Mask | None

    def reject(self, errors: RowErrors) -> None:
        """Raises the errors of innermost values as errors of their rows.

        Raises:
          RowsError: there is at least one.
        """
        if self.starts is not None:
            errors = by_row(errors, self.starts)
        raise_errors(prefixed(self.feature.name, errors))


def open_column(array: pa.Array, feature: FeatureSpec) -> Nested:
    """Takes a column apart.

    Raises:
      SchemaError: the column's type cannot become the feature.
      RowsError: rows with a null in a list.
    """
    _require_type(array, feature)
    fewest, _ = list_depths(feature, of_bytes=False)
    return _open(plain(array), feature, fewest=fewest)


def open_steps(array: pa.Array, feature: FeatureSpec) -> Nested:
    """Takes only the outer lists of a feature list's column apart: its leaf has steps.

    Raises:
      SchemaError: the column's type cannot become the feature.
      RowsError: rows with a null step.
    """
    _require_type(array, feature)
    array = plain(array)
    if not is_list(array.type):  # nothing but nulls
        array = array.cast(pa.list_(pa.null()))
    return _open(array, feature, most=1)


def _open(
    array: pa.Array, feature: FeatureSpec, *, fewest: int = 0, most: int | None = None
) -> Nested:
    levels, leaf, errors = take_apart(array, fewest, most)
    starts = None
    if levels:
        starts = row_starts(levels)
        errors = merge(errors, by_row(null_errors(leaf), starts))
        raise_errors(prefixed(feature.name, errors))
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(False)
    return Nested(feature, len(array), leaf, levels, starts, valid)


def _require_type(array: pa.Array, feature: FeatureSpec) -> None:
    problem = value_problem(array.type, feature)
    if problem:
        found, way_out = problem
        raise SchemaError(f"{found}{_example(array)}: {way_out}")
    problem = depth_problem(array.type, feature)
    if problem:
        raise SchemaError(": ".join(problem))


def _example(array: pa.Array) -> str:
    """Returns the first innermost value, cut short if it is long; empty if none is."""
    levels, leaf, _ = take_apart(plain(array))
    if leaf.null_count == len(leaf):
        return ""
    row = first = int(pc.index(leaf.is_valid(), True).as_py())
    if levels:
        (row,) = rows_of(np.array([first]), row_starts(levels))
    return f", for example {reprlib.repr(leaf[first].as_py())} in row {row}"
