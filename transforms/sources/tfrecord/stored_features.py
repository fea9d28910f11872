"""Reads what files beside the records say of their features: recordmill's, or TFDS's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recordmill.schemas.dataset.labels_files import labels_file_name, parse_labels
from recordmill.schemas.dataset.manifest import Manifest, schema_of
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.feature import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    Shape,
    usual_kind,
)

ReadBeside = Callable[[str], bytes | None]
"""Returns the bytes of a file beside the records, by its name; None: there is none."""

_SIDES_OF_BOX = 4


def manifest_schema(manifest: Manifest, read: ReadBeside) -> Schema:
    """Returns the features of a dataset of recordmill, with their class names."""
    names = {}
    for feature in manifest.features:
        if feature.num_classes:
            labels = read(labels_file_name(feature.name))
            found = _labels(labels)
            if len(found) == feature.num_classes:
                names[feature.name] = found
    return schema_of(manifest, names)


def tfds_features(data: bytes, read: ReadBeside) -> dict[str, FeatureSpec]:
    """Returns the features that TFDS's features.json tells, by key of the example.

    What has no counterpart here is left out.
    """
    try:
        stated = json.loads(data)
        return dict(_walk(stated, "", read))
    except (ValueError, LookupError, TypeError, AttributeError, SchemaError):
        return {}


def _walk(
    node: Mapping[str, Any], key: str, read: ReadBeside
) -> Iterator[tuple[str, FeatureSpec]]:
    if "featuresDict" in node:
        for name, child in node["featuresDict"]["features"].items():
            yield from _walk(child, f"{key}/{name}" if key else name, read)
        return
    found = _leaf(node, key, read)
    if found is not None:
        yield key, found


def _leaf(node: Mapping[str, Any], key: str, read: ReadBeside) -> FeatureSpec | None:
    kind = str(node["pythonClassName"]).rpartition(".")[2]
    if kind == "Image":
        content = node["image"]
        shape = _dimensions(content) or (None, None, None)
        dtype = content.get("dtype") or "uint8"
        return FeatureSpec(
            key, Kind.BYTES, dtype=dtype, shape=shape, content=Content.PICTURE
        )
    if kind == "ClassLabel":
        classes = int(node["classLabel"].get("numClasses") or 0)
        names = _labels(read(labels_file_name(key))) or _labels(
            read(labels_file_name(key.replace("/", "-")))
        )
        return FeatureSpec(
            key,
            Kind.INT64,
            class_names=names if len(names) == classes else (),
            num_classes=classes or None,
        )
    if kind == "Text":
        return FeatureSpec(key, Kind.BYTES, dtype="string")
    if kind == "BBoxFeature":
        return FeatureSpec(key, Kind.FLOAT, shape=(_SIDES_OF_BOX,))
    if kind in ("Tensor", "Scalar"):
        return _tensor(node["tensor"], key)
    if kind == "Sequence":
        inner = _leaf(node["sequence"]["feature"], key, read)
        length = int(node["sequence"].get("length") or -1)
        if inner is None or inner.content is not Content.VALUES:
            return None
        outer: Shape = (None if length < 0 else length,)
        return FeatureSpec(
            key,
            inner.kind,
            dtype=inner.dtype,
            shape=outer + inner.shape,
            class_names=inner.class_names,
        )
    return None


def _tensor(content: Mapping[str, Any], key: str) -> FeatureSpec | None:
    dtype = "string" if content["dtype"] == "string" else str(content["dtype"])
    shape, encoding = _dimensions(content), content.get("encoding") or "none"
    if encoding == "none":
        return FeatureSpec(key, usual_kind(dtype), dtype=dtype, shape=shape)
    if encoding == "bytes" and dtype != "string":
        return FeatureSpec(
            key, Kind.BYTES, dtype=dtype, shape=shape, content=Content.ARRAY
        )
    return None


def _dimensions(content: Mapping[str, Any]) -> Shape:
    sides = (content.get("shape") or {}).get("dimensions", ())
    return tuple(None if int(side) < 0 else int(side) for side in sides)


def _labels(data: bytes | None) -> tuple[str, ...]:
    try:
        return parse_labels(data) if data is not None else ()
    except UnicodeDecodeError:
        return ()
