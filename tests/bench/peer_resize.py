"""Peer: a loop that only decodes images, scales them to 224 x 224, and encodes them.

    python tests/bench/peer_resize.py pillow|tf INPUT OUTPUT

pillow: by the library, the filter (bicubic) and the quality (92) of recordmill, which decodes
a JPEG in the same scale; no loop by this library can take less. tf: tf.image with two
threads, bicubic with antialias, as it is without one by default; quality 92. One file of
records that hold the image alone; nothing is looked at, labelled or shuffled.
"""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

SIDES = (224, 224)
QUALITY = 92


def by_pillow(files: list[Path]) -> Iterator[bytes]:
    """Yields each image, scaled and encoded."""
    from PIL import Image

    for file in files:
        with Image.open(file) as image:
            drafted = image.draft(None, (2 * SIDES[1], 2 * SIDES[0]))
            image.load()
            box = drafted[1] if drafted else None
            scaled = image.resize(SIDES[::-1], Image.Resampling.BICUBIC, box=box)
        encoded = io.BytesIO()
        scaled.save(encoded, "JPEG", quality=QUALITY)
        yield encoded.getvalue()


def by_tensorflow(files: list[Path]) -> Iterator[bytes]:
    """Yields each image, scaled and encoded."""
    import tensorflow as tf

    def scale(file: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(file), channels=3)
        scaled = tf.image.resize(image, SIDES, "bicubic", antialias=True)
        pixels = tf.cast(tf.clip_by_value(tf.round(scaled), 0, 255), tf.uint8)
        return tf.io.encode_jpeg(pixels, quality=QUALITY)

    names = tf.data.Dataset.from_tensor_slices([*map(str, files)])
    yield from names.map(scale, num_parallel_calls=2).prefetch(2).as_numpy_iterator()


WAYS = {"pillow": by_pillow, "tf": by_tensorflow}


def main(way: str, source: str, output: str) -> None:
    """Writes OUTPUT/rows.tfrecord, with frames whose checksums are left out."""
    Path(output).mkdir(parents=True)
    with Path(output, "rows.tfrecord").open("wb") as out:
        for data in WAYS[way](sorted(Path(source).glob("*/*"))):
            out.writelines([struct.pack("<QI", len(data), 0), data, bytes(4)])


if __name__ == "__main__":
    main(*sys.argv[1:])
