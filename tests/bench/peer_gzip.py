"""Peer: TFRecordWriter with its option for gzip, fed with the records of plain shards.

    python tests/bench/peer_gzip.py INPUT OUTPUT

Records are cut by their lengths from files that are mapped into memory, and not checked:
what it takes is writing. Level 6, as both have by default.
"""

import mmap
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf


def records(path: Path) -> Iterator[bytes]:
    """Yields the records of a plain TFRecord file."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        position = 0
        while position < len(data):
            (length,) = struct.unpack_from("<Q", data, position)
            start = position + 12
            position = start + length + 4
            yield data[start : start + length]


def main(*argv: str) -> None:
    """Writes OUTPUT/rows.tfrecord.gz."""
    source, output = map(Path, argv)
    output.mkdir(parents=True)
    options = tf.io.TFRecordOptions("GZIP", compression_level=6)
    target = str(output / "rows.tfrecord.gz")
    with tf.io.TFRecordWriter(target, options) as writer:
        for path in sorted(source.glob("*.tfrecord*")):
            for record in records(path):
                writer.write(record)


if __name__ == "__main__":
    main(*sys.argv[1:])
