"""One column conformed, row by row: the value, or why the row is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.declared import DeclaredSchema
from recordmill.transforms.cast.cast_batch import cast
from recordmill.transforms.cast.cell_lists import feature_type

PREFIX = "feature 'f': "


class Refusal(str):
    """The reason of a refused row; in what is expected, any."""

    __slots__ = ()


REFUSED = Refusal("any reason")
Outcome = list[Any]


def declare(**fields: Any) -> DeclaredSchema:
    """A schema of the feature f, made from column c."""
    return DeclaredSchema.model_validate({"features": {"f": {"column": "c", **fields}}})


def outcome(
    column: pa.Array | list[Any], *, batch_of: int = 0, **fields: Any
) -> Outcome:
    """For every row the value, None if it is missing, or the reason against it.

    Args:
      column: an array, or text cells.
      batch_of: rows given to conform at once; 0 gives all.
      fields: of the declared feature; it is optional unless they say otherwise.
    """
    if isinstance(column, list):
        column = pa.array(column, pa.string())
    if "default" not in fields:
        fields.setdefault("optional", True)
    declared = declare(**fields)
    found: Outcome = []
    size = batch_of or max(1, len(column))
    for start in range(0, len(column), size):
        cells = column.slice(start, size)
        batch = pa.RecordBatch.from_arrays([cells], ["c"])
        (made,) = cast(batch, declared)
        rows: dict[int, Any] = {
            row: Refusal(reason.removeprefix(PREFIX))
            for row, reason in made.invalid_rows
        }
        array = made.batch["f"]
        array.validate(full=True)
        assert array.type == feature_type(declared.features["f"])
        assert not made.row_indices.tolist() or not rows.keys() & set(
            made.row_indices.tolist()
        )
        rows |= zip(made.row_indices.tolist(), array.to_pylist(), strict=True)
        assert sorted(rows) == list(range(len(cells)))
        found += [rows[row] for row in range(len(cells))]
    return found


def same(found: Any, expected: Any) -> bool:
    """Equal values of equal types; NaN is NaN, -0.0 is not 0.0."""
    if isinstance(expected, Refusal) or isinstance(found, Refusal):
        return isinstance(found, Refusal) and (expected is REFUSED or found == expected)
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(map(same, found, expected))
        )
    if isinstance(expected, float):
        return isinstance(found, float) and (
            (math.isnan(found) and math.isnan(expected))
            or (
                found == expected
                and math.copysign(1, found) == math.copysign(1, expected)
            )
        )
    return type(found) is type(expected) and found == expected


def check(column: pa.Array | list[Any], expected: Outcome, **fields: Any) -> None:
    """A column's outcome, and that no row's depends on the rows around it."""
    for batch_of in (0, 1, 3):
        found = outcome(column, batch_of=batch_of, **fields)
        for row, (one, wanted) in enumerate(zip(found, expected, strict=True)):
            assert same(one, wanted), (
                f"row {row} by {batch_of}: {one!r}, not {wanted!r}"
            )


def rounded(value: float, dtype: str) -> Any:
    """A float as a narrower dtype holds it; refused where it would become infinite."""
    with np.errstate(over="ignore"):
        narrow = float(np.dtype(dtype).type(value))
    return REFUSED if math.isinf(narrow) and not math.isinf(value) else narrow
