"""Writes TensorFlow code that loads a whole dataset, ready to run as it is printed.

The code takes the files of a split from manifest.json, never by a pattern: what an
unfinished run or a replaced dataset left in the folder would be among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.schemas.options import Payload
from recordmill.transforms.decode.columns import Tensor
from recordmill.transforms.encode.payloads import check_payload, raw_feature

LINE_LENGTH = 88
_INDENT = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A bracketed expression as text: a call, a list or a keyword argument.

    Attributes:
      head: the text up to and including the opening bracket.
      items: the expressions between the commas.
      tail: the closing bracket and what follows.
      subscript: whether a comma after the last item would change the meaning.
    """

    head: str
    items: tuple[Code, ...]
    tail: str = ")"
    subscript: bool = False

    def __str__(self) -> str:
        return f"{self.head}{', '.join(map(str, self.items))}{self.tail}"


Code = str | Call


def call(function: str, *items: Code) -> Call:
    """Returns a call of a function."""
    return Call(f"{function}(", items)


def list_code(items: tuple[Code, ...], keyword: str = "") -> Call:
    """Returns a list, as a keyword argument if a keyword is given."""
    return Call(f"{keyword}=[" if keyword else "[", items, "]")


def quoted(value: str | bytes) -> str:
    """Returns the value's repr, in double quotes unless it contains some.

    >>> print(quoted("it's"), quoted('say "x"'))
    "it's" 'say "x"'
    """
    plain = repr(value)
    quote = plain[-1]
    if quote == "'" and '"' not in plain:
        start = plain.index(quote)
        return f'{plain[:start]}"{plain[start + 1 : -1]}"'
    return plain


def format_lines(
    code: Code, indent: int, before: str = "", after: str = ""
) -> list[str]:
    """Formats an expression on as many lines as it needs."""
    margin = " " * indent
    line = f"{margin}{before}{code}{after}"
    if isinstance(code, str) or not code.items or len(line) <= LINE_LENGTH:
        return [line]
    first, last = f"{margin}{before}{code.head}", f"{margin}{code.tail}{after}"
    inner = f"{margin}{' ' * _INDENT}{', '.join(map(str, code.items))}"
    if len(inner) <= LINE_LENGTH or code.subscript:
        return [first, inner, last]
    items = [
        line
        for item in code.items
        for line in format_lines(item, indent + _INDENT, after=",")
    ]
    return [first, *items, last]


def format_assignment(target: str, code: Call, indent: int) -> list[str]:
    """Formats `target = code`, in extra brackets if even the first line is too long."""
    lines = format_lines(code, indent, before=f"{target} = ")
    if len(lines) == 1 or len(lines[0]) <= LINE_LENGTH:
        return lines
    margin = " " * indent
    return [
        f"{margin}{target} = (",
        *format_lines(code, indent + _INDENT),
        f"{margin})",
    ]


STORED = {Kind.BYTES: "tf.string", Kind.FLOAT: "tf.float32", Kind.INT64: "tf.int64"}
# Types that tf.io.decode_raw does not support, read as others of the same size.
_RAW_TWINS = {"uint32": "tf.int32", "uint64": "tf.int64"}
_DECODED_CHANNELS = (1, 3, 4)  # tf.io.decode_image's


def reshape(value: Code, shape: Sequence[int | None]) -> Call:
    """Returns code that reshapes a flat value; at most one dimension may be unknown."""
    unknown = 0 if 0 in shape else -1  # with a 0, TensorFlow cannot infer a -1
    sides = [unknown if size is None else size for size in shape]
    return call("tf.reshape", value, str(sides))


def tf_type(feature: FeatureSpec) -> str:
    """Returns the TensorFlow type of the feature's values."""
    return f"tf.{'string' if feature.dtype == 'bytes' else feature.dtype}"


def cast(value: str, feature: FeatureSpec) -> tuple[Code, ...]:
    """Returns code that casts to the feature's type; empty if none is needed."""
    own_type = tf_type(feature)
    if own_type == STORED[feature.kind]:
        return ()
    return (call("tf.cast", value, own_type),)


def decode_image(value: str, feature: FeatureSpec, channels: int | None = None) -> Call:
    """Returns code that decodes an image to pixels.

    Args:
      value: code of the encoded image.
      feature: an image.
      channels: of the pixels; by default what the feature says, or those of the image.
    """
    items = [value, "expand_animations=False"]
    if channels is None:
        channels = feature.shape[2] if len(feature.shape) == 3 else None
    if channels in _DECODED_CHANNELS:
        items.insert(1, f"channels={channels}")
    if feature.dtype not in ("uint8", "bytes"):  # bytes: images of several formats
        items.append(f"dtype={tf_type(feature)}")
    return call("tf.io.decode_image", *items)


def raw_values(value: str, feature: FeatureSpec) -> Call:
    """Returns code that decodes an array's bytes to flat values."""
    twin = _RAW_TWINS.get(feature.dtype)
    if twin is None:
        return call("tf.io.decode_raw", value, tf_type(feature))
    return call("tf.bitcast", call("tf.io.decode_raw", value, twin), tf_type(feature))


def decode_raw(
    value: str, feature: FeatureSpec, shape: Sequence[int | None]
) -> tuple[Code, ...]:
    """Returns code that decodes the bytes of one or more arrays to this shape."""
    return (raw_values(value, feature), reshape(value, shape))


def parse_tensor(value: str, feature: FeatureSpec) -> Call:
    """Returns code that parses a serialized tensor of the declared shape."""
    parsed = call("tf.io.parse_tensor", value, f"out_type={tf_type(feature)}")
    return call("tf.ensure_shape", parsed, str(list(feature.shape)))


def each_step(value: str, feature: FeatureSpec) -> Call:
    """Returns code that decodes a vector of arrays or tensors, one for each item."""
    shape, dtype = feature.shape, tf_type(feature)
    if feature.content is Content.ARRAY:
        decoded = reshape(raw_values("step", feature), shape)
    else:
        decoded = parse_tensor("step", feature)
    items = [str(list(shape)), dtype]
    signature = call("fn_output_signature=tf.TensorSpec", *items)
    if None in shape:
        # All dimensions are ragged: without steps TensorFlow cannot stack uniform ones.
        rank = f"ragged_rank={len(shape) - 1}"
        signature = call("fn_output_signature=tf.RaggedTensorSpec", *items, rank)
        if len(shape) > 1:
            decoded = call("tf.RaggedTensor.from_tensor", decoded, rank)
    step = Call(f"lambda step: {decoded.head}", decoded.items, decoded.tail)
    return call("tf.map_fn", step, value, signature)


# A missing value of an optional feature becomes, in this order:
#
#     empty              where a dimension is unknown
#     NaN, -1            for floats and for class labels
#     a first dimension  of 0 if missing, else 1: all values of these types are in use


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
    elif feature.content is not Content.IMAGE and _can_be_empty(shape):
        spec, missing, sides = _fixed("tf.string", _nothing(feature)), "empty", shape
    else:
        spec = call("tf.io.RaggedFeature", "tf.string")
        missing, sides = "a first dimension of 0, otherwise 1", (-1, *shape)
    if feature.content is Content.IMAGE:
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
    elif feature.content is Content.IMAGE:
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


def parsing_spec(schema: Schema, payload: Payload) -> str:
    """Returns Python code with a function that parses one record."""
    check_payload(schema, payload)
    if payload == "raw":
        return _raw_code(raw_feature(schema))
    context = [feature_code(f) for f in schema.features if not f.sequence]
    lines = ["import tensorflow as tf", ""]
    if payload == "sequence_example":
        lists = [feature_list_code(f) for f in schema.features if f.sequence]
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


def has_one_size(feature: FeatureSpec) -> bool:
    """Tells whether the parser returns a feature of the same shape for each record."""
    is_encoded = feature.content is Content.IMAGE  # one string, of any image
    if feature.sequence or (None in feature.shape and not is_encoded):
        return False
    spec = feature_code(feature).spec
    return isinstance(spec, Call) and spec.head.startswith("tf.io.FixedLenFeature")


def _dict_lines(name: str, parts: Sequence[FeatureCode]) -> list[str]:
    if not parts:
        return [f"{name} = {{}}"]
    lines = [f"{name} = {{"]
    for part in parts:
        if part.missing:
            lines.append(f"    # missing: {part.missing}")
        lines += format_lines(part.spec, 4, before=f"{quoted(part.name)}: ", after=",")
    return [*lines, "}"]


def _step_lines(part: FeatureCode) -> Iterator[str]:
    for step in part.steps:
        if isinstance(step, Call):
            yield from format_assignment(value_of(part.name), step, 4)
        else:
            yield f"    # {step}"


def _raw_code(feature: FeatureSpec) -> str:
    """Returns the comments for raw records, which need no parser."""
    text = f"# A record is the bytes of {quoted(feature.name)}: nothing to parse.\n"
    if feature.content is Content.IMAGE:
        text += f"# Its pixels: {decode_image('record', feature)}\n"
    elif feature.content is Content.ARRAY:
        values = reshape(raw_values("record", feature), feature.shape)
        text += f"# Its values: {values}\n"
    elif feature.content is Content.TENSOR:
        text += f"# Its values: {parse_tensor('record', feature)}\n"
    return text


MAX_CLASSES = 100  # names that are printed; more are read from their file
BATCH_SIZE = 32
_PARALLEL = "num_parallel_calls=tf.data.AUTOTUNE"
_PARSERS = {
    "example": "parse_example",
    "json": "parse_example",
    "sequence_example": "parse_sequence_example",
    "raw": "",
}


def loading_code(
    manifest: Manifest, names: Mapping[str, tuple[str, ...]], folder: str
) -> str:
    """Returns a Python program that loads the dataset and prints shapes of two batches.

    Args:
      manifest: of the dataset.
      names: class names by feature.
      folder: of the dataset, a path or a URL.

    Raises:
      UsageError: TensorFlow has no reader of its shards.
    """
    if manifest.container == "array_record":
        raise UsageError(
            f"{folder}: its shards are ArrayRecord files, which tf.data does not read. "
            "Load it by `recordmill.open_dataset`, Grain or tfds.data_source, or convert "
            "with `container=tfrecord`"
        )
    schema = schema_of(manifest, names)
    code = parsing_spec(schema, manifest.payload)
    if not code.startswith("import "):
        code = f"import tensorflow as tf\n\n{code}"
    images = [f for f in schema.features if is_decoded(f)]
    steps = [name for name in (_PARSERS[manifest.payload],) if name]
    if images and steps:
        steps.append("decode_images")
    else:
        images = []
    parts = [
        f"import json\n\n{code}",
        *([_decode_images(images)] if images else []),
        _load_dataset(manifest, folder, steps),
        _class_names(names),
        _batches(manifest, schema, images),
    ]
    return "\n\n".join(part for part in parts if part)


def is_decoded(feature: FeatureSpec) -> bool:
    """Tells whether the code decodes the feature: an image that one op decodes."""
    return (
        feature.content is Content.IMAGE
        and feature.dtype == "uint8"
        and not (feature.optional or feature.sequence)
    )


def _decode_images(images: list[FeatureSpec]) -> str:
    """Returns a function that decodes images; of unknown channels all become RGB."""
    lines = [
        "def decode_images(example):",
        '    """Pixels in place of encoded images; for tf.data.Dataset.map."""',
    ]
    for feature in images:
        value = f"example[{quoted(feature.name)}]"
        height, width, channels = feature.shape or (None, None, None)
        channels = channels or 3  # images may differ in it, and a batch may not
        decoded = decode_image(value, feature, channels)
        lines += format_assignment("pixels", decoded, 4)
        shaped = call("tf.ensure_shape", "pixels", str([height, width, channels]))
        lines += format_assignment(value, shaped, 4)
    return "\n".join([*lines, "    return example"]) + "\n"


def _load_dataset(manifest: Manifest, folder: str, steps: list[str]) -> str:
    first = next(iter(manifest.splits), "train")
    arguments = ["files", "num_parallel_reads=tf.data.AUTOTUNE"]
    if manifest.compression == "gzip":
        arguments.insert(1, 'compression_type="GZIP"')
    lines = [
        f"def load_dataset(split={quoted(first)}, folder={quoted(folder)}):",
        '    """Examples of a split; the manifest says which files are its shards."""',
        '    with tf.io.gfile.GFile(f"{folder}/manifest.json") as file:',
        '        shards = json.load(file)["splits"][split]["shards"]',
        "    files = [f\"{folder}/{shard['file']}\" for shard in shards]",
        *format_assignment("dataset", call("tf.data.TFRecordDataset", *arguments), 4),
    ]
    for step in steps:
        mapped = call("dataset.map", step, _PARALLEL)
        lines += format_assignment("dataset", mapped, 4)
    return "\n".join([*lines, "    return dataset"]) + "\n"


def _class_names(names: Mapping[str, tuple[str, ...]]) -> str:
    lines = []
    for feature, classes in names.items():
        if 0 < len(classes) <= MAX_CLASSES:
            lines += [f"# What the numbers of {quoted(feature)} stand for."]
            listed = list_code(tuple(quoted(name) for name in classes))
            lines += format_lines(listed, 0, before=f"{_constant(feature)} = ")
    return "\n".join(lines) + "\n" if lines else ""


def _constant(feature: str) -> str:
    """Returns a name for a feature's class names.

    >>> _constant("image/class/label")
    'IMAGE_CLASS_LABEL_NAMES'
    """
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in feature)
    return f"{'_' if text[:1].isdigit() else ''}{text.upper()}_NAMES"


def _batches(manifest: Manifest, schema: Schema, images: list[FeatureSpec]) -> str:
    """Returns a loop over two batches: ragged where examples differ in size."""
    if manifest.payload == "raw":
        one_size = True
    else:
        one_size = all(has_one_size(feature) for feature in schema.features)
    if any(None in feature.shape[:2] or not feature.shape for feature in images):
        one_size = False
    batch = "batch" if one_size else "ragged_batch"
    shown = (
        "print(batch.shape)"
        if manifest.payload == "raw"
        else "print({name: value.shape for name, value in batch.items()})"
    )
    return "\n".join(
        [
            'if __name__ == "__main__":',
            f"    dataset = load_dataset().shuffle(1000).{batch}({BATCH_SIZE})",
            "    for batch in dataset.prefetch(tf.data.AUTOTUNE).take(2):",
            f"        {shown}",
            "",
        ]
    )
