"""Known features declared: the same features once more."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from infer_tools import renamed

from recordmill.schemas.declared import declare_schema
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.schema_file import dump_yaml, load_schema
from recordmill.transforms.inventory import NO_FILES
from recordmill.transforms.sources.images.annotations import Annotations
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.sources.images.tables import LABEL, SPLIT


@pytest.mark.parametrize("names", ["default", "tutorial", "imagenet"])
def test_declared_images_have_their_features(names: Any) -> None:
    labels = pa.schema([(SPLIT, pa.string()), (LABEL, pa.string())])
    found = Annotations(NO_FILES, labels.empty_table(), classes=("a", "b"))
    source = ImagesSource(ImagesOptions(feature_names=names), annotations=found)
    declared = declare_schema(source.schema())
    assert declared.to_schema() == renamed(source.schema())
    for feature in source.schema().features:
        assert declared.column_of(feature.name) == feature.column


@pytest.mark.parametrize(
    "spec",
    [
        FeatureSpec("x", Kind.INT64, dtype="uint8", shape=(2, None)),
        FeatureSpec("x", Kind.INT64, dtype="bool", optional=True),
        FeatureSpec("x", Kind.FLOAT, dtype="float64", shape=(None, None, 3)),
        FeatureSpec("x", Kind.FLOAT, dtype="int64"),  # numbers kept as floats
        FeatureSpec("x", Kind.INT64, minimum=0, maximum=9),
        FeatureSpec("x", Kind.INT64, class_names=("a", "b"), is_sequence=True),
        FeatureSpec("o/x", Kind.FLOAT, shape=(None, 4), is_nested=True),
        FeatureSpec("x", Kind.BYTES, dtype="int16", content=Content.TENSOR),
        FeatureSpec("x", Kind.BYTES, dtype="string", content=Content.TENSOR),
        FeatureSpec("x", Kind.BYTES, "y", "int16", (4,), content=Content.ARRAY),
        FeatureSpec("x", Kind.BYTES),
        FeatureSpec("x", Kind.BYTES, content=Content.IMAGE),  # of any size, not decoded
        FeatureSpec("x", Kind.BYTES, "", "uint8", (8, None, 3), Content.IMAGE),
    ],
)
def test_declared_again(spec: FeatureSpec) -> None:
    declared = declare_schema(Schema((spec,)))
    assert declared.to_schema() == renamed(Schema((spec,)))
    assert declared.column_of(spec.name) == spec.column
    assert load_schema(dump_yaml(declared).encode(), "it.yaml") == declared
