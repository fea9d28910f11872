"""Converts class labels, or indices of classes, to indices.

Text is taken as it is: no white space is cut off, and "3" is a label only where a class
is named so. An integer column holds indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.cast.cast_result import (
    ARROW_TYPES,
    CastResult,
    present,
    shown,
    without,
)
from recordmill.transforms.encode.row_errors import RowErrors, flag_invalid, mask_of

_NAMES_SHOWN = 10
_COMPARISONS = 20_000  # of labels with class names in one batch; each takes 10 us
_LONGEST_LABEL = 64  # a longer one is not a typing error, and slow to compare


def label_indices(
    labels: pa.StringArray, classes: Sequence[str], dtype: str
) -> CastResult:
    """Returns the class index of each label."""
    names = pa.array(classes, pa.string())
    indices = pc.index_in(labels, value_set=names)
    unknown = present(labels) & ~present(indices)
    budget = _COMPARISONS

    @cache
    def reason(label: str) -> str:
        nonlocal budget
        near: list[str] = []
        if len(label) <= _LONGEST_LABEL and budget >= len(classes):
            budget -= len(classes)
            near = get_close_matches(label, classes, 1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else _listed(classes)
        return f"{shown(label)} is not a class name; {hint}"

    errors = flag_invalid(unknown, lambda i: reason(labels[i].as_py()))
    return CastResult(indices.cast(ARROW_TYPES[dtype]), errors)


def check_indices(indices: pa.Array, classes: Sequence[str]) -> CastResult:
    """Checks the indices that integer columns hold; each must be that of a class."""
    values = indices.fill_null(0).to_numpy(zero_copy_only=False)
    errors = index_errors(values, classes)
    return CastResult(without(indices, mask_of(errors, len(values))), errors)


def index_errors(indices: npt.NDArray[Any], classes: Sequence[str]) -> RowErrors:
    """Returns the indices that no class has."""
    wrong = (indices < 0) | (indices >= len(classes))
    return flag_invalid(wrong, lambda i: beyond_classes(indices[i], classes))


def beyond_classes(index: int | np.integer, classes: Sequence[str]) -> str:
    """Returns the reason for an index that no class has."""
    return f"{index} is not a class index (0 to {len(classes) - 1})"


def _listed(classes: Sequence[str]) -> str:
    names = ", ".join(map(shown, classes[:_NAMES_SHOWN]))
    more = len(classes) - _NAMES_SHOWN
    return f"the names are {names}{f' and {more} more' if more > 0 else ''}"
