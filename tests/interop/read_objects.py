"""Read objects in images with TensorFlow and TFDS, as their users would.

    python tests/interop/read_objects.py tfds FOLDER
    python tests/interop/read_objects.py program FOLDER < [the program of inspect --tf]
    python tests/interop/read_objects.py detection SHARD

Run by the interop environment's python (requirements-interop.lock). It never imports
recordmill. A line of JSON is printed for each example.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

# The parsing spec of TfExampleDecoder, with PNG masks and keypoints. Source:
# research/object_detection/data_decoders/tf_example_decoder.py in tensorflow/models,
# commit 015ec401bc542f62773c237f212a4ca2c879e1ef.
_TEXT = tf.io.FixedLenFeature((), tf.string, default_value="")
_SIDE = tf.io.FixedLenFeature((), tf.int64, default_value=1)
_FLOATS = tf.io.VarLenFeature(tf.float32)
_INTS = tf.io.VarLenFeature(tf.int64)
_TEXTS = tf.io.VarLenFeature(tf.string)
DETECTION = {
    "image/encoded": _TEXT,
    "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
    "image/filename": _TEXT,
    "image/key/sha256": _TEXT,
    "image/source_id": _TEXT,
    "image/height": _SIDE,
    "image/width": _SIDE,
    "image/object/bbox/xmin": _FLOATS,
    "image/object/bbox/xmax": _FLOATS,
    "image/object/bbox/ymin": _FLOATS,
    "image/object/bbox/ymax": _FLOATS,
    "image/object/class/label": _INTS,
    "image/object/class/text": _TEXTS,
    "image/object/area": _FLOATS,
    "image/object/is_crowd": _INTS,
    "image/object/difficult": _INTS,
    "image/object/group_of": _INTS,
    "image/object/weight": _FLOATS,
    "image/object/keypoint/x": _FLOATS,
    "image/object/keypoint/y": _FLOATS,
    "image/object/keypoint/visibility": _INTS,
    "image/object/mask": _TEXTS,
}


def plain(value: Any) -> Any:
    """Give numbers and text as JSON has them, of images their shape."""
    if isinstance(value, tf.sparse.SparseTensor):
        value = tf.sparse.to_dense(value)
    if isinstance(value, tf.Tensor | tf.RaggedTensor):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def detection(shard: str) -> Iterator[dict[str, Any]]:
    """Yield what the decoder's spec finds, and what its handlers make of it."""
    for record in tf.data.TFRecordDataset(shard):
        found = tf.io.parse_single_example(record, DETECTION)
        # As slim's Image and BoundingBox handlers and _decode_png_instance_masks do.
        image = tf.io.decode_image(found.pop("image/encoded"), channels=3)
        masks = tf.sparse.to_dense(found.pop("image/object/mask"))
        decoded = [tf.io.decode_png(each, channels=1)[:, :, 0] for each in masks]
        sides = ("ymin", "xmin", "ymax", "xmax")
        boxes = [tf.sparse.to_dense(found[f"image/object/bbox/{s}"]) for s in sides]
        yield {
            **{name: plain(value) for name, value in found.items()},
            "shape": list(image.shape),
            "boxes": plain(tf.transpose(tf.stack(boxes))),
            "masks": [
                [list(each.shape), int(tf.reduce_sum(tf.cast(each, tf.int64)))]
                for each in decoded
            ],
        }


def nested(folder: str) -> Iterator[dict[str, Any]]:
    """Yield file name, boxes and labels as TFDS reads them, with the names of classes."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(folder)
    names = builder.info.features["objects"]["label"].names
    for row in tfds.as_numpy(builder.as_dataset(split="train")):
        objects = {name: plain(value) for name, value in row["objects"].items()}
        shape = list(row["image"].shape)
        yield {
            "filename": plain(row["filename"]),
            "shape": shape,
            "names": names,
            **objects,
        }


def program(folder: str) -> Iterator[dict[str, Any]]:
    """Yield the same of the program that `recordmill inspect --tf` prints."""
    code: dict[str, Any] = {"__name__": "program"}
    exec(json.load(sys.stdin), code)
    for row in code["load_dataset"](folder=folder):
        found = {
            n.removeprefix("objects/"): plain(v) for n, v in row.items() if n != "image"
        }
        yield {**found, "shape": list(row["image"].shape)}


COMMANDS = {"detection": detection, "tfds": nested, "program": program}
for found in COMMANDS[sys.argv[1]](str(Path(sys.argv[2]))):
    print(json.dumps(found))
