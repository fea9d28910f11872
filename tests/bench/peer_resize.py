"""Peer: one process that scales pictures with Pillow and writes one TFRecord file.

    python tests/bench/peer_resize.py full|draft INPUT OUTPUT

The shorter side becomes 224 by Pillow's bicubic filter, the middle of 224 x 224 is kept and
encoded as JPEG of quality 92. `full` decodes every pixel, as such loops mostly do; `draft`
lets the decoder make a picture smaller, as recordmill does. EXIF data are not looked at.
"""

import io
import sys
from pathlib import Path

import tensorflow as tf
from PIL import Image
from PIL.Image import Resampling

SIDE = 224


def scaled(path: Path, draft: bool) -> bytes:
    """Returns a picture scaled, cropped and encoded again."""
    with Image.open(path) as picture:
        factor = SIDE / min(picture.size)
        size = (round(picture.width * factor), round(picture.height * factor))
        if draft:
            picture.draft("RGB", (2 * size[0], 2 * size[1]))
        small = picture.resize(size, Resampling.BICUBIC)
    left, upper = (size[0] - SIDE) // 2, (size[1] - SIDE) // 2
    buffer = io.BytesIO()
    middle = small.crop((left, upper, left + SIDE, upper + SIDE))
    middle.save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def main() -> None:
    """Write every picture of a folder for each class."""
    how, source, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    classes = sorted(each.name for each in source.iterdir())
    target.mkdir()
    with tf.io.TFRecordWriter(str(target / "data.tfrecord")) as writer:
        for path in sorted(source.glob("*/*")):
            data = scaled(path, how == "draft")
            label = classes.index(path.parent.name)
            values = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[data])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=values))
            writer.write(example.SerializeToString())


if __name__ == "__main__":
    main()
