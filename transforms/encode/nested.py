"""An Arrow column taken apart: its innermost values and the lists around them."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import RowsError, SchemaError
from recordmill.schemas.features.feature import FeatureSpec
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.arrow_types import (
    depth_problem,
    is_list,
    list_depths,
    plain,
    value_problem,
)


@dataclass(slots=True)
class Nested:
    """A column of a feature, no more than checked for its type.

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
    levels: tuple[I64, ...]
    starts: I64 | None
    valid: npt.NDArray[np.bool_] | None

    def refuse(self, where: npt.NDArray[np.intp], say: Callable[[int], str]) -> None:
        """Raises RowsError for the rows of these innermost values, if there are any.

        Args:
          where: indices into `leaf`, ascending.
          say: the reason for one of them.
        """
        self.refuse_at(where, self.starts, say)

    def refuse_at(
        self,
        where: npt.NDArray[np.intp],
        starts: I64 | None,
        say: Callable[[int], str],
    ) -> None:
        """The same for items of which `starts` tells the first of every row."""
        if not len(where):
            return
        reasons: dict[int, str] = {}  # of several in a row the first is named
        rows = where if starts is None else rows_of(where, starts)
        for index, row in zip(where.tolist(), rows.tolist(), strict=True):
            if row not in reasons:
                reasons[row] = f"feature {self.feature.name!r}: {say(index)}"
        raise RowsError(list(reasons), list(reasons.values()))


def open_column(array: pa.Array, feature: FeatureSpec) -> Nested:
    """Takes a column apart.

    Raises:
      SchemaError: the column's type cannot become the feature.
      RowsError: rows with a null in a list.
    """
    _require_type(array, feature)
    nested = _closed(plain(array), feature)
    while is_list(nested.leaf.type):
        nested = _descend(nested)
    if nested.levels:
        # Lists of type null are empty; those that they would hold are, too.
        fewest, _ = list_depths(feature, of_bytes=False)
        for _ in range(fewest - len(nested.levels)):
            nested.levels += (np.zeros(1, np.int64),)
    return nested


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
    return _descend(_closed(array, feature))


def rows_of(where: npt.NDArray[np.intp], starts: I64) -> npt.NDArray[np.intp]:
    """The row of each item when `starts` has the first item of every row."""
    return np.searchsorted(starts, where, side="right") - 1


def _require_type(array: pa.Array, feature: FeatureSpec) -> None:
    problem = value_problem(array.type, feature)
    if problem:
        what, way_out = problem
        raise SchemaError(f"{what}{_example(array, feature)}: {way_out}")
    problem = depth_problem(array.type, feature)
    if problem:
        raise SchemaError(": ".join(problem))


def _closed(array: pa.Array, feature: FeatureSpec) -> Nested:
    valid = None if array.null_count == 0 else array.is_valid().to_numpy(False)
    return Nested(feature, len(array), array, (), None, valid)


def _descend(nested: Nested) -> Nested:
    """The same, one level of lists deeper."""
    lists = nested.leaf
    lengths = pc.list_value_length(lists)
    if lists.null_count:
        lengths = lengths.fill_null(0)
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(lengths.to_numpy(False), out=offsets[1:])
    deeper = replace(
        nested,
        leaf=plain(lists.flatten()),
        levels=(*nested.levels, offsets),
        starts=offsets if nested.starts is None else offsets[nested.starts],
    )
    if deeper.leaf.null_count:
        where = np.flatnonzero(deeper.leaf.is_null().to_numpy(False))
        deeper.refuse(where, lambda _: "a list holds a null value")
    return deeper


def _example(array: pa.Array, feature: FeatureSpec) -> str:
    """The first innermost value, cut short if it is long; empty if there is none."""
    nested = _closed(plain(array), feature)
    try:
        while is_list(nested.leaf.type):
            nested = _descend(nested)
    except RowsError:
        return ""
    leaf = nested.leaf
    if leaf.null_count == len(leaf):
        return ""
    first = int(pc.index(leaf.is_valid(), True).as_py())
    row = first
    if nested.starts is not None:
        (row,) = rows_of(np.array([first]), nested.starts)
    return f", for example {reprlib.repr(leaf[first].as_py())} in row {row}"
