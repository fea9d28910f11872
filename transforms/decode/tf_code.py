"""Generates TensorFlow code that loads a whole dataset, ready to run as printed.

The code reads the files of a split from manifest.json and never uses a pattern, which
would match leftovers of an unfinished run or a replaced dataset. Expressions are texts,
each on one line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.schemas.options import Payload
from recordmill.transforms.encode.payloads import check_payload, raw_feature
from recordmill.transforms.encode.tensors import tensor_head


def quote_literal(value: str | bytes) -> str:
    """Returns the value's repr, in double quotes unless it contains double quotes.

    >>> print(quote_literal("it's"), quote_literal('say "x"'))
    "it's" 'say "x"'
    """
    plain = repr(value)
    quote = plain[-1]
    if quote == "'" and '"' not in plain:
        start = plain.index(quote)
        return f'{plain[:start]}"{plain[start + 1 : -1]}"'
    return plain


_STORED = {Kind.BYTES: "tf.string", Kind.FLOAT: "tf.float32", Kind.INT64: "tf.int64"}
# Types that tf.io.decode_raw does not support, read as other types of the same size.
_RAW_TWINS = {"uint32": "tf.int32", "uint64": "tf.int64"}
_DECODED_CHANNELS = (1, 3, 4)  # supported by tf.io.decode_image


def _reshape(value_code: str, shape: Sequence[int | None]) -> str:
    """Returns code that reshapes a flat value; at most one dimension may be unknown."""
    unknown = 0 if 0 in shape else -1  # with a 0, TensorFlow cannot infer a -1
    sides = [unknown if size is None else size for size in shape]
    return f"tf.reshape({value_code}, {sides})"


def _tf_type(feature: FeatureSpec) -> str:
    return f"tf.{'string' if feature.dtype == 'bytes' else feature.dtype}"


def _cast(feature: FeatureSpec) -> tuple[str, ...]:
    """Returns code that casts to the feature's type; empty if none is needed."""
    own_type = _tf_type(feature)
    if own_type == _STORED[feature.kind]:
        return ()
    return (f"tf.cast({_value_of(feature)}, {own_type})",)


def _decode_image(
    value_code: str, feature: FeatureSpec, channels: int | None = None
) -> str:
    """Returns code that decodes an image, by default with the image's own channels."""
    arguments = [value_code, "expand_animations=False"]
    if channels is None and len(feature.shape) == 3:
        channels = feature.shape[2]
    if channels in _DECODED_CHANNELS:
        arguments.insert(1, f"channels={channels}")
    if feature.dtype not in ("uint8", "bytes"):  # bytes: images of several formats
        arguments.append(f"dtype={_tf_type(feature)}")
    return f"tf.io.decode_image({', '.join(arguments)})"


def _raw_values(value_code: str, feature: FeatureSpec) -> str:
    """Returns code that decodes an array's bytes to flat values."""
    own_type = _tf_type(feature)
    twin = _RAW_TWINS.get(feature.dtype)
    if twin is None:
        return f"tf.io.decode_raw({value_code}, {own_type})"
    return f"tf.bitcast(tf.io.decode_raw({value_code}, {twin}), {own_type})"


def _parse_tensor(value_code: str, feature: FeatureSpec) -> str:
    """Returns code that parses a serialized tensor of the declared shape."""
    parsed = f"tf.io.parse_tensor({value_code}, out_type={_tf_type(feature)})"
    return f"tf.ensure_shape({parsed}, {list(feature.shape)})"


def _decode_steps(value_code: str, feature: FeatureSpec) -> str:
    """Returns code that decodes a vector of arrays or tensors, one for each step."""
    shape = feature.shape
    if feature.content is Content.ARRAY:
        decoded = _reshape(_raw_values("step", feature), shape)
    else:
        decoded = _parse_tensor("step", feature)
    kind, arguments = "TensorSpec", f"{list(shape)}, {_tf_type(feature)}"
    if None in shape:
        # All dimensions are ragged: without steps TensorFlow cannot stack uniform ones.
        rank = f"ragged_rank={len(shape) - 1}"
        kind, arguments = "RaggedTensorSpec", f"{arguments}, {rank}"
        if len(shape) > 1:
            decoded = f"tf.RaggedTensor.from_tensor({decoded}, {rank})"
    signature = f"fn_output_signature=tf.{kind}({arguments})"
    return f"tf.map_fn(lambda step: {decoded}, {value_code}, {signature})"


# A missing value of an optional feature becomes, in this order:
#
#     empty              if a dimension is unknown
#     NaN, -1            for floats and for class labels
#     a first dimension  of 0 if missing, else 1: no value of these types is unused

_FIRST_DIMENSION = "a first dimension of 0, otherwise 1"


class _FeatureCode(NamedTuple):
    """The code for one feature."""

    name: str  # its key in the parser's result
    spec: str  # its entry in the parser's specification
    missing_note: str = ""  # description of the parser's result for a missing value
    steps: tuple[
        str, ...
    ] = ()  # expressions that are then applied in order, or comments


def _value_of(feature: FeatureSpec) -> str:
    """Returns the code of a feature's value in the parser's result."""
    return f"example[{quote_literal(feature.name)}]"


def _feature_code(feature: FeatureSpec) -> _FeatureCode:
    """Returns the code for a feature that is not a feature list."""
    if feature.is_ragged:
        return _ragged_code(feature)
    if feature.content is Content.VALUES:
        return _values_code(feature)
    value_code, shape = _value_of(feature), feature.shape
    sides: tuple[int | None, ...] = shape
    spec, missing = "tf.io.FixedLenFeature([], tf.string)", ""
    if feature.optional:
        if feature.content is not Content.IMAGE and (None in shape or 0 in shape):
            nothing, missing = _empty_bytes_code(feature), "empty"
            spec = f"tf.io.FixedLenFeature([], tf.string, default_value={nothing})"
        else:
            spec, missing = "tf.io.RaggedFeature(tf.string)", _FIRST_DIMENSION
            sides = (-1, *shape)
    if feature.content is Content.IMAGE:
        steps: tuple[str, ...] = (f"# pixels: {_decode_image(value_code, feature)}",)
    elif feature.content is Content.ARRAY:
        steps = _raw_values(value_code, feature), _reshape(value_code, sides)
    elif sides == shape:
        steps = (_parse_tensor(value_code, feature),)
    else:
        steps = (_decode_steps(value_code, feature),)
    return _FeatureCode(feature.name, spec, missing, steps)


def _values_code(feature: FeatureSpec) -> _FeatureCode:
    shape, stored, missing = feature.shape, _STORED[feature.kind], ""
    spec = f"tf.io.FixedLenFeature({list(shape)}, {stored})"
    ragged = f"tf.io.RaggedFeature({stored})"
    steps: tuple[str, ...] = ()
    if None in shape or (feature.optional and 0 in shape):
        spec, missing = ragged, "empty" if feature.optional else ""
        if len(shape) > 1:
            steps = (_reshape(_value_of(feature), shape),)
    elif feature.optional:
        default = ""  # a value that no example has
        if feature.dtype.startswith("float"):
            missing, default = "NaN", 'float("nan")'
        elif feature.class_names and feature.kind is Kind.INT64:
            missing = default = "-1"
        if default:
            if shape:
                default = f"[{default}] * {math.prod(_known_sizes(shape))}"
            spec = f"{spec[:-1]}, default_value={default})"
        else:
            spec, missing = ragged, _FIRST_DIMENSION
            if shape:
                steps = (_reshape(_value_of(feature), (-1, *shape)),)
    return _FeatureCode(feature.name, spec, missing, (*steps, *_cast(feature)))


def _ragged_code(feature: FeatureSpec) -> _FeatureCode:
    flat, *row_lengths = map(quote_literal, feature.keys)
    partitions = [f"tf.io.RaggedFeature.RowLengths({key})" for key in row_lengths]
    partitions += _uniform_row_lengths(feature.shape[feature.ragged_rank + 1 :])
    spec = (
        f"tf.io.RaggedFeature({_STORED[feature.kind]}, value_key={flat}, "
        f"partitions=[{', '.join(partitions)}])"
    )
    missing = "empty" if feature.optional else ""
    return _FeatureCode(feature.name, spec, missing, _cast(feature))


def _feature_list_code(feature: FeatureSpec) -> _FeatureCode:
    """Returns the code for a feature list; the steps are the first dimension."""
    value_code, shape = _value_of(feature), feature.shape
    is_of_values = feature.content is Content.VALUES
    missing = "no steps" if feature.optional else ""
    if is_of_values and None in shape:
        return _ragged_steps_code(feature, missing)
    sides = list(shape) if is_of_values else []
    more = ", allow_missing=True" if missing else ""
    stored = _STORED[feature.kind]
    spec = f"tf.io.FixedLenSequenceFeature({sides}, {stored}{more})"
    if is_of_values:
        steps = _cast(feature)
    elif feature.content is Content.IMAGE:
        steps = (f"# pixels of a step: {_decode_image('step', feature)}",)
    elif feature.content is Content.ARRAY and None not in shape:
        steps = _raw_values(value_code, feature), _reshape(value_code, (-1, *shape))
    else:
        steps = (_decode_steps(value_code, feature),)
    return _FeatureCode(feature.name, spec, missing, steps)


def _ragged_steps_code(feature: FeatureSpec, missing: str) -> _FeatureCode:
    """Returns the code for steps of varying size.

    The parser returns one ragged dimension; the code restores the dimensions before it.
    """
    value_code, arguments = _value_of(feature), _STORED[feature.kind]
    unknown = feature.shape.index(None)
    if inner := _uniform_row_lengths(feature.shape[unknown + 1 :]):
        arguments += f", partitions=[{', '.join(inner)}]"
    steps: list[str] = []
    if outer := _known_sizes(feature.shape[:unknown]):
        num_inner_lists = math.prod(outer)
        lengths = f"tf.math.floordiv({value_code}.row_lengths(), {num_inner_lists})"
        repeated = f"tf.repeat({lengths}, {num_inner_lists})"
        steps.append(
            f"tf.RaggedTensor.from_row_lengths({value_code}.values, {repeated})"
        )
        steps += [
            f"tf.RaggedTensor.from_uniform_row_length({value_code}, {size})"
            for size in reversed(outer)
        ]
    spec = f"tf.io.RaggedFeature({arguments})"
    return _FeatureCode(feature.name, spec, missing, (*steps, *_cast(feature)))


def _uniform_row_lengths(sizes: Sequence[int | None]) -> list[str]:
    return [f"tf.io.RaggedFeature.UniformRowLength({size})" for size in sizes]


def _known_sizes(shape: Sequence[int | None]) -> list[int]:
    return [size for size in shape if size is not None]


def _empty_bytes_code(feature: FeatureSpec) -> str:
    """Returns the code of the stored bytes of an array or tensor without values."""
    if feature.content is Content.ARRAY:
        return '""'
    return quote_literal(
        tensor_head(feature.dtype, [size or 0 for size in feature.shape])
    )


def parsing_spec(schema: Schema, payload: Payload) -> str:
    """Returns Python code with a function that parses one record."""
    check_payload(schema, payload)
    if payload == "raw":
        return _raw_code(raw_feature(schema))
    context = [_feature_code(f) for f in schema.features if not f.is_sequence]
    lists = [_feature_list_code(f) for f in schema.features if f.is_sequence]
    if payload == "sequence_example":
        specs = [
            *_dict_lines("CONTEXT_FEATURES", context),
            "",
            *_dict_lines("SEQUENCE_FEATURES", lists),
        ]
        parse = [
            "    context, sequences = tf.io.parse_single_sequence_example(",
            "        record, CONTEXT_FEATURES, SEQUENCE_FEATURES",
            "    )",
            "    example = {**context, **sequences}",
        ]
    else:
        specs = _dict_lines("FEATURES", context)
        parse = ["    example = tf.io.parse_single_example(record, FEATURES)"]
        if payload == "json":
            parse.insert(0, "    record = tf.io.decode_json_example(record)")
    lines = [
        "import tensorflow as tf",
        "",
        *specs,
        "",
        "",
        f"def {_PARSERS[payload]}(record):",
        '    """The features of one record; for tf.data.Dataset.map."""',
        *parse,
    ]
    for name, _, _, steps in [*context, *lists]:
        for step in steps:
            target = (
                "" if step.startswith("# ") else f"example[{quote_literal(name)}] = "
            )
            lines.append(f"    {target}{step}")
    return "\n".join([*lines, "    return example"]) + "\n"


def _has_one_size(feature: FeatureSpec) -> bool:
    """Checks whether the parser returns the same shape for each record."""
    is_encoded = feature.content is Content.IMAGE  # one string, of any image
    if feature.is_sequence or (None in feature.shape and not is_encoded):
        return False
    return _feature_code(feature).spec.startswith("tf.io.FixedLenFeature")


def _dict_lines(name: str, parts: Sequence[_FeatureCode]) -> list[str]:
    if not parts:
        return [f"{name} = {{}}"]
    lines = [f"{name} = {{"]
    for part in parts:
        if part.missing_note:
            lines.append(f"    # missing: {part.missing_note}")
        lines.append(f"    {quote_literal(part.name)}: {part.spec},")
    return [*lines, "}"]


def _raw_code(feature: FeatureSpec) -> str:
    """Returns comments for raw records, which need no parser."""
    text = (
        f"# A record is the bytes of {quote_literal(feature.name)}: nothing to parse.\n"
    )
    if feature.content is Content.IMAGE:
        text += f"# Its pixels: {_decode_image('record', feature)}\n"
    elif feature.content is Content.ARRAY:
        values = _reshape(_raw_values("record", feature), feature.shape)
        text += f"# Its values: {values}\n"
    elif feature.content is Content.TENSOR:
        text += f"# Its values: {_parse_tensor('record', feature)}\n"
    return text


_MAX_CLASSES = 100  # maximum number of class names that are printed
_BATCH_SIZE = 32
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
    """Returns a Python program that loads a dataset and prints shapes of two batches.

    `names` has the class names by feature. `folder` is a path or URL of the dataset.

    Raises:
      UsageError: TensorFlow has no reader of its shards.
    """
    if manifest.container == "array_record":
        raise UsageError(
            f"{folder}: its shards are ArrayRecord files, which tf.data cannot read. "
            "Load it with `recordmill.open_dataset`, Grain or tfds.data_source, or "
            "convert with `container=tfrecord`"
        )
    schema = schema_of(manifest, names)
    code = parsing_spec(schema, manifest.payload)
    if not code.startswith("import "):
        code = f"import tensorflow as tf\n\n{code}"
    parser = _PARSERS[manifest.payload]
    images = [
        feature
        for feature in schema.features
        if feature.content is Content.IMAGE  # that a single op decodes
        and feature.dtype == "uint8"
        and not (feature.optional or feature.is_sequence)
        and parser
    ]
    steps = [parser, "decode_images" if images else ""]
    parts = [
        f"import json\n\n{code}",
        _decode_images(images) if images else "",
        _load_dataset(manifest, folder, filter(None, steps)),
        _class_names(names),
        _batches(manifest, schema, images),
    ]
    return "\n\n".join(part for part in parts if part)


def _decode_images(images: list[FeatureSpec]) -> str:
    """Returns code that decodes images; if the channels are unknown, to RGB."""
    lines = [
        "def decode_images(example):",
        '    """Pixels in place of encoded images; for tf.data.Dataset.map."""',
    ]
    for feature in images:
        value_code = _value_of(feature)
        height, width, channels = feature.shape or (None, None, None)
        channels = channels or 3  # all images of a batch must have the same number
        shape = [height, width, channels]
        lines += [
            f"    pixels = {_decode_image(value_code, feature, channels)}",
            f"    {value_code} = tf.ensure_shape(pixels, {shape})",
        ]
    return "\n".join([*lines, "    return example"]) + "\n"


def _load_dataset(manifest: Manifest, folder: str, steps: Iterable[str]) -> str:
    first = next(iter(manifest.splits), "train")
    packed = 'compression_type="GZIP", ' if manifest.compression == "gzip" else ""
    parallel = "num_parallel_reads=tf.data.AUTOTUNE"
    lines = [
        f"def load_dataset(split={quote_literal(first)}, folder={quote_literal(folder)}):",
        '    """Examples of a split; the manifest records which files are its '
        'shards."""',
        '    with tf.io.gfile.GFile(f"{folder}/manifest.json") as file:',
        '        shards = json.load(file)["splits"][split]["shards"]',
        "    files = [f\"{folder}/{shard['file']}\" for shard in shards]",
        f"    dataset = tf.data.TFRecordDataset(files, {packed}{parallel})",
        *(f"    dataset = dataset.map({step}, {_PARALLEL})" for step in steps),
    ]
    return "\n".join([*lines, "    return dataset"]) + "\n"


def _class_names(names: Mapping[str, tuple[str, ...]]) -> str:
    lines = []
    for feature, classes in names.items():
        if 0 < len(classes) <= _MAX_CLASSES:
            lines += [f"# What the numbers of {quote_literal(feature)} stand for."]
            lines.append(
                f"{_constant(feature)} = [{', '.join(map(quote_literal, classes))}]"
            )
    return "\n".join(lines) + "\n" if lines else ""


def _constant(feature: str) -> str:
    """Returns the name of the constant with a feature's class names.

    >>> _constant("image/class/label")
    'IMAGE_CLASS_LABEL_NAMES'
    """
    text = "".join(c if c.isascii() and c.isalnum() else "_" for c in feature)
    return f"{'_' if text[:1].isdigit() else ''}{text.upper()}_NAMES"


def _batches(manifest: Manifest, schema: Schema, images: list[FeatureSpec]) -> str:
    """Returns a loop over two batches, which are ragged if examples differ in size."""
    is_raw = manifest.payload == "raw"
    one_size = is_raw or all(map(_has_one_size, schema.features))
    if any(None in feature.shape[:2] or not feature.shape for feature in images):
        one_size = False
    batch = "batch" if one_size else "ragged_batch"
    note = "    # Sizes may differ. Of one shape: padded_batch, or convert with resize."
    shapes = "{name: value.shape for name, value in batch.items()}"
    print_code = f"print({'batch.shape' if is_raw else shapes})"
    return "\n".join(
        [
            'if __name__ == "__main__":',
            *([note] if images and not one_size else []),
            f"    dataset = load_dataset().shuffle(1000).{batch}({_BATCH_SIZE})",
            "    for batch in dataset.prefetch(tf.data.AUTOTUNE).take(2):",
            f"        {print_code}",
            "",
        ]
    )
