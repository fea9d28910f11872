"""The keys of a ragged feature in many records -> flat values and nested lists.

The inverse of recordmill.transforms.encode.ragged, which tells how they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from recordmill.schemas.features.feature import FeatureSpec
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.decode.value_lists import Lists
from recordmill.transforms.encode.arrow_types import shape_text
from recordmill.transforms.encode.nested import rows_of

# Records, and what to say of each by its index among them.
Problem = tuple[npt.NDArray[np.intp], Callable[[int], str]]

_MAX_ROW = (1 << 31) - 1


def join_ragged(
    flat: Lists, row_lengths: Sequence[Lists], feature: FeatureSpec
) -> tuple[Lists, list[I64], list[Problem]]:
    """Fits the values and the row lengths of every record together.

    Args:
      flat: the values.
      row_lengths: those of each further key.
      feature: whose keys they are.

    Returns:
      The values; where each list starts at every level of lists, the outermost first;
      and what is wrong with which records, of which nothing is left in the others.
    """
    problems = list(_problems(flat, row_lengths, feature))
    wrong = np.zeros(len(flat.present), np.bool_)
    for rows, _ in problems:
        wrong[rows] = True
    # Emptied, so that the offsets of all other records are right.
    flat = flat.without(wrong)
    row_lengths = [lists.without(wrong) for lists in row_lengths]
    levels = [row_lengths[0].offsets]
    levels += [offsets_of(lists.values) for lists in row_lengths]
    levels[-1] = levels[-1] * _row_values(feature)
    return flat, levels, problems


def _row_values(feature: FeatureSpec) -> int:
    """Values in one item of a ragged feature's innermost unknown dimension."""
    return math.prod(size or 0 for size in feature.shape[feature.ragged_rank + 1 :])


def _problems(
    flat: Lists, row_lengths: Sequence[Lists], feature: FeatureSpec
) -> Iterator[Problem]:
    """Records whose keys do not fit together, and what to say of each."""
    for lists in row_lengths:
        lacking = np.flatnonzero(lists.present != flat.present)
        yield lacking, lambda _: f"only some of its keys {list(feature.keys)} are there"
    counts = row_lengths[0].counts
    if feature.shape[0] is not None:
        where = np.flatnonzero(flat.present & (counts != feature.shape[0]))
        yield where, partial(_say_count, counts[where], feature)
    for level, lists in enumerate(row_lengths):
        size = feature.shape[level + 1]
        wrong = (lists.values < 0) | (lists.values > _MAX_ROW)
        if size is not None:
            wrong |= lists.values != size
        where = np.flatnonzero(wrong)
        yield (
            rows_of(where, lists.offsets),
            partial(_say_count, lists.values[where], feature),
        )
        total = offsets_of(np.where(wrong, 0, lists.values))
        sums = total[lists.offsets[1:]] - total[lists.offsets[:-1]]
        if level + 1 < len(row_lengths):
            counts = row_lengths[level + 1].counts
        else:
            counts, sums = flat.counts, sums * _row_values(feature)
        where = np.flatnonzero(sums != counts)
        yield where, partial(_say_sum, sums[where], counts[where], level)


def _say_count(counts: I64, feature: FeatureSpec, index: int) -> str:
    return f"a list of {counts[index]} does not fit shape {shape_text(feature)}"


def _say_sum(sums: I64, counts: I64, level: int, index: int) -> str:
    return f"row lengths {level} ask for {sums[index]}, there are {counts[index]}"
