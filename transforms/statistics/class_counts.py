"""Counts the rows of each class in each split, by reading the dataset once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from recordmill.schemas.errors import RecordmillError
from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.job import parse_bound
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.arrow import count_values
from recordmill.transforms.dataset.reader import shards_to_read
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.storage import LocalStore, Store

MAX_AUTOMATIC_BYTES = (
    64 << 20
)  # a local dataset up to this size is counted automatically
# factor by which other payloads are slower to decode than examples
_SLOW_PAYLOAD_FACTOR = 32
MAX_TEXT_FEATURES = 50
MAX_UNNAMED = 100_000  # classes without names that are listed if no row has them
MAX_TEXTS = 20  # distinct texts of a feature that is treated as a label
# Average rows of each text: three names in three rows are not classes.
MIN_ROWS_PER_TEXT = 2

ClassNames = Mapping[str, Sequence[str]]


LabelCounts = Mapping[str, Mapping[str, int]]
"""The rows of each class by split, in the manifest's order. All splits have the same
classes in the same order; for a class label, all its classes."""


def counted_features(manifest: Manifest) -> list[FeatureSpec]:
    """Returns the features that can be counted: class labels, booleans, single texts.

    If there are very many text features, none is counted, because that would take long.
    """
    labels, texts = list[FeatureSpec](), list[FeatureSpec]()
    for feature in manifest.features:
        if feature.content is not Content.VALUES or feature.is_sequence:
            continue
        if feature.num_classes is not None:
            labels.append(feature)
        elif feature.shape == () and feature.dtype in ("string", "bool"):
            texts.append(feature)
    return labels + (texts if len(texts) <= MAX_TEXT_FEATURES else [])


def counts_if_small(
    store: Store,
    manifest: Manifest,
    names: ClassNames,
    limit: int = MAX_AUTOMATIC_BYTES,
) -> dict[str, LabelCounts] | None:
    """Returns the counts of the classes; None if the dataset is large or not local.

    Returns None for an unreadable dataset as well: commands that read all of it report
    the error.
    """
    if manifest.payload != "example":
        limit //= _SLOW_PAYLOAD_FACTOR  # these records are decoded one by one
    if not isinstance(store, LocalStore) or manifest.num_bytes > limit:
        return None
    try:
        return count_classes(store, manifest, names)
    except RecordmillError:
        return None


def count_classes(
    store: Store,
    manifest: Manifest,
    names: ClassNames,
    on_progress: Callable[[float, float | None], None] = lambda _done, _total: None,
) -> dict[str, LabelCounts]:
    """Reads all records and counts the classes of each label, by label name.

    A text feature is a label if the dataset has at most MAX_TEXTS distinct texts, each in
    MIN_ROWS_PER_TEXT rows on average, and not all of them are times. Values without a class
    are counted by their number. `on_progress` is called with (bytes read, total bytes).

    Raises:
      CorruptRecordError: a record is damaged.
      OutputError: a shard is missing or another file.
    """
    features = {feature.name: feature for feature in counted_features(manifest)}
    counts = {
        name: {split: Counter[Any]() for split in manifest.splits} for name in features
    }
    decoded = 0
    for shard in shards_to_read(store, manifest):
        for records in shard.windows():
            if not counts:
                return {}
            schema = shard.select_schema(counts)
            batch = decode_payload(records, schema, shard.payload).batch
            for name in [name for name in counts if name in batch.schema.names]:
                counts[name][shard.split].update(count_values(batch.column(name)))
                texts = set().union(*counts[name].values())
                if features[name].num_classes is None and len(texts) > MAX_TEXTS:
                    del counts[name]  # not a label: too many distinct texts
            decoded += records.nbytes
            on_progress(min(decoded, manifest.num_bytes), manifest.num_bytes)
    counts_by_label = {}
    for name, split_counts in counts.items():
        total_counts = sum(split_counts.values(), Counter[Any]())
        few = MIN_ROWS_PER_TEXT * len(total_counts) <= total_counts.total()
        is_label = few and not all(map(_is_time, total_counts))
        if total_counts and (is_label or features[name].num_classes is not None):
            counts_by_label[name] = named_counts(
                features[name], split_counts, names.get(name, ())
            )
    return counts_by_label


def _is_time(value: str | bool) -> bool:
    with suppress(ValueError):
        return isinstance(parse_bound(str(value)), datetime)
    return False


def named_counts(
    feature: FeatureSpec, split_counts: Mapping[str, Counter[Any]], names: Sequence[str]
) -> LabelCounts:
    """Returns the counts of each split by class name, in class order."""
    values = set().union(*split_counts.values())
    if feature.num_classes is None:
        names_by_value = {value: str(value) for value in sorted(values)}
        if feature.dtype == "bool":
            names_by_value = {
                value: name.lower() for value, name in names_by_value.items()
            }
    else:
        number, listed = feature.num_classes, max(len(names), MAX_UNNAMED)
        classes: Collection[int] = range(min(number, listed))
        if number > listed:  # a damaged manifest may have 1 << 31
            classes = sorted(value for value in values if 0 <= value < number)
        names_by_value = {c: names[c] if c < len(names) else str(c) for c in classes}
        outside = sorted(values - names_by_value.keys())
        names_by_value |= {value: f"{value} (no class)" for value in outside}
    return {
        split: {name: counts[value] for value, name in names_by_value.items()}
        for split, counts in split_counts.items()
    }
