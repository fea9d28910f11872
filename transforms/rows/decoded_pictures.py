"""Turns pictures that are kept as files into arrays of their pixels, one or a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.transforms.pictures.pixels import pixels_of
from recordmill.transforms.rows.numpy_columns import Column, objects

Pixels = npt.NDArray[Any]


def decoded(picture: bytes | None) -> Pixels | None:
    """Returns the pixels of a picture, or None of one that is missing."""
    return None if picture is None else pixels_of(picture)


def stacked(pictures: list[Pixels | None]) -> Column:
    """Returns pictures of one shape as one array, others as one of objects."""
    kinds = {None if one is None else (one.shape, one.dtype) for one in pictures}
    if len(kinds) == 1 and None not in kinds:
        return np.stack([one for one in pictures if one is not None])
    return objects(pictures)
