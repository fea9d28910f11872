"""TFRecord frames made and read one by one."""

from __future__ import annotations

import base64
from collections.abc import Iterator

from recordmill.transforms.dataset.reader import read_whole_frames
from recordmill.transforms.storage.input_stream import InputStream, ReadBytes
from recordmill.transforms.tfrecord import crc32c, mask

# TensorFlow's writer, write(b"foo"), as in apache_beam/io/tfrecordio_test.py.
FOO_RECORD = base64.b64decode("AwAAAAAAAACwmUkOZm9vYYq+/g==")


def read_file(
    read: ReadBytes, size: int, uri: str = "a.tfrecord", compression: str = ""
) -> Iterator[bytes]:
    """The records of a file, up to the first that is damaged."""
    file = InputStream(read, size, uri=uri, compression=compression)
    for frames, num_whole in read_whole_frames(file):
        yield from frames.records()[:num_whole].to_pylist()


def read_bytes(data: bytes, *how: str) -> Iterator[bytes]:
    return read_file(lambda start, stop: bytes(data[start:stop]), len(data), *how)


def records_of(data: bytes) -> list[bytes]:
    return list(read_bytes(data))


def frame(examples: list[bytes]) -> bytes:
    """Framed one by one, by the book."""
    out = b""
    for data in examples:
        length = len(data).to_bytes(8, "little")
        for part in (length, data):
            out += part + mask(crc32c(part)).to_bytes(4, "little")
    return out
