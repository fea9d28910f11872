"""The rows of each class, by name and in order."""

from __future__ import annotations

from collections import Counter

from recordmill.schemas.feature_spec import FeatureSpec, Kind
from recordmill.transforms.statistics.class_counts import named_counts


def test_a_class_is_listed_without_rows_where_they_are_few() -> None:
    """A damaged manifest may say that there are two billions."""
    found = {"train": Counter({1: 5, 7: 2})}
    for number, expected in (
        (3, {"cat": 0, "dog": 5, "2": 0, "7 (no class)": 2}),
        (1 << 31, {"dog": 5, "7": 2}),
    ):
        label = FeatureSpec("label", Kind.INT64, num_classes=number)
        assert named_counts(label, found, ("cat", "dog")) == {"train": expected}
