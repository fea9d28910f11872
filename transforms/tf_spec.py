"""The schema as TensorFlow code that parses the dataset's records, ready to paste.

What is missing of an optional feature is, in this order:

    empty              where a dimension is unknown
    NaN, -1            for floats and for class labels
    a first dimension  of 0 or 1 otherwise: no value of theirs is free to mean it
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.features import Content, FeatureSpec, Kind, Schema
from schemas.job import Payload
from transforms.code_text import Call, Code, call, lines_of, listed, quoted
from transforms.payloads import check_payload, raw_feature
from transforms.tensor_read import Tensor

_STORED = {Kind.BYTES: "tf.string", Kind.FLOAT: "tf.float32", Kind.INT64: "tf.int64"}
# Types that tf.io.decode_raw does not know: read as others of the same bits.
_RAW_TWINS = {"uint32": "tf.int32", "uint64": "tf.int64"}
_DECODED_CHANNELS = (1, 3, 4)  # tf.io.decode_image's


@dataclass(frozen=True, slots=True)
class _Part:
    """A feature in the code.

    Attributes:
      name: the key under which the parser gives it.
      spec: what the parser is told.
      missing: what the parser gives where there is none; "" if there always is one.
      steps: what its value then becomes, in turn; or a comment, beginning with #.
    """

    name: str
    spec: Code
    missing: str = ""
    steps: tuple[Code, ...] = ()


def parsing_spec(schema: Schema, payload: Payload) -> str:
    """Python code with a function that parses one record.

    Args:
      schema: of the records.
      payload: what the records hold.

    Raises:
      SchemaError: such records cannot be made of the schema's features.
    """
    check_payload(schema, payload)
    if payload == "raw":
        return _raw_code(raw_feature(schema))
    context = [_part(f) for f in schema.features if not f.sequence]
    lines = ["import tensorflow as tf", ""]
    if payload == "sequence_example":
        lists = [_list_part(f) for f in schema.features if f.sequence]
        lines += _dict_lines("CONTEXT_FEATURES", context)
        lines += ["", *_dict_lines("SEQUENCE_FEATURES", lists), "", ""]
        lines += [
            "def parse_sequence_example(record):",
            '    """The features of one record; for tf.data.Dataset.map."""',
            "    context, sequences = tf.io.parse_single_sequence_example(",
            "        record, CONTEXT_FEATURES, SEQUENCE_FEATURES",
            "    )",
            "    example = {**context, **sequences}",
        ]
        parts = [*context, *lists]
    else:
        lines += [
            *_dict_lines("FEATURES", context),
            "",
            "",
            "def parse_example(record):",
            '    """The features of one record; for tf.data.Dataset.map."""',
        ]
        if payload == "json":
            lines.append("    record = tf.io.decode_json_example(record)")
        lines.append("    example = tf.io.parse_single_example(record, FEATURES)")
        parts = context
    for part in parts:
        lines += _step_lines(part)
    lines.append("    return example")
    return "\n".join(lines) + "\n"


def _dict_lines(name: str, parts: Sequence[_Part]) -> list[str]:
    if not parts:
        return [f"{name} = {{}}"]
    lines = [f"{name} = {{"]
    for part in parts:
        if part.missing:
            lines.append(f"    # missing: {part.missing}")
        lines += lines_of(part.spec, 4, before=f"{quoted(part.name)}: ", after=",")
    return [*lines, "}"]


def _step_lines(part: _Part) -> Iterator[str]:
    for step in part.steps:
        if isinstance(step, str) and step.startswith("#"):
            yield f"    {step}"
        else:
            yield from lines_of(step, 4, before=f"{_value(part.name)} = ")


def _value(name: str) -> str:
    return f"example[{quoted(name)}]"


def _part(feature: FeatureSpec) -> _Part:
    """A feature of an example, or of the context of a sequence example."""
    if feature.is_ragged:
        return _ragged_part(feature)
    if feature.content is Content.VALUES:
        return _values_part(feature)
    value, shape = _value(feature.name), feature.shape
    if not feature.optional:
        spec, missing, sides = _fixed("tf.string"), "", shape
    elif feature.content is not Content.PICTURE and _can_be_empty(shape):
        spec, missing, sides = _fixed("tf.string", _nothing(feature)), "empty", shape
    else:
        spec = call("tf.io.RaggedFeature", "tf.string")
        missing, sides = "a first dimension of 0, otherwise 1", (-1, *shape)
    if feature.content is Content.PICTURE:
        steps: tuple[Code, ...] = (f"# pixels: {_decode_image(value, feature)}",)
    elif feature.content is Content.ARRAY:
        steps = _decode_raw(value, feature, sides)
    elif sides == shape:
        steps = (_parse_tensor(value, feature),)
    else:
        steps = (_each_step(value, feature),)
    return _Part(feature.name, spec, missing, steps)


def _values_part(feature: FeatureSpec) -> _Part:
    value, shape = _value(feature.name), feature.shape
    stored, missing = _STORED[feature.kind], ""
    spec = call("tf.io.FixedLenFeature", str(list(shape)), stored)
    steps: tuple[Code, ...] = ()
    if None in shape or (feature.optional and 0 in shape):
        spec = call("tf.io.RaggedFeature", stored)
        missing = "empty" if feature.optional else ""
        if len(shape) > 1:
            steps = (call("tf.reshape", value, _sides(shape)),)
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
                steps = (call("tf.reshape", value, _sides((-1, *shape))),)
    return _Part(feature.name, spec, missing, (*steps, *_cast(value, feature)))


def _marker(feature: FeatureSpec) -> tuple[str, str] | None:
    """A value that no example has, as one says it and in code."""
    if feature.dtype.startswith("float"):
        return "NaN", 'float("nan")'
    if feature.class_names and feature.kind is Kind.INT64:
        return "-1", "-1"
    return None


def _ragged_part(feature: FeatureSpec) -> _Part:
    flat, *row_lengths = feature.keys
    kind = "tf.io.RaggedFeature"
    partitions: list[Code] = [
        call(f"{kind}.RowLengths", quoted(key)) for key in row_lengths
    ]
    partitions += _uniform(feature.shape[feature.ragged_rank + 1 :])
    spec = call(
        kind,
        _STORED[feature.kind],
        f"value_key={quoted(flat)}",
        listed(tuple(partitions), "partitions"),
    )
    missing = "empty" if feature.optional else ""
    return _Part(feature.name, spec, missing, _cast(_value(feature.name), feature))


def _list_part(feature: FeatureSpec) -> _Part:
    """A feature list: the steps are the first dimension."""
    value, shape = _value(feature.name), feature.shape
    stored = _STORED[feature.kind]
    missing = "no steps" if feature.optional else ""
    if feature.content is Content.VALUES and None in shape:
        return _ragged_steps_part(feature, missing)
    sides = shape if feature.content is Content.VALUES else ()
    spec = call("tf.io.FixedLenSequenceFeature", str(list(sides)), stored)
    if missing:
        spec = call("tf.io.FixedLenSequenceFeature", *spec.items, "allow_missing=True")
    if feature.content is Content.VALUES:
        steps = _cast(value, feature)
    elif feature.content is Content.PICTURE:
        steps = (f"# pixels of a step: {_decode_image('step', feature)}",)
    elif feature.content is Content.ARRAY and None not in shape:
        steps = _decode_raw(value, feature, (-1, *shape))
    else:
        steps = (_each_step(value, feature),)
    return _Part(feature.name, spec, missing, steps)


def _ragged_steps_part(feature: FeatureSpec, missing: str) -> _Part:
    """Steps of differing size: what comes before the unknown dimension is put back."""
    value = _value(feature.name)
    unknown = feature.shape.index(None)
    items: list[Code] = [_STORED[feature.kind]]
    inner = _uniform(feature.shape[unknown + 1 :])
    if inner:
        items.append(listed(tuple(inner), "partitions"))
    steps: list[Code] = []
    outer = _known(feature.shape[:unknown])
    if outer:
        each = math.prod(outer)
        lengths = call("tf.repeat", f"{value}.row_lengths() // {each}", str(each))
        steps.append(
            call("tf.RaggedTensor.from_row_lengths", f"{value}.values", lengths)
        )
        steps += [
            call("tf.RaggedTensor.from_uniform_row_length", value, str(size))
            for size in reversed(outer)
        ]
    spec = call("tf.io.RaggedFeature", *items)
    return _Part(feature.name, spec, missing, (*steps, *_cast(value, feature)))


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
    """The stored bytes of an array or tensor without values."""
    if feature.content is Content.ARRAY:
        return '""'
    sides = tuple(size or 0 for size in feature.shape)
    text = feature.dtype in ("string", "bytes")
    values: Any = [] if text else np.zeros(0, feature.dtype)
    return quoted(Tensor(feature.dtype, sides, values).to_bytes())


def _sides(shape: Sequence[int | None]) -> str:
    """A shape for tf.reshape: -1 for what is unknown."""
    unknown = 0 if 0 in shape else -1  # beside a 0 there is nothing to find out
    return str([unknown if size is None else size for size in shape])


def _tf_type(feature: FeatureSpec) -> str:
    return f"tf.{'string' if feature.dtype == 'bytes' else feature.dtype}"


def _cast(value: str, feature: FeatureSpec) -> tuple[Code, ...]:
    """From the type it is stored in to its own."""
    wanted = _tf_type(feature)
    if wanted == _STORED[feature.kind]:
        return ()
    return (call("tf.cast", value, wanted),)


def _decode_image(value: str, feature: FeatureSpec) -> Call:
    items = [value, "expand_animations=False"]
    channels = feature.shape[2] if len(feature.shape) == 3 else None
    if channels in _DECODED_CHANNELS:
        items.insert(1, f"channels={channels}")
    if feature.dtype != "uint8":
        items.append(f"dtype={_tf_type(feature)}")
    return call("tf.io.decode_image", *items)


def _raw_values(value: str, feature: FeatureSpec) -> Call:
    twin = _RAW_TWINS.get(feature.dtype)
    if twin is None:
        return call("tf.io.decode_raw", value, _tf_type(feature))
    return call("tf.bitcast", call("tf.io.decode_raw", value, twin), _tf_type(feature))


def _decode_raw(
    value: str, feature: FeatureSpec, sides: Sequence[int | None]
) -> tuple[Code, ...]:
    return (_raw_values(value, feature), call("tf.reshape", value, _sides(sides)))


def _parse_tensor(value: str, feature: FeatureSpec) -> Call:
    parsed = call("tf.io.parse_tensor", value, f"out_type={_tf_type(feature)}")
    return call("tf.ensure_shape", parsed, str(list(feature.shape)))


def _each_step(value: str, feature: FeatureSpec) -> Call:
    """Decodes arrays or tensors, one for each item of a vector."""
    shape, dtype = feature.shape, _tf_type(feature)
    if feature.content is Content.ARRAY:
        decoded = call("tf.reshape", _raw_values("step", feature), _sides(shape))
    else:
        decoded = _parse_tensor("step", feature)
    items = [str(list(shape)), dtype]
    signature = call("fn_output_signature=tf.TensorSpec", *items)
    if None in shape:
        # All ragged: of no steps at all, TensorFlow cannot stack uniform dimensions.
        rank = f"ragged_rank={len(shape) - 1}"
        signature = call("fn_output_signature=tf.RaggedTensorSpec", *items, rank)
        if len(shape) > 1:
            decoded = call("tf.RaggedTensor.from_tensor", decoded, rank)
    step = Call(f"lambda step: {decoded.head}", decoded.items, decoded.tail)
    return call("tf.map_fn", step, value, signature)


def _raw_code(feature: FeatureSpec) -> str:
    """A record that is a feature's bytes: nothing is parsed, at most decoded."""
    text = f"# A record is the bytes of {quoted(feature.name)}: nothing to parse.\n"
    if feature.content is Content.PICTURE:
        text += f"# Its pixels: {_decode_image('record', feature)}\n"
    elif feature.content is Content.ARRAY:
        values = call(
            "tf.reshape", _raw_values("record", feature), _sides(feature.shape)
        )
        text += f"# Its values: {values}\n"
    elif feature.content is Content.TENSOR:
        text += f"# Its values: {_parse_tensor('record', feature)}\n"
    return text
