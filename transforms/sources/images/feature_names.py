"""Builds the schema of pictures, with the feature names that readers expect."""

from __future__ import annotations

from recordmill.schemas.features.feature import Content, FeatureSpec, Kind, Schema
from recordmill.transforms.sources.images.options import FeatureNames

_NAMES: dict[FeatureNames, dict[str, str]] = {
    "default": {
        "image": "image",
        "label": "label",
        "height": "height",
        "width": "width",
        "depth": "depth",
        "filename": "filename",
    },
    "tutorial": {
        "image": "image_raw",
        "label": "label",
        "height": "height",
        "width": "width",
        "depth": "depth",
    },
    "imagenet": {
        "image": "image/encoded",
        "format": "image/format",
        "height": "image/height",
        "width": "image/width",
        "depth": "image/channels",
        "filename": "image/filename",
        "label": "image/class/label",
        "text": "image/class/text",
    },
}
_TEXT_COLUMNS = ("format", "filename", "text")


def image_schema(
    names: FeatureNames, classes: tuple[str, ...], decodable: bool
) -> Schema:
    """Returns the schema of pictures.

    Args:
      names: which names the features get.
      classes: names of the labels.
      decodable: whether one TensorFlow op decodes all the pictures to one rank.
    """
    features = []
    for column, name in _NAMES[names].items():
        if column == "image":
            feature = FeatureSpec(
                name,
                Kind.BYTES,
                column,
                dtype="uint8" if decodable else "bytes",
                shape=(None, None, None) if decodable else (),
                content=Content.PICTURE,
            )
        elif column in _TEXT_COLUMNS:
            feature = FeatureSpec(name, Kind.BYTES, column, dtype="string")
        elif column == "label":
            feature = FeatureSpec(name, Kind.INT64, column, class_names=classes)
        else:
            feature = FeatureSpec(name, Kind.INT64, column)
        features.append(feature)
    return Schema(tuple(features))
