"""TFRecord frames made and read one by one."""

from __future__ import annotations

import base64
import io

from recordmill.transforms.tfrecord import crc32c, mask, read_records

# TensorFlow's writer, write(b"foo"), as in apache_beam/io/tfrecordio_test.py.
FOO_RECORD = base64.b64decode("AwAAAAAAAACwmUkOZm9vYYq+/g==")


def records_of(data: bytes, uri: str = "a.tfrecord") -> list[bytes]:
    return [bytes(record) for record in read_records(io.BytesIO(data), uri)]


def frame(examples: list[bytes]) -> bytes:
    """Framed one by one, by the book."""
    out = b""
    for data in examples:
        length = len(data).to_bytes(8, "little")
        for part in (length, data):
            out += part + mask(crc32c(part)).to_bytes(4, "little")
    return out
