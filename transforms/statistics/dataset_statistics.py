"""Gathers the statistics of a finished dataset, in one pass over its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.transforms.arrow import count_values
from recordmill.transforms.dataset.files import class_names
from recordmill.transforms.dataset.reader import shards_to_read
from recordmill.transforms.encode.payloads import raw_feature
from recordmill.transforms.statistics.class_counts import LabelCounts, named_counts
from recordmill.transforms.statistics.column_summary import (
    ColumnSummary,
    numbers_of,
    values_of,
)
from recordmill.transforms.statistics.thumbnails import (
    MAX_IMAGES,
    NO_CLASS,
    Box,
    ContactSheet,
    Thumbnail,
    holds_images,
    thumbnail_of,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.tasks.rejects import (
    MAX_COUNTED,
    RejectKind,
    count_kinds,
    published_rejects,
)

MAX_FEATURES = 200  # features with statistics; a page with more would be unreadable
MAX_SHEETS = 4
MAX_BOXES = 100  # drawn in an image

_LABELS = ("label", "image/class/label")  # preferred class labels of images


def gather_statistics(
    store: Store, manifest: Manifest, on_progress: Callable[[float, float | None], None]
) -> DatasetStatistics:
    """Reads all rows of a dataset once, and all of its rejects.

    `on_progress` is called with (rows done, total rows).

    Raises:
      CorruptRecordError: a record is damaged.
      OutputError: a shard is missing or does not match the manifest, or a record does not
        fit the schema.
    """
    rejects = published_rejects(store) if manifest.rows_rejected else iter(())
    kinds = count_kinds(islice(rejects, MAX_COUNTED), manifest.rows_rejected)
    schema = schema_of(manifest)
    features: Sequence[FeatureSpec] = schema.features[:MAX_FEATURES]
    if manifest.payload == "raw":
        features = (raw_feature(schema),)
    names = class_names(store, manifest)
    statistics = DatasetStatistics(manifest, features, names, tuple(kinds))
    names_of = [feature.name for feature in features] or None
    done = 0
    for shard in shards_to_read(store, manifest):
        for batch in shard.batches(names_of):
            statistics.add(batch, shard.split)
            done += len(batch)
            on_progress(done, manifest.records)
    return statistics


class DatasetStatistics:
    """The statistics of all rows of a dataset."""

    def __init__(
        self,
        manifest: Manifest,
        features: Sequence[FeatureSpec],
        names: Mapping[str, tuple[str, ...]],
        rejects: tuple[RejectKind, ...] = (),
    ) -> None:
        """Initializes without rows.

        Args:
          manifest: of the dataset.
          features: the features to summarize.
          names: class names, by feature.
          rejects: the kinds of reasons of the rejected rows, the commonest first.
        """
        self.class_names, self.rejects = names, rejects
        # features without statistics: too many, or not in the records
        self.num_skipped_features = len(manifest.features) - len(features)
        self._splits = list(manifest.splits)
        self.columns = [
            ColumnSummary(f, len(self._splits), len(features)) for f in features
        ]
        # values of each label, by split
        self._labels = [
            (f, {split: Counter[Any]() for split in self._splits})
            for f in features
            if f.num_classes is not None
        ]
        self._box_features = _find_box_features(features)
        label = _find_label(features)
        image_features = list(filter(holds_images, features))[:MAX_SHEETS]
        self.sheets = {
            f.name: ContactSheet(
                f.name,
                "" if f.is_sequence or label is None else label.name,
                0 if label is None else label.num_classes or 0,
                MAX_IMAGES // len(image_features),
            )
            for f in image_features
        }

    @cached_property
    def class_counts(self) -> dict[str, LabelCounts]:
        """Returns the class counts of each label; call it after the last `add`."""
        return {
            label.name: named_counts(
                label, split_counts, self.class_names.get(label.name, ())
            )
            for label, split_counts in self._labels
        }

    def add(self, batch: pa.RecordBatch, split: str) -> None:
        """Adds rows of a split."""
        for summary in self.columns:
            feature = summary.feature
            column = batch.column(feature.name)
            summary.add(column, self._splits.index(split))
            if feature.name in self.sheets:
                self._add_images(feature, column, batch)
        for label, split_counts in self._labels:
            numbers = numbers_of(batch.column(label.name), label)
            split_counts[split].update(count_values(pa.array(numbers)))

    def _add_images(
        self, feature: FeatureSpec, column: pa.Array, batch: pa.RecordBatch
    ) -> None:
        images, sheet = values_of(column), self.sheets[feature.name]
        labels = [NO_CLASS] * len(images)
        if sheet.label:
            labels = batch.column(sheet.label).filter(column.is_valid()).to_pylist()

        # If an image is missing, the indices of rows and images differ.
        with_boxes = len(images) == len(batch)

        def make(index: int) -> Thumbnail:
            boxes = self._boxes(batch, index) if with_boxes else ()
            return thumbnail_of(images[index].as_py(), feature)._replace(boxes=boxes)

        sheet.add(labels, make)

    def _boxes(self, batch: pa.RecordBatch, row: int) -> tuple[Box, ...]:
        """Returns the first boxes of a row; () without features of boxes."""
        sides, label = self._box_features
        cells = [batch.column(name)[row] for name in (*sides, label) if name]
        if not cells or not all(cell.is_valid for cell in cells):
            return ()
        *values, labels = (cell.values for cell in cells)
        numbers = np.array(
            [coordinates.to_numpy() for coordinates in values], np.float64
        )
        boxes = numbers.reshape(-1, 4) if len(sides) == 1 else numbers.T
        names = self.class_names.get(label, ())
        texts = (
            names[box_label] if names else box_label for box_label in labels.to_pylist()
        )
        labelled_boxes = islice(zip(texts, boxes, strict=True), MAX_BOXES)
        return tuple(Box(str(text), *map(float, box)) for text, box in labelled_boxes)


def _find_box_features(features: Sequence[FeatureSpec]) -> tuple[list[str], str]:
    """Returns the features of boxes and the feature of their labels.

    The names are as in TFDS, or as in the TensorFlow Object Detection API.
    """
    names = {feature.name for feature in features}
    boxes = [f.name for f in features if f.is_nested and f.name.endswith("/bbox")]
    label = (
        f"{boxes[0].rpartition('/')[0]}/label" if boxes else "image/object/class/text"
    )
    sides = boxes[:1] or [
        f"image/object/bbox/{edge}" for edge in ("ymin", "xmin", "ymax", "xmax")
    ]
    return (sides, label) if names >= {label, *sides} else ([], "")


def _find_label(features: Sequence[FeatureSpec]) -> FeatureSpec | None:
    """Returns the class label of a row, or None."""
    labels = [
        f
        for f in features
        if f.num_classes is not None and f.content is Content.VALUES
        if not (f.shape or f.is_sequence)
    ]
    return min(labels, key=lambda label: label.name not in _LABELS, default=None)
