"""What converting values gives: an Arrow array, and why some values are refused.

Refused values are nulls in the array; a missing value is a null that is not refused.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import I64

Mask = npt.NDArray[np.bool_]
RowErrors = dict[int, str]  # index -> reason, ascending

ARROW_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}

NULL_IN_LIST = "a list holds an empty or null value"

_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 60


class CastResult(NamedTuple):
    """An array and the reasons for its nulls that are no missing values."""

    array: pa.Array
    refused: RowErrors


def refuse(wrong: Mask, say: Callable[[int], str]) -> RowErrors:
    """The reason for every index where `wrong` is set."""
    return {index: say(index) for index in np.flatnonzero(wrong).tolist()}


def mask_of(refused: RowErrors, size: int) -> Mask:
    """Which of `size` values are refused."""
    mask = np.zeros(size, np.bool_)
    mask[list(refused)] = True
    return mask


def merge(first: RowErrors, second: RowErrors) -> RowErrors:
    """Both; of two reasons for one index the first."""
    return dict(sorted({**second, **first}.items()))


def by_row(refused: RowErrors, starts: I64) -> RowErrors:
    """The same for the rows that hold the values; of several in a row the first.

    Args:
      refused: by index of a value, ascending.
      starts: where the values of each row start (rows + 1).
    """
    indices = np.fromiter(refused, np.int64, len(refused))
    rows = (np.searchsorted(starts, indices, side="right") - 1).tolist()
    # Backwards, so that a row's first reason is the one that stays.
    reasons = dict(zip(rows[::-1], list(refused.values())[::-1], strict=True))
    return dict(sorted(reasons.items()))


def without(array: pa.Array, wrong: Mask) -> pa.Array:
    """The array with nulls where `wrong` is set."""
    if not wrong.any():
        return array
    return pc.if_else(pa.array(wrong), pa.scalar(None, array.type), array)


def present(array: pa.Array) -> Mask:
    """Which values are not null."""
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def shown(value: Any) -> str:
    """A value as an error shows it, cut short if it is long."""
    return _shown.repr(value)
