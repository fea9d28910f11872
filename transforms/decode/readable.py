"""Formats decoded values for people and for JSON readers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.text import escape_unprintable, format_bytes
from recordmill.transforms.images.header import ImageHeaderError, read_header

_HEX_BYTES = 12
_LIST_VALUES = 6
_STEPS = 3
_TEXT_CHARACTERS = 200


def to_json_value(
    value: Any, feature: FeatureSpec, class_names: tuple[str, ...] = ()
) -> Any:
    """Converts a feature's value to JSON; a value with a shape is a list.

    Numbers and text are unchanged (NaN and infinities become text). A label becomes its
    index and name. Images, arrays and other bytes become a description. A feature list
    becomes a list of steps.
    """
    if feature.is_sequence:
        step_feature = replace(feature, is_sequence=False)
        return [to_json_value(step, step_feature, class_names) for step in value]
    if feature.content in (Content.ARRAY, Content.TENSOR) and feature.dtype != "string":
        return _array_json(value, feature)
    if isinstance(value, list):
        return [to_json_value(element, feature, class_names) for element in value]
    if isinstance(value, bytes):
        return _bytes_json(value, feature)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int) and 0 <= value < len(class_names):
        return {"index": value, "name": class_names[value]}
    return value


def format_value(
    value: Any, feature: FeatureSpec, class_names: tuple[str, ...] = ()
) -> str:
    """Formats a feature's value on one line, without control characters."""
    if feature.is_sequence:
        step_feature = replace(feature, is_sequence=False)
        steps = [
            format_value(step, step_feature, class_names) for step in value[:_STEPS]
        ]
        more = ", ..." if len(value) > len(steps) else ""
        return f"{len(value):,} steps: {', '.join(steps)}{more}".rstrip(" :")
    if isinstance(value, float):
        return f"{value:.6g}"
    json_value = to_json_value(value, feature, class_names)
    if not isinstance(json_value, list):
        return _format_json_value(json_value)
    element_texts = [
        format_value(element, feature, class_names) for element in value[:_LIST_VALUES]
    ]
    more = f", ... {len(value):,} in total" if len(value) > len(element_texts) else ""
    return f"[{', '.join(element_texts)}{more}]"


def _array_json(value: Any, feature: FeatureSpec) -> dict[str, Any]:
    """Returns a description of an array, from its bytes, or of the values of a tensor."""
    if isinstance(value, bytes):
        array = np.frombuffer(value, feature.dtype)
    else:
        array = np.array(value, feature.dtype)
    if feature.shape.count(None) < 2:
        known_size = math.prod(size for size in feature.shape if size is not None)
        unknown = array.size // known_size if known_size else 0
        array = array.reshape([unknown if n is None else n for n in feature.shape])
    mean = float(array.mean(dtype=np.float64)) if array.size else 0.0
    return {
        "array": feature.dtype,
        "shape": list(array.shape),
        "mean": mean if math.isfinite(mean) else str(mean),
        "bytes": array.nbytes,
    }


def _bytes_json(value: bytes, feature: FeatureSpec) -> dict[str, Any]:
    description: dict[str, Any] = {"hex": value[:_HEX_BYTES].hex()}
    if feature.content is Content.IMAGE:
        try:
            header = read_header(value)
            description = {"image": header.format, "height": header.height}
            description |= {"width": header.width, "depth": header.depth}
        except ImageHeaderError as error:
            description = {"image": str(error)} | description
    return {**description, "bytes": len(value)}


def _format_json_value(json_value: Any) -> str:
    if isinstance(json_value, str):
        is_short = len(json_value) <= _TEXT_CHARACTERS
        more = "" if is_short else f"... ({len(json_value):,} characters)"
        return f'"{escape_unprintable(json_value[:_TEXT_CHARACTERS])}"{more}'
    if isinstance(json_value, bool):
        return str(json_value).lower()
    if not isinstance(json_value, dict):
        return str(json_value)
    if "index" in json_value:
        return f"{json_value['index']} ({escape_unprintable(json_value['name'])})"
    size = format_bytes(json_value["bytes"])
    if "hex" in json_value:
        dots = "..." if 2 * json_value["bytes"] > len(json_value["hex"]) else ""
        start = f"{json_value['hex']}{dots} ({size})" if json_value["bytes"] else size
        return (
            f"{escape_unprintable(json_value['image'])}; {start}"
            if "image" in json_value
            else start
        )
    if "image" in json_value:
        sides = f"{json_value['width']}x{json_value['height']}x{json_value['depth']}"
        return f"{json_value['image'].upper()} {sides}, {size}"
    sides = "x".join(str(length) for length in json_value["shape"])
    mean = json_value["mean"]
    mean = f"{mean:.4g}" if isinstance(mean, float) else mean
    return f"{json_value['array']} {sides or 'scalar'}, mean {mean}"
