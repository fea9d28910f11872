"""Formats decoded values for people and for JSON readers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.text import human_bytes, printable
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
    if feature.sequence:
        one = replace(feature, sequence=False)
        return [to_json_value(step, one, class_names) for step in value]
    if feature.content in (Content.ARRAY, Content.TENSOR) and feature.dtype != "string":
        return _array_json(value, feature)
    if isinstance(value, list):
        return [to_json_value(item, feature, class_names) for item in value]
    if isinstance(value, bytes):
        return _bytes_json(value, feature)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int) and 0 <= value < len(class_names):
        return {"index": value, "name": class_names[value]}
    return value


def readable(
    value: Any, feature: FeatureSpec, class_names: tuple[str, ...] = ()
) -> str:
    """Formats a feature's value on one line, without control characters."""
    if feature.sequence:
        one = replace(feature, sequence=False)
        steps = [readable(step, one, class_names) for step in value[:_STEPS]]
        more = ", ..." if len(value) > len(steps) else ""
        return f"{len(value):,} steps: {', '.join(steps)}{more}".rstrip(" :")
    if isinstance(value, float):
        return f"{value:.6g}"
    shown = to_json_value(value, feature, class_names)
    if not isinstance(shown, list):
        return _readable(shown)
    items = [readable(item, feature, class_names) for item in value[:_LIST_VALUES]]
    more = f", ... {len(value):,} in all" if len(value) > len(items) else ""
    return f"[{', '.join(items)}{more}]"


def _array_json(value: Any, feature: FeatureSpec) -> dict[str, Any]:
    """Returns a description of an array, from its bytes, or of the values of a tensor."""
    if isinstance(value, bytes):
        array = np.frombuffer(value, feature.dtype)
    else:
        array = np.array(value, feature.dtype)
    if feature.shape.count(None) < 2:
        known = math.prod(size for size in feature.shape if size is not None)
        unknown = array.size // known if known else 0
        array = array.reshape([unknown if n is None else n for n in feature.shape])
    mean = float(array.mean(dtype=np.float64)) if array.size else 0.0
    return {
        "array": feature.dtype,
        "shape": list(array.shape),
        "mean": mean if math.isfinite(mean) else str(mean),
        "bytes": array.nbytes,
    }


def _bytes_json(value: bytes, feature: FeatureSpec) -> dict[str, Any]:
    shown: dict[str, Any] = {"hex": value[:_HEX_BYTES].hex()}
    if feature.content is Content.IMAGE:
        try:
            header = read_header(value)
            shown = {"image": header.format, "height": header.height}
            shown |= {"width": header.width, "depth": header.depth}
        except ImageHeaderError as error:
            shown = {"image": str(error)} | shown
    return {**shown, "bytes": len(value)}


def _readable(shown: Any) -> str:
    if isinstance(shown, str):
        is_short = len(shown) <= _TEXT_CHARACTERS
        more = "" if is_short else f"... ({len(shown):,} characters)"
        return f'"{printable(shown[:_TEXT_CHARACTERS])}"{more}'
    if isinstance(shown, bool):
        return str(shown).lower()
    if not isinstance(shown, dict):
        return str(shown)
    if "index" in shown:
        return f"{shown['index']} ({printable(shown['name'])})"
    size = human_bytes(shown["bytes"])
    if "hex" in shown:
        dots = "..." if 2 * shown["bytes"] > len(shown["hex"]) else ""
        start = f"{shown['hex']}{dots} ({size})" if shown["bytes"] else size
        return f"{printable(shown['image'])}; {start}" if "image" in shown else start
    if "image" in shown:
        sides = f"{shown['width']}x{shown['height']}x{shown['depth']}"
        return f"{shown['image'].upper()} {sides}, {size}"
    sides = "x".join(str(length) for length in shown["shape"])
    mean = shown["mean"]
    mean = f"{mean:.4g}" if isinstance(mean, float) else mean
    return f"{shown['array']} {sides or 'scalar'}, mean {mean}"
