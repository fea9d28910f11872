"""Serialized examples -> values a person or a JSON reader can take in; no TensorFlow."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import OutputError
from recordmill.schemas.features.feature import Content, FeatureSpec
from recordmill.schemas.proto.example_pb2 import Example, SequenceExample
from recordmill.schemas.text import human_bytes, printable
from recordmill.transforms.decode.tensors import read_tensor
from recordmill.transforms.pictures.header import ImageHeaderError, read_header

Values = list[Any]  # numbers or bytes; of ragged features lists, and text decoded
Found = Values | tuple[Values, ...]  # of a feature list the values of each step

_Message = TypeVar("_Message", Example, SequenceExample)

_HEX_BYTES = 12
_LIST_VALUES = 6
_STEPS = 3
_TEXT_CHARACTERS = 200


def decode_example(data: bytes | memoryview) -> dict[str, Found]:
    """The values of every feature, sorted by its name.

    Raises:
      OutputError: the bytes are no tf.train.Example.
    """
    features = _parse(data, Example).features.feature
    return {name: _values(features[name]) for name in sorted(features)}


def decode_sequence_example(data: bytes | memoryview) -> dict[str, Found]:
    """The values of the context, and of every step of the feature lists, by name.

    Raises:
      OutputError: the bytes are no tf.train.SequenceExample.
    """
    message = _parse(data, SequenceExample)
    context, lists = message.context.feature, message.feature_lists.feature_list
    found: dict[str, Found] = {name: _values(context[name]) for name in sorted(context)}
    for name in sorted(lists):
        found[name] = tuple(_values(step) for step in lists[name].feature)
    return found


def _parse(data: bytes | memoryview, kind: type[_Message]) -> _Message:
    try:
        return kind.FromString(bytes(data))
    except DecodeError as error:
        raise OutputError(
            f"{len(data)} bytes that start with {bytes(data[:_HEX_BYTES]).hex()} are "
            f"no tf.train.{kind.__name__}: {error}"
        ) from error


def _values(feature: Any) -> Values:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def value_facts(
    values: Found, feature: FeatureSpec, class_names: tuple[str, ...] = ()
) -> Any:
    """A feature's values as JSON: a list, or the value itself where the shape is ().

    Numbers and text stay what they are (NaN and infinities as text); a label becomes
    its index and name; of pictures, arrays and other bytes only the facts remain. A
    feature list is a list of steps.
    """
    if isinstance(values, tuple):
        return [value_facts(step, feature, class_names) for step in values]
    facts = [_facts(value, feature, class_names) for value in values]
    return facts[0] if len(facts) == 1 and _is_single(feature) else facts


def readable(
    values: Found, feature: FeatureSpec, class_names: tuple[str, ...] = ()
) -> str:
    """A feature's values on one line, without control characters."""
    if isinstance(values, tuple):
        steps = [readable(step, feature, class_names) for step in values[:_STEPS]]
        more = ", ..." if len(values) > len(steps) else ""
        return f"{len(values):,} steps: {', '.join(steps)}{more}".rstrip(" :")
    if len(values) == 1 and _is_single(feature):
        return _readable_item(values[0], feature, class_names)
    return _readable_item(values, feature, class_names)


def _readable_item(
    value: Any, feature: FeatureSpec, class_names: tuple[str, ...]
) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, list):
        return _readable(_facts(value, feature, class_names))
    shown = [
        _readable_item(item, feature, class_names) for item in value[:_LIST_VALUES]
    ]
    more = f", ... {len(value):,} in all" if len(value) > len(shown) else ""
    return f"[{', '.join(shown)}{more}]"


def _is_single(feature: FeatureSpec) -> bool:
    return feature.shape == () or feature.content is not Content.VALUES


def _facts(value: Any, feature: FeatureSpec, class_names: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_facts(item, feature, class_names) for item in value]
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return _bytes_facts(value, feature)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if 0 <= value < len(class_names):
        return {"index": value, "name": class_names[value]}
    return bool(value) if feature.dtype == "bool" else value


def _bytes_facts(value: bytes, feature: FeatureSpec) -> Any:
    if feature.content is Content.PICTURE:
        try:
            header = read_header(value)
        except ImageHeaderError as error:
            return {"picture": str(error), **_hex_facts(value)}
        return {
            "picture": header.format,
            "height": header.height,
            "width": header.width,
            "depth": header.depth,
            "bytes": len(value),
        }
    if feature.content is Content.ARRAY:
        return _array_facts(value, feature)
    if feature.content is Content.TENSOR:
        return _tensor_facts(value)
    if feature.dtype == "string":
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return _hex_facts(value)


def _array_facts(value: bytes, feature: FeatureSpec) -> Any:
    try:
        array = np.frombuffer(value, feature.dtype).reshape(
            [-1 if size is None else size for size in feature.shape]
        )
    except (TypeError, ValueError) as error:
        return {"array": f"not {feature.dtype}: {error}", **_hex_facts(value)}
    mean = float(array.mean(dtype=np.float64)) if array.size else 0.0
    return {
        "array": feature.dtype,
        "shape": list(array.shape),
        "mean": mean if math.isfinite(mean) else str(mean),
        "bytes": len(value),
    }


def _tensor_facts(value: bytes) -> Any:
    try:
        tensor = read_tensor(value)
    except ValueError as error:
        return {"tensor": f"not a tensor: {error}", **_hex_facts(value)}
    few: list[Any]
    if isinstance(tensor.values, np.ndarray):
        numbers = tensor.values[:_LIST_VALUES].tolist()
        few = [v if math.isfinite(v) else str(v) for v in numbers]
    else:
        texts = tensor.values[:_LIST_VALUES]
        few = [text.decode(errors="backslashreplace") for text in texts]
    return {
        "tensor": tensor.dtype,
        "shape": list(tensor.shape),
        "first": few,
        "bytes": len(value),
    }


def _hex_facts(value: bytes) -> dict[str, Any]:
    return {"hex": value[:_HEX_BYTES].hex(), "bytes": len(value)}


def _readable(facts: Any) -> str:
    if isinstance(facts, str):
        return _readable_text(facts)
    if isinstance(facts, bool):
        return str(facts).lower()
    if not isinstance(facts, dict):
        return str(facts)
    if "index" in facts:
        return f"{facts['index']} ({printable(facts['name'])})"
    size = human_bytes(facts["bytes"])
    if "hex" in facts:
        what = facts.get("picture") or facts.get("array") or facts.get("tensor")
        dots = "..." if 2 * facts["bytes"] > len(facts["hex"]) else ""
        start = f"{facts['hex']}{dots} ({size})" if facts["bytes"] else size
        return f"{printable(what)}; {start}" if what else start
    if "picture" in facts:
        sides = f"{facts['width']}x{facts['height']}x{facts['depth']}"
        return f"{facts['picture'].upper()} {sides}, {size}"
    sides = "x".join(str(length) for length in facts["shape"])
    if "tensor" in facts:
        few = ", ".join(
            f"{v:.6g}" if isinstance(v, float) else _readable(v) for v in facts["first"]
        )
        more = ", ..." if math.prod(facts["shape"]) > len(facts["first"]) else ""
        return f"{facts['tensor']} tensor {sides or 'scalar'} [{few}{more}]"
    mean = facts["mean"]
    mean = f"{mean:.4g}" if isinstance(mean, float) else mean
    return f"{facts['array']} {sides}, mean {mean}"


def _readable_text(text: str) -> str:
    shown = printable(text[:_TEXT_CHARACTERS])
    more = "" if len(text) <= _TEXT_CHARACTERS else f"... ({len(text):,} characters)"
    return f'"{shown}"{more}'
