"""Writes TensorFlow code that loads a whole dataset, ready to run as it is printed.

The code takes the files of a split from manifest.json, never by a pattern: what an
unfinished run or a replaced dataset left in the folder would be among them.
"""

from __future__ import annotations

from collections.abc import Mapping

from recordmill.schemas.dataset.manifest import Manifest, schema_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.feature import Content, FeatureSpec, Schema
from recordmill.transforms.decode.code_text import (
    call,
    format_assignment,
    format_lines,
    list_code,
    quoted,
)
from recordmill.transforms.decode.tf_code import decode_image
from recordmill.transforms.decode.tf_spec import has_one_size, parsing_spec

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
        feature.content is Content.PICTURE
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
