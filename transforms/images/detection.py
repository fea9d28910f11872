"""Renames features of objects in images as in the TensorFlow Object Detection API.

    objects/bbox        image/object/bbox/ymin, xmin, ymax, xmax
    objects/label       image/object/class/label from 1 (0 is background), .../class/text
    objects/keypoints   image/object/keypoint/x, y as fractions of sides, .../visibility
    other features      image/object/NAME

Source: object_detection/data_decoders/tf_example_decoder.py and
dataset_tools/create_{coco,pascal}_tf_record.py in tensorflow/models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import FeatureSpec, Kind
from recordmill.transforms.arrow import I64
from recordmill.transforms.images.objects import (
    BOX,
    KEYPOINTS,
    OBJECT_LABEL,
    OBJECTS,
    numbers_in,
)

_OBJECT = "image/object/"
_LABEL, _TEXT = f"{_OBJECT}class/label", f"{_OBJECT}class/text"
_SIDES = tuple(f"{_OBJECT}bbox/{side}" for side in ("ymin", "xmin", "ymax", "xmax"))
_POINTS = tuple(f"{_OBJECT}keypoint/{name}" for name in ("x", "y", "visibility"))
_NAMES = {"is_difficult": "difficult", "is_truncated": "truncated", "pose": "view"}


def detection_features(spec: FeatureSpec) -> list[FeatureSpec]:
    """Returns the features of the API for a feature of objects."""
    if spec.name == BOX:
        return [FeatureSpec(name, Kind.FLOAT, shape=(None,)) for name in _SIDES]
    if spec.name == KEYPOINTS:
        kinds = zip(_POINTS, (Kind.FLOAT, Kind.FLOAT, Kind.INT64), strict=True)
        return [FeatureSpec(name, kind, shape=(None,)) for name, kind in kinds]
    if spec.name == OBJECT_LABEL:
        names = spec.class_names
        background = "(background)" if "background" in names else "background"
        text = FeatureSpec(_TEXT, Kind.BYTES, dtype="string", shape=(None,))
        whole = (background, *names)
        label = replace(spec, name=_LABEL, column=_LABEL, class_names=whole, minimum=1)
        return [replace(label, is_nested=False), text]
    name = _detection_name(spec.name)
    return [replace(spec, name=name, column=name, is_nested=False)]


def _detection_name(name: str) -> str:
    object_feature = name.removeprefix(OBJECTS)
    return _OBJECT + _NAMES.get(object_feature, object_feature)


def detection_columns(
    columns: Mapping[str, pa.Array], classes: Sequence[str], sizes: I64
) -> dict[str, pa.Array]:
    """Returns columns of images, with the columns of their objects converted.

    `sizes` has the height and width of each image.
    """
    renamed_columns = {}
    for name, column in columns.items():
        if not name.startswith(OBJECTS):
            renamed_columns[name] = column
            continue
        values, offsets = column.flatten(), column.offsets
        object_columns = {_detection_name(name): values}
        if name == BOX:
            sides = numbers_in(values).reshape(-1, 4).T
            object_columns = {
                n: pa.array(coordinates)
                for n, coordinates in zip(_SIDES, sides, strict=True)
            }
        elif name == OBJECT_LABEL:
            text = pa.array(classes, pa.string()).take(values)
            object_columns = {_LABEL: pc.add(values, 1), _TEXT: text}
        elif name == KEYPOINTS:
            points = numbers_in(values).reshape(-1, 3)
            points_per_object = len(points) // max(1, len(values))
            offsets = pc.multiply(offsets, points_per_object).cast(pa.int32())
            counts = pc.list_value_length(column).to_numpy() * points_per_object
            x_and_y = points[:, :2] / np.repeat(sizes[:, ::-1], counts, axis=0)
            arrays = (*x_and_y.T.astype(np.float32), points[:, 2].astype(np.int64))
            object_columns = {
                n: pa.array(coordinates)
                for n, coordinates in zip(_POINTS, arrays, strict=True)
            }
        renamed_columns |= {
            n: pa.ListArray.from_arrays(offsets, flat_column)
            for n, flat_column in object_columns.items()
        }
    return renamed_columns
