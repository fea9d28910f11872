"""Writes TensorFlow code that parses one feature.

A missing value of an optional feature becomes, in this order:

    empty              where a dimension is unknown
    NaN, -1            for floats and for class labels
    a first dimension  of 0 if missing, else 1: all values of these types are in use
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recordmill.schemas.features.feature import Content, FeatureSpec, Kind
from recordmill.transforms.decode.code_text import (
    Call,
    Code,
    call,
    list_code,
    quoted,
)
from recordmill.transforms.decode.tensors import Tensor
from recordmill.transforms.decode.tf_code import (
    STORED,
    cast,
    decode_image,
    decode_raw,
    each_step,
    parse_tensor,
    reshape,
)


@dataclass(frozen=True, slots=True)
class FeatureCode:
    """The code for one feature.

    Attributes:
      name: its key in the parser's result.
      spec: its entry in the parser's specification.
      missing: what the parser returns for a missing value; "" if it is required.
      steps: expressions that are then applied in turn; a text becomes a comment.
    """

    name: str
    spec: Code
    missing: str = ""
    steps: tuple[Code, ...] = ()


def value_of(name: str) -> str:
    """Returns, as code, what the parser gave for a feature."""
    return f"example[{quoted(name)}]"


def feature_code(feature: FeatureSpec) -> FeatureCode:
    """Returns the code for a feature that is not a feature list."""
    if feature.is_ragged:
        return _ragged_code(feature)
    if feature.content is Content.VALUES:
        return _values_code(feature)
    value, shape = value_of(feature.name), feature.shape
    if not feature.optional:
        spec, missing, sides = _fixed("tf.string"), "", shape
    elif feature.content is not Content.PICTURE and _can_be_empty(shape):
        spec, missing, sides = _fixed("tf.string", _nothing(feature)), "empty", shape
    else:
        spec = call("tf.io.RaggedFeature", "tf.string")
        missing, sides = "a first dimension of 0, otherwise 1", (-1, *shape)
    if feature.content is Content.PICTURE:
        steps: tuple[Code, ...] = (f"pixels: {decode_image(value, feature)}",)
    elif feature.content is Content.ARRAY:
        steps = decode_raw(value, feature, sides)
    elif sides == shape:
        steps = (parse_tensor(value, feature),)
    else:
        steps = (each_step(value, feature),)
    return FeatureCode(feature.name, spec, missing, steps)


def _values_code(feature: FeatureSpec) -> FeatureCode:
    value, shape = value_of(feature.name), feature.shape
    stored, missing = STORED[feature.kind], ""
    spec = call("tf.io.FixedLenFeature", str(list(shape)), stored)
    steps: tuple[Code, ...] = ()
    if None in shape or (feature.optional and 0 in shape):
        spec = call("tf.io.RaggedFeature", stored)
        missing = "empty" if feature.optional else ""
        if len(shape) > 1:
            steps = (reshape(value, shape),)
    elif feature.optional:
        marker = _marker(feature)
        if marker:
            missing, default = marker
            if shape:
                default = f"[{default}] * {math.prod(_known(shape))}"
        else:
            missing, default = "a first dimension of 0, otherwise 1", ""
        if default:
            items = (*spec.items, f"default_value={default}")
            spec = call("tf.io.FixedLenFeature", *items)
        else:
            spec = call("tf.io.RaggedFeature", stored)
            if shape:
                steps = (reshape(value, (-1, *shape)),)
    return FeatureCode(feature.name, spec, missing, (*steps, *cast(value, feature)))


def _marker(feature: FeatureSpec) -> tuple[str, str] | None:
    """Returns a value that no example has, as (text, code); None if there is none."""
    if feature.dtype.startswith("float"):
        return "NaN", 'float("nan")'
    if feature.class_names and feature.kind is Kind.INT64:
        return "-1", "-1"
    return None


def _ragged_code(feature: FeatureSpec) -> FeatureCode:
    flat, *row_lengths = feature.keys
    kind = "tf.io.RaggedFeature"
    partitions: list[Code] = [
        call(f"{kind}.RowLengths", quoted(key)) for key in row_lengths
    ]
    partitions += _uniform(feature.shape[feature.ragged_rank + 1 :])
    spec = call(
        kind,
        STORED[feature.kind],
        f"value_key={quoted(flat)}",
        list_code(tuple(partitions), "partitions"),
    )
    missing = "empty" if feature.optional else ""
    return FeatureCode(
        feature.name, spec, missing, cast(value_of(feature.name), feature)
    )


def feature_list_code(feature: FeatureSpec) -> FeatureCode:
    """Returns the code for a feature list; the steps are the first dimension."""
    value, shape = value_of(feature.name), feature.shape
    stored = STORED[feature.kind]
    missing = "no steps" if feature.optional else ""
    if feature.content is Content.VALUES and None in shape:
        return _ragged_steps_code(feature, missing)
    sides = shape if feature.content is Content.VALUES else ()
    spec = call("tf.io.FixedLenSequenceFeature", str(list(sides)), stored)
    if missing:
        spec = call("tf.io.FixedLenSequenceFeature", *spec.items, "allow_missing=True")
    if feature.content is Content.VALUES:
        steps = cast(value, feature)
    elif feature.content is Content.PICTURE:
        steps = (f"pixels of a step: {decode_image('step', feature)}",)
    elif feature.content is Content.ARRAY and None not in shape:
        steps = decode_raw(value, feature, (-1, *shape))
    else:
        steps = (each_step(value, feature),)
    return FeatureCode(feature.name, spec, missing, steps)


def _ragged_steps_code(feature: FeatureSpec, missing: str) -> FeatureCode:
    """Returns the code for steps of varying size.

    The parser returns one ragged dimension; the dimensions before it are restored here.
    """
    value = value_of(feature.name)
    unknown = feature.shape.index(None)
    items: list[Code] = [STORED[feature.kind]]
    inner = _uniform(feature.shape[unknown + 1 :])
    if inner:
        items.append(list_code(tuple(inner), "partitions"))
    steps: list[Code] = []
    outer = _known(feature.shape[:unknown])
    if outer:
        each = str(math.prod(outer))
        values, row_lengths = (
            Call("example[", (quoted(feature.name),), f"].{part}", subscript=True)
            for part in ("values", "row_lengths()")
        )
        lengths = call("tf.math.floordiv", row_lengths, each)
        repeated = call("tf.repeat", lengths, each)
        steps.append(call("tf.RaggedTensor.from_row_lengths", values, repeated))
        steps += [
            call("tf.RaggedTensor.from_uniform_row_length", value, str(size))
            for size in reversed(outer)
        ]
    spec = call("tf.io.RaggedFeature", *items)
    return FeatureCode(feature.name, spec, missing, (*steps, *cast(value, feature)))


def _fixed(stored: str, default: str = "") -> Call:
    items = ["[]", stored, *([f"default_value={default}"] if default else [])]
    return call("tf.io.FixedLenFeature", *items)


def _uniform(sizes: Sequence[int | None]) -> list[Code]:
    return [call("tf.io.RaggedFeature.UniformRowLength", str(size)) for size in sizes]


def _known(shape: Sequence[int | None]) -> list[int]:
    return [size for size in shape if size is not None]


def _can_be_empty(shape: Sequence[int | None]) -> bool:
    return None in shape or 0 in shape


def _nothing(feature: FeatureSpec) -> str:
    """Returns, as code, the stored bytes of an array or tensor without values."""
    if feature.content is Content.ARRAY:
        return '""'
    sides = tuple(size or 0 for size in feature.shape)
    text = feature.dtype in ("string", "bytes")
    values: Any = [] if text else np.zeros(0, feature.dtype)
    return quoted(Tensor(feature.dtype, sides, values).to_bytes())
