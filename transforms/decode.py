"""Serialized examples -> values a person or a JSON reader can take in; no TensorFlow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from schemas.errors import OutputError
from schemas.manifest import FeatureEntry
from schemas.proto.example_pb2 import Example
from transforms.pixels import ImageHeaderError, read_header

Values = list[int] | list[float] | list[bytes]

_HEX_BYTES = 12
_UNITS = ("kB", "MB", "GB", "TB", "PB")
_LIST_VALUES = 6
_TEXT_CHARACTERS = 200


def decode_example(data: bytes | memoryview) -> dict[str, Values]:
    """The values of every feature, sorted by its name.

    Raises:
      OutputError: the bytes are no tf.train.Example.
    """
    try:
        features = Example.FromString(bytes(data)).features.feature
    except DecodeError as error:
        raise OutputError(
            f"{len(data)} bytes that start with {bytes(data[:_HEX_BYTES]).hex()} are "
            f"no tf.train.Example: {error}"
        ) from error
    return {name: _values(features[name]) for name in sorted(features)}


def _values(feature: Any) -> Values:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


def value_facts(
    values: Values, feature: FeatureEntry, class_names: tuple[str, ...] = ()
) -> Any:
    """A feature's values as JSON: a list, or the value itself where the shape is ().

    Numbers and text stay what they are (NaN and infinities as text); a label becomes
    its index and name; of pictures, arrays and other bytes only the facts remain.
    """
    facts = [_facts(value, feature, class_names) for value in values]
    return facts[0] if len(facts) == 1 and _is_single(feature) else facts


def readable(
    values: Values, feature: FeatureEntry, class_names: tuple[str, ...] = ()
) -> str:
    """A feature's values on one line, without control characters."""
    shown = [
        f"{value:.6g}"
        if isinstance(value, float)
        else _readable(_facts(value, feature, class_names))
        for value in values[:_LIST_VALUES]
    ]
    if len(values) == 1 and _is_single(feature):
        return shown[0]
    more = f", ... {len(values):,} in all" if len(values) > len(shown) else ""
    return f"[{', '.join(shown)}{more}]"


def printable(text: str) -> str:
    """Text whose control characters are escaped, so that it cannot steer a terminal."""
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in text
    )


def human_bytes(size: float) -> str:
    """A size in decimal units.

    >>> human_bytes(23_400)
    '23.4 kB'
    """
    if size < 1000:
        return f"{size:.0f} B"
    power = 0
    while size >= 999.95 and power < len(_UNITS):
        size /= 1000
        power += 1
    return f"{size:.1f} {_UNITS[power - 1]}"


def _is_single(feature: FeatureEntry) -> bool:
    return feature.shape == () or feature.content != "values"


def _facts(
    value: float | bytes, feature: FeatureEntry, class_names: tuple[str, ...]
) -> Any:
    if isinstance(value, bytes):
        return _bytes_facts(value, feature)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if 0 <= value < len(class_names):
        return {"index": value, "name": class_names[value]}
    return bool(value) if feature.dtype == "bool" else value


def _bytes_facts(value: bytes, feature: FeatureEntry) -> Any:
    if feature.content == "picture":
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
    if feature.content == "array":
        return _array_facts(value, feature)
    if feature.dtype == "string":
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return _hex_facts(value)


def _array_facts(value: bytes, feature: FeatureEntry) -> Any:
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
        what = facts.get("picture") or facts.get("array")
        dots = "..." if 2 * facts["bytes"] > len(facts["hex"]) else ""
        start = f"{facts['hex']}{dots} ({size})" if facts["bytes"] else size
        return f"{printable(what)}; {start}" if what else start
    if "picture" in facts:
        sides = f"{facts['width']}x{facts['height']}x{facts['depth']}"
        return f"{facts['picture'].upper()} {sides}, {size}"
    sides = "x".join(str(length) for length in facts["shape"])
    mean = facts["mean"]
    mean = f"{mean:.4g}" if isinstance(mean, float) else mean
    return f"{facts['array']} {sides}, mean {mean}"


def _readable_text(text: str) -> str:
    shown = printable(text[:_TEXT_CHARACTERS])
    more = "" if len(text) <= _TEXT_CHARACTERS else f"... ({len(text):,} characters)"
    return f'"{shown}"{more}'
