"""Writes the files that TFDS needs to read a dataset, and its labels files.

    dataset_info.json        name, version, splits with the records of every shard and
                             the pattern of their names
    features.json            a flat FeaturesDict with the same keys as the example
    {feature}.labels.txt     class names, one per line; "/" in the feature's name is ".",
                             or "-" if TFDS has the feature in a list of dicts

TFDS parses these files as protobuf messages and fails on any unknown key; 64-bit
integers are strings, as in protobuf's JSON. Checked by reading with TFDS 4.9.10:

- A value that may be missing is a Tensor of shape [-1], which is empty if it is missing.
  The `Optional` of TFDS would return the smallest number of the type instead.
- An Image of three channels decodes JPEG, PNG and BMP of any depth, but not GIF, WebP
  and TIFF. encodingFormat is used only for writing, so it is left out.
- A feature with several unknown dimensions is a Sequence of Sequences. TFDS reads its
  values and row lengths from separate keys. It is empty if it is missing.
- Values that TFDS cannot decode to numbers stay bytes: serialized TensorProtos, arrays of
  uint32 (tf.io.decode_raw lacks the type), arrays with several unknown dimensions.
- Features of objects are a Sequence of a FeaturesDict, each with the same key in the
  example as a flat one; `bbox` of four floats is a BBoxFeature, which TFDS checks only
  when it writes.
- Samples of 16 bits in a feature `audio` are an Audio, stored as in TFDS; audio files
  stay bytes, because TFDS decodes them with another package.
- Numbers stored as floats are float32, for any original dtype: TFDS reads by the dtype.

Source: tensorflow_datasets/core/proto/{dataset_info,feature}.proto.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.job import AboutKey
from recordmill.schemas.names import format_labels
from recordmill.schemas.ranges import ShardResult
from recordmill.schemas.text import format_json

DATASET_INFO_NAME = "dataset_info.json"
FEATURES_NAME = "features.json"
LABEL_MAP_NAME = "label_map.pbtxt"

_FILE_TEMPLATE = "{DATASET}-{SPLIT}%s.{FILEFORMAT}-{SHARD_X_OF_Y}"
_CLASSES = "tensorflow_datasets.core.features."
_RGB = 3
_LABELS = ("label", "image/class/label")
_DETECTION_LABEL = "image/object/class/label"

_Json = dict[str, Any]
_Shape = tuple[int | None, ...]


def metadata_files(
    name: str,
    version: str,
    schema: Schema,
    shards: Sequence[ShardResult],
    mark: str = "",
    container: str = "tfrecord",
    label: str = "",
) -> dict[str, bytes]:
    """Returns the files that tfds.builder_from_directory needs, by name.

    Args:
      name: the dataset's name.
      version: the dataset's version.
      schema: the dataset's features.
      shards: all uncompressed shards of all splits, in any order.
      mark: the commit id in the names of the shards.
      container: the file format of the shards.
      label: the feature of a table that a model predicts from all others, or "".
    """
    dataset_info: _Json = {
        "name": name,
        "version": version,
        "fileFormat": container,
        "moduleName": "recordmill",
        "splits": _splits(shards, mark),
    }
    inputs: _Json = {}
    if label and len(schema) > 1:
        other_names = [spec.name for spec in schema.features if spec.name != label]
        inputs = {"dict": {"dict": {key: {"featureKey": key} for key in other_names}}}
    elif supervised := _supervised_keys(schema):
        inputs, label = {"featureKey": supervised[0]}, supervised[1]
    if inputs:
        feature_keys = [inputs, {"featureKey": label}]
        dataset_info["supervisedKeys"] = {"tuple": {"items": feature_keys}}
    features = _dict(_feature_members(schema))
    return {
        DATASET_INFO_NAME: format_json(dataset_info),
        FEATURES_NAME: format_json(features),
        **labels_files(schema),
    }


def replace_about(dataset_info: bytes, about: Mapping[AboutKey, str]) -> bytes:
    """Returns dataset_info.json with these texts; TFDS has no field for the contact."""
    texts: _Json = {key: about.get(key) for key in ("description", "citation")}
    texts["location"] = {"urls": [about["homepage"]]} if "homepage" in about else None
    license_of = {"license": about["license"]} if "license" in about else None
    texts["redistributionInfo"] = license_of
    kept_fields = {
        key: value
        for key, value in json.loads(dataset_info).items()
        if key not in texts
    }
    return format_json(kept_fields | {key: text for key, text in texts.items() if text})


def labels_files(schema: Schema) -> dict[str, bytes]:
    """Returns the labels file of each feature with class names, by file name.

    Labels that begin at 1 also get the label map of the Object Detection API.
    """
    files = {}
    for spec in schema.features:
        if not (names := spec.class_names):
            continue
        files[spec.labels_file] = format_labels(names)
        if spec.minimum == 1 and spec.name == _DETECTION_LABEL:
            label_map_items = (
                f"item {{\n  id: {number}\n  name: {json.dumps(name, ensure_ascii=False)}\n}}\n"
                for number, name in enumerate(names)
                if number
            )
            files[LABEL_MAP_NAME] = "".join(label_map_items).encode()
    return files


def _splits(shards: Sequence[ShardResult], mark: str) -> list[_Json]:
    template = _FILE_TEMPLATE % (f".{mark}" if mark else "")
    by_split: dict[str, list[ShardResult]] = defaultdict(list)
    for shard in sorted(shards, key=lambda shard: (shard.split, shard.shard_index)):
        by_split[shard.split].append(shard)
    return [
        {
            "name": split,
            "filepathTemplate": template,
            "shardLengths": [str(shard.records) for shard in members],
            "numBytes": str(sum(shard.example_bytes for shard in members)),
        }
        for split, members in by_split.items()
    ]


def only_label(schema: Schema) -> str:
    """Returns the only class label of a table without images and audio, or ""."""
    if any(map(_is_input, schema.features)):
        return ""
    labels = [spec.name for spec in schema.features if spec.class_names]
    spec = schema[labels[0]] if len(labels) == 1 else None
    if spec is None or spec.kind is not Kind.INT64 or spec.shape or spec.optional:
        return ""
    return spec.name


def _supervised_keys(schema: Schema) -> tuple[str, str] | None:
    """Returns (image or audio, label) if the schema has exactly one of each."""
    inputs = [f.name for f in schema.features if _is_input(f)]
    label_features = [
        f for f in schema.features if f.name in _LABELS and f.kind is Kind.INT64
    ]
    labels = [f.name for f in label_features if f.shape == () and not f.optional]
    return (inputs[0], labels[0]) if len(inputs) == len(labels) == 1 else None


def _feature_members(schema: Schema) -> _Json:
    """Returns the features by name; features of the same objects become one."""
    members: _Json = {}
    features_by_folder: dict[str, _Json] = defaultdict(dict)
    for spec in schema.features:
        if not spec.is_nested:
            members[spec.name] = _feature(spec)
            continue
        folder, _, name = spec.name.rpartition("/")
        element_spec = replace(
            spec, is_nested=False, optional=False, shape=spec.shape[1:]
        )
        is_box = name == "bbox" and (element_spec.kind, element_spec.shape) == (
            Kind.FLOAT,
            (4,),
        )
        features_by_folder[folder][name] = _BOX if is_box else _feature(element_spec)
    return members | {
        name: _sequence(_dict(object_features), None)
        for name, object_features in features_by_folder.items()
    }


def _dict(features: _Json) -> _Json:
    content = {"features": features}
    return _leaf("features_dict.FeaturesDict", "featuresDict", content)


def _is_audio(spec: FeatureSpec) -> bool:
    return spec.name == "audio" and spec.dtype in ("int16", "bytes")


def _is_input(spec: FeatureSpec) -> bool:
    return spec.content is not Content.VALUES or _is_audio(spec)


def _feature(spec: FeatureSpec) -> _Json:
    if spec.kind is Kind.BYTES and spec.content is not Content.VALUES:
        leaf = _bytes_leaf(spec)
        return _sequence(leaf, None) if spec.optional else leaf
    if spec.is_ragged:
        feature = _values(spec, spec.shape[spec.ragged_rank + 1 :])
        for size in reversed(spec.shape[: spec.ragged_rank + 1]):
            feature = _sequence(feature, size)
        return feature
    if spec.optional and None not in spec.shape:
        return _values(spec, (None, *spec.shape))
    return _values(spec, spec.shape)


def _values(spec: FeatureSpec, shape: _Shape) -> _Json:
    """Returns a feature of plain values with at most one unknown dimension."""
    if spec.class_names and spec.kind is Kind.INT64 and len(shape) <= 1:
        content = {"numClasses": str(len(spec.class_names))}
        leaf = _leaf("class_label_feature.ClassLabel", "classLabel", content)
        return _sequence(leaf, shape[0]) if shape else leaf
    dtype = spec.dtype
    if spec.kind is Kind.BYTES:
        dtype = "string"
    elif spec.kind is Kind.FLOAT and not dtype.startswith("float"):
        dtype = "float32"  # for other dtypes TFDS reads an int64_list
    if dtype == "int16" and _is_audio(spec) and shape[:1] == (None,):
        return _leaf("audio_feature.Audio", "audio", _tensor(shape, dtype)["tensor"])
    if shape:
        return _tensor(shape, dtype)
    is_text = spec.dtype == "string"
    return _leaf("text_feature.Text", "text", {}) if is_text else _scalar(dtype)


def _bytes_leaf(spec: FeatureSpec) -> _Json:
    shape, dtype = spec.shape, spec.dtype
    if spec.content is Content.IMAGE and dtype != "bytes":  # then readers get the file
        height, width, depth = shape if len(shape) == 3 else (None, None, None)
        if depth in (None, 2):  # TensorFlow cannot decode an image to two channels
            depth = _RGB
        dimensions = _dimensions((height, width, depth))
        content = {"shape": dimensions, "dtype": dtype}
        return _leaf("image_feature.Image", "image", content)
    decodable = shape.count(None) <= 1 and dtype not in ("bytes", "string", "uint32")
    if spec.content is Content.ARRAY and decodable:
        return _tensor(shape, np.dtype(dtype).name, "bytes")
    return _scalar("string")


def _sequence(feature: _Json, length: int | None) -> _Json:
    content = {"feature": feature, "length": str(-1 if length is None else length)}
    return _leaf("sequence_feature.Sequence", "sequence", content)


def _scalar(dtype: str) -> _Json:
    content = {"shape": {}, "dtype": dtype, "encoding": "none"}
    return _leaf("scalar.Scalar", "tensor", content)


def _tensor(shape: _Shape, dtype: str, encoding: str = "none") -> _Json:
    content = {"shape": _dimensions(shape), "dtype": dtype, "encoding": encoding}
    return _leaf("tensor_feature.Tensor", "tensor", content)


def _dimensions(shape: _Shape) -> _Json:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]}


def _leaf(python_class: str, content_key: str, content: _Json) -> _Json:
    return {"pythonClassName": _CLASSES + python_class, content_key: content}


_BOX = _leaf(
    "bounding_boxes.BBoxFeature",
    "boundingBox",
    {"shape": _dimensions((4,)), "dtype": "float32", "bboxFormat": "REL_YXYX"},
)
