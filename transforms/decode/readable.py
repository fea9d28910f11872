"""Decodes single examples to values that people and JSON readers can read."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import OutputError
from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.proto.example_pb2 import Example, SequenceExample
from recordmill.schemas.text import human_bytes, printable
from recordmill.transforms.decode.columns import Tensor, has_single_value, read_tensor
from recordmill.transforms.images.header import ImageHeaderError, read_header

Values = list[Any]  # numbers or bytes; for ragged features lists, with text decoded
FeatureValues = Values | tuple[Values, ...]  # for a feature list, those of each step

_Message = TypeVar("_Message", Example, SequenceExample)

_HEX_BYTES = 12
_LIST_VALUES = 6
_STEPS = 3
_TEXT_CHARACTERS = 200


def decode_example(data: bytes | memoryview) -> dict[str, FeatureValues]:
    """Decodes the values of every feature, sorted by name.

    Raises:
      OutputError: the bytes are not a valid tf.train.Example.
    """
    features = _parse(data, Example).features.feature
    return {name: _values(features[name]) for name in sorted(features)}


def decode_sequence_example(data: bytes | memoryview) -> dict[str, FeatureValues]:
    """Decodes the values of the context and of all steps of the feature lists.

    Raises:
      OutputError: the bytes are not a valid tf.train.SequenceExample.
    """
    message = _parse(data, SequenceExample)
    context, lists = message.context.feature, message.feature_lists.feature_list
    found: dict[str, FeatureValues] = {
        name: _values(context[name]) for name in sorted(context)
    }
    for name in sorted(lists):
        found[name] = tuple(_values(step) for step in lists[name].feature)
    return found


def _parse(data: bytes | memoryview, kind: type[_Message]) -> _Message:
    try:
        return kind.FromString(bytes(data))
    except DecodeError as error:
        raise OutputError(
            f"{len(data)} bytes that start with {bytes(data[:_HEX_BYTES]).hex()} are "
            f"not a valid tf.train.{kind.__name__}: {error}"
        ) from error


def _values(feature: Any) -> Values:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def to_json_value(
    values: FeatureValues, feature: FeatureSpec, class_names: tuple[str, ...] = ()
) -> Any:
    """Converts a feature's values to JSON: a list, or one value if the shape is ().

    Numbers and text are kept (NaN and infinities as text); a label becomes its index
    and name; images, arrays and other bytes become a description. A feature list
    becomes a list of steps.
    """
    if isinstance(values, tuple):
        return [to_json_value(step, feature, class_names) for step in values]
    shown = [_json_value(value, feature, class_names) for value in values]
    return shown[0] if len(shown) == 1 and has_single_value(feature) else shown


def readable(
    values: FeatureValues, feature: FeatureSpec, class_names: tuple[str, ...] = ()
) -> str:
    """Formats a feature's values on one line, without control characters."""
    if isinstance(values, tuple):
        steps = [readable(step, feature, class_names) for step in values[:_STEPS]]
        more = ", ..." if len(values) > len(steps) else ""
        return f"{len(values):,} steps: {', '.join(steps)}{more}".rstrip(" :")
    if len(values) == 1 and has_single_value(feature):
        return _readable_item(values[0], feature, class_names)
    return _readable_item(values, feature, class_names)


def _readable_item(
    value: Any, feature: FeatureSpec, class_names: tuple[str, ...]
) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, list):
        return _readable(_json_value(value, feature, class_names))
    shown = [
        _readable_item(item, feature, class_names) for item in value[:_LIST_VALUES]
    ]
    more = f", ... {len(value):,} in all" if len(value) > len(shown) else ""
    return f"[{', '.join(shown)}{more}]"


def _json_value(value: Any, feature: FeatureSpec, class_names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_json_value(item, feature, class_names) for item in value]
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _bytes_json(value, feature)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if 0 <= value < len(class_names):
        return {"index": value, "name": class_names[value]}
    return bool(value) if feature.dtype == "bool" else value


_ERRORS = {
    Content.IMAGE: ("image", "{}"),
    Content.ARRAY: ("array", "not an array of {dtype}: {}"),
    Content.TENSOR: ("tensor", "not a tensor: {}"),
}


def _bytes_json(value: bytes, feature: FeatureSpec) -> Any:
    content, shown = feature.content, dict[str, Any]()
    try:
        if content is Content.IMAGE:
            header = read_header(value)
            shown = {"image": header.format, "height": header.height}
            shown |= {"width": header.width, "depth": header.depth}
        elif content is Content.ARRAY:
            sides = [-1 if size is None else size for size in feature.shape]
            array = np.frombuffer(value, feature.dtype).reshape(sides)
            mean = float(array.mean(dtype=np.float64)) if array.size else 0.0
            shown = {"array": feature.dtype, "shape": list(array.shape)}
            shown["mean"] = mean if math.isfinite(mean) else str(mean)
        elif content is Content.TENSOR:
            shown = _tensor_json(read_tensor(value))
        elif feature.dtype == "string":
            return value.decode()
        else:
            shown = {"hex": value[:_HEX_BYTES].hex()}
    except (ImageHeaderError, TypeError, ValueError) as error:
        if content in _ERRORS:
            key, text = _ERRORS[content]
            shown[key] = text.format(error, dtype=feature.dtype)
        shown["hex"] = value[:_HEX_BYTES].hex()
    return {**shown, "bytes": len(value)}


def _tensor_json(tensor: Tensor) -> dict[str, Any]:
    first: list[Any]
    if isinstance(tensor.values, np.ndarray):
        values = tensor.values[:_LIST_VALUES].tolist()
        first = [v if math.isfinite(v) else str(v) for v in values]
    else:
        texts = tensor.values[:_LIST_VALUES]
        first = [text.decode(errors="backslashreplace") for text in texts]
    return {"tensor": tensor.dtype, "shape": list(tensor.shape), "first": first}


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
        error = shown.get("image") or shown.get("array") or shown.get("tensor")
        dots = "..." if 2 * shown["bytes"] > len(shown["hex"]) else ""
        start = f"{shown['hex']}{dots} ({size})" if shown["bytes"] else size
        return f"{printable(error)}; {start}" if error else start
    if "image" in shown:
        sides = f"{shown['width']}x{shown['height']}x{shown['depth']}"
        return f"{shown['image'].upper()} {sides}, {size}"
    sides = "x".join(str(length) for length in shown["shape"])
    if "tensor" in shown:
        first = ", ".join(
            f"{v:.6g}" if isinstance(v, float) else _readable(v) for v in shown["first"]
        )
        more = ", ..." if math.prod(shown["shape"]) > len(shown["first"]) else ""
        return f"{shown['tensor']} tensor {sides or 'scalar'} [{first}{more}]"
    mean = shown["mean"]
    mean = f"{mean:.4g}" if isinstance(mean, float) else mean
    return f"{shown['array']} {sides}, mean {mean}"
