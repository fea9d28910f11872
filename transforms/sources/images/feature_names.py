"""Builds the schema of pictures, with the feature names that readers expect."""

from __future__ import annotations

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema, Shape
from recordmill.transforms.sources.images.options import FeatureNames
from recordmill.transforms.sources.images.picture_notes import NoteTypes

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


def reserved_names(names: FeatureNames, *, has_labels: bool) -> frozenset[str]:
    """Returns the names that features of a table cannot have.

    Args:
      names: which names the features of the pictures get.
      has_labels: whether labels are among them.
    """
    own = dict(_NAMES[names])
    if not has_labels:
        own = {key: own[key] for key in own if key not in ("label", "text")}
    return frozenset({*own, *own.values(), "image", "height", "width", "depth"})


def image_schema(
    names: FeatureNames,
    classes: tuple[str, ...],
    decodable: bool,
    types: NoteTypes | None = None,
) -> Schema:
    """Returns the schema of pictures.

    Args:
      names: which names the features get.
      classes: names of the labels.
      decodable: whether one TensorFlow op decodes all the pictures to one rank.
      types: what is noted of the pictures, or None for one label each.
    """
    features = [] if types is None else types.specs()
    labels: Shape = (None,) if types is not None and types.has_several else ()
    for column, name in _NAMES[names].items():
        if column in ("label", "text") and types is not None and not types.has_labels:
            continue
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
            feature = FeatureSpec(
                name,
                Kind.BYTES,
                column,
                dtype="string",
                shape=labels if column == "text" else (),
            )
        elif column == "label":
            feature = FeatureSpec(
                name, Kind.INT64, column, shape=labels, class_names=classes
            )
        else:
            feature = FeatureSpec(name, Kind.INT64, column)
        features.append(feature)
    return Schema(tuple(features))
