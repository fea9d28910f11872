"""Splits ragged features into keys: the values in one, row lengths in others.

    tokens = [[5, 6], [], [7]]   of shape [null, null] is stored as
    tokens/ragged_flat_values    5 6 7
    tokens/ragged_row_lengths_0  2 0 1

Source: tensorflow_datasets/core/example_serializer.py.
"""

from __future__ import annotations

import math

import numpy as np

from recordmill.transforms.encode.nested import Nested
from recordmill.transforms.encode.stored_values import Column, value_column


def ragged_columns(nested: Nested) -> list[Column]:
    """Returns the flat values and the row lengths, in the order of the feature's keys.

    Args:
      nested: lists for every dimension up to the last unknown one; those behind it
        may be lists or lie flat in the innermost ones.

    Raises:
      RowsError: rows with a value that the feature's kind cannot hold.
    """
    feature, levels = nested.feature, nested.levels
    columns = [value_column(nested)]
    if nested.starts is None:  # nothing but nulls
        nothing = np.zeros(nested.num_rows, np.int64)
        return columns + [Column(nothing, None, nested.valid)] * feature.ragged_rank
    starts = levels[0]
    for level in range(1, feature.ragged_rank + 1):
        lengths = np.diff(levels[level])
        if level == len(levels) - 1:
            inside = math.prod(n for n in feature.shape[level + 1 :] if n is not None)
            lengths //= max(inside, 1)
        columns.append(Column(lengths, starts, nested.valid))
        starts = levels[level][starts]
    return columns
