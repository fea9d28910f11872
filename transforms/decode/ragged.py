"""Joins the keys of a ragged feature in many records to nested lists.

The inverse of encode/ragged.py, which describes how they are stored. Two records with
the values [1, 2, 3] and [4], and the row lengths [2, 1] and [1]: the first one is
[[1, 2], [3]], the second [[4]]. The list offsets are [0, 2, 3] at the outer level and
[0, 2, 3, 4] at the inner one, over the flat values [1, 2, 3, 4].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from recordmill.schemas.features.feature import FeatureSpec, shape_text
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.decode.value_lists import Lists
from recordmill.transforms.encode.row_errors import rows_of

# Record indices, and a function that describes the error of the n-th of them.
Problem = tuple[npt.NDArray[np.intp], Callable[[int], str]]

_MAX_ROW = (1 << 31) - 1


def join_ragged(
    flat: Lists, row_lengths: Sequence[Lists], feature: FeatureSpec
) -> tuple[Lists, list[I64], list[Problem]]:
    """Joins the values and the row lengths of every record.

    Args:
      flat: the values.
      row_lengths: the row lengths, for each further key.
      feature: the feature of these keys.

    Returns:
      The flat values; the offsets of the lists at every level, outermost first; and the
      problems. Records with a problem are empty in values and offsets.
    """
    problems = list(_problems(flat, row_lengths, feature))
    invalid = np.zeros(len(flat.present), np.bool_)
    for rows, _ in problems:
        invalid[rows] = True
    # Emptied, so that the offsets of all other records are correct.
    flat = flat.without(invalid)
    row_lengths = [lists.without(invalid) for lists in row_lengths]
    levels = [row_lengths[0].offsets]
    levels += [offsets_of(lists.values) for lists in row_lengths]
    levels[-1] = levels[-1] * _row_values(feature)
    return flat, levels, problems


def _row_values(feature: FeatureSpec) -> int:
    """Returns the number of values in one item of the innermost ragged dimension."""
    return math.prod(size or 0 for size in feature.shape[feature.ragged_rank + 1 :])


def _problems(
    flat: Lists, row_lengths: Sequence[Lists], feature: FeatureSpec
) -> Iterator[Problem]:
    """Yields the records whose keys contradict each other, with their errors."""
    for lists in row_lengths:
        lacking = np.flatnonzero(lists.present != flat.present)
        yield lacking, lambda _: f"some of its keys {list(feature.keys)} are missing"
    counts = row_lengths[0].counts
    if feature.shape[0] is not None:
        rows = np.flatnonzero(flat.present & (counts != feature.shape[0]))
        yield rows, partial(_describe_count, counts[rows], feature)
    for level, lists in enumerate(row_lengths):
        size = feature.shape[level + 1]
        wrong = (lists.values < 0) | (lists.values > _MAX_ROW)
        if size is not None:
            wrong |= lists.values != size
        indices = np.flatnonzero(wrong)
        yield (
            rows_of(indices, lists.offsets),
            partial(_describe_count, lists.values[indices], feature),
        )
        total = offsets_of(np.where(wrong, 0, lists.values))
        sums = total[lists.offsets[1:]] - total[lists.offsets[:-1]]
        if level + 1 < len(row_lengths):
            counts = row_lengths[level + 1].counts
        else:
            counts, sums = flat.counts, sums * _row_values(feature)
        rows = np.flatnonzero(sums != counts)
        yield rows, partial(_describe_sum, sums[rows], counts[rows], level)


def _describe_count(counts: I64, feature: FeatureSpec, index: int) -> str:
    return f"a list of {counts[index]} does not fit shape {shape_text(feature.shape)}"


def _describe_sum(sums: I64, counts: I64, level: int, index: int) -> str:
    return f"row lengths {level} sum to {sums[index]}, but there are {counts[index]}"
