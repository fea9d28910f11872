"""Peer: the tutorials' loop, one example at a time into one TFRecord file.

    python tests/bench/peer_loop.py csv|cifar|images|wide INPUT OUTPUT [header]

Row by row: tf.train.Example with the tutorials' helper functions and
tf.io.TFRecordWriter. The types are known beforehand; nothing is shuffled or split.
Images are decoded to learn their sizes, as in the tutorial, or only their headers are read.
"""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from columns import BOOL_COLUMNS, DECIMAL_COLUMNS, INT_COLUMNS, TEXT_COLUMNS
from PIL import Image


def bytes_feature(value: bytes) -> tf.train.Feature:
    """Wrap bytes, as in the tutorial."""
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def float_feature(value: float) -> tf.train.Feature:
    """Wrap a float, as in the tutorial."""
    return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))


def int64_feature(value: int) -> tf.train.Feature:
    """Wrap an integer, as in the tutorial."""
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def serialize(feature: dict[str, tf.train.Feature]) -> bytes:
    """Make one serialized example."""
    features = tf.train.Features(feature=feature)
    return tf.train.Example(features=features).SerializeToString()


def csv_example(row: dict[str, str]) -> bytes:
    """Make the example of one CSV row."""
    feature = {name: int64_feature(int(row[name])) for name in INT_COLUMNS}
    for name in DECIMAL_COLUMNS:
        feature[name] = float_feature(float(row[name]))
    for name in TEXT_COLUMNS:
        feature[name] = bytes_feature(row[name].encode())
    for name in BOOL_COLUMNS:
        feature[name] = int64_feature(int(row[name] == "True"))
    return serialize(feature)


def cifar_example(record: bytes) -> bytes:
    """Make the example of one CIFAR-10 record: planes become height x width x 3."""
    pixels = np.frombuffer(record, np.uint8, offset=1).reshape(3, 32, 32)
    return serialize(
        {
            "image": bytes_feature(pixels.transpose(1, 2, 0).tobytes()),
            "label": int64_feature(record[0]),
            "height": int64_feature(32),
            "width": int64_feature(32),
            "depth": int64_feature(3),
        }
    )


def image_example(path: Path, label: int, *, sizes: str) -> bytes:
    """Make the example of one JPEG; the tutorial decodes it to learn its size."""
    data = path.read_bytes()
    if sizes == "decode":
        height, width, depth = tf.io.decode_jpeg(data).shape
    else:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            depth = len(image.getbands())
    return serialize(
        {
            "image": bytes_feature(data),
            "label": int64_feature(label),
            "height": int64_feature(height),
            "width": int64_feature(width),
            "depth": int64_feature(depth),
            "filename": bytes_feature(path.name.encode()),
        }
    )


def wide_example(row: dict[str, object]) -> bytes:
    """Make the example of one row of the wide table; names tell the types."""
    feature = {}
    for name, value in row.items():
        values = value if isinstance(value, list) else [value]
        if name.startswith("text"):
            texts = [text.encode() for text in values]
            kind = {"bytes_list": tf.train.BytesList(value=texts)}
        elif values and isinstance(values[0], float):
            kind = {"float_list": tf.train.FloatList(value=values)}
        else:
            kind = {"int64_list": tf.train.Int64List(value=values)}
        feature[name] = tf.train.Feature(**kind)
    return serialize(feature)


def wide_examples(source: Path) -> Iterator[bytes]:
    """Convert one Parquet file."""
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(source).iter_batches(10_000):
        yield from map(wide_example, batch.to_pylist())


def csv_examples(source: Path) -> Iterator[bytes]:
    """Convert one CSV file."""
    with source.open(newline="", encoding="utf-8") as file:
        yield from map(csv_example, csv.DictReader(file))


def cifar_examples(source: Path) -> Iterator[bytes]:
    """Convert a folder of CIFAR-10 files."""
    for path in sorted(source.glob("data_batch_*.bin")):
        with path.open("rb") as file:
            while record := file.read(3073):
                yield cifar_example(record)


def image_examples(source: Path, sizes: str = "decode") -> Iterator[bytes]:
    """Convert a folder with one folder per class."""
    for label, folder in enumerate(sorted(source.iterdir())):
        for path in sorted(folder.iterdir()):
            yield image_example(path, label, sizes=sizes)


READERS = {
    "csv": csv_examples,
    "cifar": cifar_examples,
    "images": image_examples,
    "wide": wide_examples,
}


def main(kind: str, source: str, output: str, *sizes: str) -> None:
    """Convert one input into OUTPUT/rows.tfrecord."""
    Path(output).mkdir(parents=True)
    with tf.io.TFRecordWriter(f"{output}/rows.tfrecord") as writer:
        for example in READERS[kind](Path(source), *sizes):
            writer.write(example)


if __name__ == "__main__":
    main(*sys.argv[1:])
