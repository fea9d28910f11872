"""Collects the rows of a batch that cannot be used, each with its reason.

values of two rows   [[1, 300], [5]]      starts [0, 2, 3]
wrong values         [False, True, False]
flag_invalid         {1: "300 is beyond int8 (-128 to 127)"}     by value
by_row               {0: "300 is beyond int8 (-128 to 127)"}     by row
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import RowsError
from recordmill.transforms.arrow import I64

Mask = npt.NDArray[np.bool_]
RowErrors = dict[int, str]  # index of a row or value -> reason, ascending


def flag_invalid(wrong: Mask, reason: Callable[[int], str]) -> RowErrors:
    """Returns the reason for every index where `wrong` is set."""
    return {index: reason(index) for index in np.flatnonzero(wrong).tolist()}


def mask_of(errors: RowErrors, size: int) -> Mask:
    """Returns which of `size` values have an error."""
    mask = np.zeros(size, np.bool_)
    mask[list(errors)] = True
    return mask


def merge(first: RowErrors, second: RowErrors) -> RowErrors:
    """Returns the errors of both; of two reasons for one index the first."""
    return dict(sorted({**second, **first}.items())) if second else first


def by_row(errors: RowErrors, starts: I64) -> RowErrors:
    """Returns the errors of the rows that hold these values; of several the first.

    Args:
      errors: by index of a value, ascending.
      starts: where the values of each row start (rows + 1).
    """
    if not errors:
        return {}
    rows = rows_of(np.fromiter(errors, np.int64, len(errors)), starts).tolist()
    # Backwards, so that a row's first reason is the one that stays.
    reasons = dict(zip(rows[::-1], list(errors.values())[::-1], strict=True))
    return dict(sorted(reasons.items()))


def rows_of(indices: npt.NDArray[np.intp], starts: I64) -> npt.NDArray[np.intp]:
    """Returns the row of each value.

    Args:
      indices: of values, ascending.
      starts: where the values of each row start (rows + 1).
    """
    return np.searchsorted(starts, indices, side="right") - 1


def prefixed(feature_name: str, errors: RowErrors) -> RowErrors:
    """Returns the errors with reasons that name the feature."""
    return {row: f"feature {feature_name!r}: {why}" for row, why in errors.items()}


def raise_errors(errors: RowErrors) -> None:
    """Raises the errors of some rows; does nothing if there are none.

    Raises:
      RowsError: there is at least one.
    """
    if errors:
        raise rows_error(errors)


def rows_error(errors: RowErrors) -> RowsError:
    """Returns the errors of at least one row as an exception."""
    return RowsError(list(errors), list(errors.values()))


def errors_in(error: RowsError) -> RowErrors:
    """Returns the errors in an exception; the opposite of `rows_error`."""
    return dict(zip(error.rows, error.reasons, strict=True))
