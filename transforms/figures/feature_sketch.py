"""Sums up one feature, batch by batch: what is missing, and what the values are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.figures.number_figures import NumberFigures, NumberSketch
from recordmill.transforms.figures.picture_figures import PictureFigures, PictureSketch
from recordmill.transforms.figures.value_counts import (
    KEPT_BYTES,
    CommonValues,
    ValueCounts,
)

SHOWN_VALUES = 10
TEXT_BYTES = 16 << 20  # of values that are kept, of all features
BATCH_NUMBERS = 1 << 18  # of a batch that are looked at, of arrays and long lists


@dataclass(frozen=True, slots=True)
class FeatureFigures:
    """What is known of a feature. What does not apply to it is None.

    Attributes:
      feature: its declaration.
      missing: rows that lack it, for each split.
      rows: rows that have it.
      empty: rows whose text or list is empty.
      lengths: values in each row, of features that differ in that.
      numbers: of all values in the rows that were looked at.
      rows_seen: rows whose numbers were looked at; fewer than `rows` if these are long.
      common: the commonest values of text, bytes and truth values.
      sizes: of a text in characters, of bytes and serialized values in bytes.
      pictures: of picture files.
    """

    feature: FeatureSpec
    missing: tuple[int, ...]
    rows: int
    empty: int = 0
    lengths: NumberFigures | None = None
    numbers: NumberFigures | None = None
    rows_seen: int = 0
    common: CommonValues | None = None
    sizes: NumberFigures | None = None
    pictures: PictureFigures | None = None


class FeatureSketch:
    """The values of a feature seen so far.

    Args:
      feature: its declaration.
      num_splits: of the dataset.
      num_features: how many share the memory.
    """

    def __init__(
        self, feature: FeatureSpec, num_splits: int, num_features: int = 1
    ) -> None:
        self.feature = feature
        self._missing = [0] * num_splits
        self._rows = self._empty = self._rows_seen = 0
        is_picture = feature.content is Content.PICTURE
        in_bytes = is_picture or feature.content is Content.ARRAY
        is_text = feature.dtype in ("string", "bytes") and not in_bytes
        is_counted = is_text or (feature.dtype == "bool" and not in_bytes)
        whole = not feature.dtype.startswith("float")
        self._pictures = PictureSketch() if is_picture else None
        kept_bytes = min(KEPT_BYTES, TEXT_BYTES // num_features)
        self._common = (
            ValueCounts(num_splits, kept_bytes=kept_bytes) if is_counted else None
        )
        self._sizes = NumberSketch(whole=True) if is_text else None
        self._lengths = NumberSketch(whole=True)
        is_number = not (is_picture or is_counted) and feature.num_classes is None
        self._numbers = NumberSketch(whole=whole) if is_number else None

    def add(self, column: pa.Array, split: int) -> None:
        """Adds the column of a batch, of which all rows are in one split."""
        self._missing[split] += column.null_count
        present = column.drop_null() if column.null_count else column
        self._rows += len(present)
        if pt.is_list(present.type):
            lengths = pc.list_value_length(present).to_numpy(zero_copy_only=False)
            self._lengths.add(lengths)
            self._empty += int((lengths == 0).sum())
        if self._pictures is not None:
            self._pictures.add(values_of(present))
        if self._common is not None:
            self._add_counted(values_of(present), split, pt.is_list(present.type))
        if self._numbers is not None:
            self._add_numbers(present, self._numbers)

    def _add_counted(self, values: pa.Array, split: int, nested: bool) -> None:
        """Counts text, bytes and truth values."""
        assert self._common is not None
        self._common.add(values, split)
        if self._sizes is not None:
            measure = pc.utf8_length if pt.is_string(values.type) else pc.binary_length
            sizes = measure(values).to_numpy(zero_copy_only=False)
            self._sizes.add(sizes)
            if not nested:
                self._empty += int((sizes == 0).sum())

    def _add_numbers(self, present: pa.Array, sketch: NumberSketch) -> None:
        """Adds numbers; of a batch with very many those of evenly spaced rows."""
        numbers = numbers_of(present, self.feature)
        step = -(-len(numbers) // BATCH_NUMBERS)
        if step > 1 and len(present) > 1:
            present = present.take(pa.array(np.arange(0, len(present), step)))
            numbers = numbers_of(present, self.feature)
        self._rows_seen += len(present)
        sketch.add(numbers)

    def figures(self) -> FeatureFigures:
        """Returns what is known by now."""
        lengths = self._lengths.figures()
        varies = lengths.values and lengths.minimum != lengths.maximum
        return FeatureFigures(
            feature=self.feature,
            missing=tuple(self._missing),
            rows=self._rows,
            empty=self._empty,
            lengths=lengths if varies else None,
            numbers=self._numbers.figures() if self._numbers else None,
            rows_seen=self._rows_seen,
            common=self._common.figures(SHOWN_VALUES) if self._common else None,
            sizes=self._sizes.figures() if self._sizes else None,
            pictures=self._pictures.figures() if self._pictures else None,
        )


def values_of(column: pa.Array) -> pa.Array:
    """Returns all values of a column, out of whatever lists they are in."""
    while pt.is_list(column.type):
        column = column.flatten()
    return column.drop_null() if column.null_count else column


def numbers_of(column: pa.Array, feature: FeatureSpec) -> npt.NDArray[Any]:
    """Returns all numbers of a column; those of arrays out of their bytes."""
    values = values_of(column)
    if feature.content is not Content.ARRAY:
        found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
        return found
    offsets, data = array_parts(values)
    used = data[offsets[0] : offsets[-1]] if len(values) else data[:0]
    return used.view(np.dtype(feature.dtype).newbyteorder("<"))


def is_pixels(feature: FeatureSpec) -> bool:
    """Tells whether the values are the pixels of pictures of one size."""
    if feature.dtype != "uint8" or feature.sequence or None in feature.shape:
        return False
    if feature.content not in (Content.VALUES, Content.ARRAY):
        return False
    sides, channels = feature.shape[:2], feature.shape[2:]
    return (
        len(sides) == 2
        and min(side or 0 for side in sides) > 1
        and channels in ((), (1,), (3,), (4,))
    )


def pixels_at(
    column: pa.Array, index: int, feature: FeatureSpec
) -> npt.NDArray[np.uint8]:
    """Returns the pixels in a row, of shape (height, width, channels)."""
    pixels = numbers_of(column.slice(index, 1), feature).astype(np.uint8, copy=False)
    height, width, *channels = (side or 0 for side in feature.shape)
    return pixels.reshape(height, width, *(channels or [1]))
