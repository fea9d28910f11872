"""Counts records of what was written, without recordmill, TensorFlow or any peer."""

from __future__ import annotations

import gzip
import json
import struct
import tarfile
from pathlib import Path
from typing import BinaryIO, cast

# u64 length | u32 crc of length | data | u32 crc of data
HEADER_BYTES = 12
FOOTER_BYTES = 4


def count_tfrecord(path: Path) -> int:
    """Counts the records of one file, plain or gzip; its end must be a record's end."""
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if packed:
            with gzip.open(plain) as file:
                return _frames(path, cast("BinaryIO", file), None)
        return _frames(path, plain, path.stat().st_size)


def _frames(path: Path, file: BinaryIO, size: int | None) -> int:
    position = num_records = 0
    while header := file.read(HEADER_BYTES):
        if len(header) < HEADER_BYTES:
            raise OSError(f"{path}: cut off in a header at byte {position}")
        (length,) = struct.unpack_from("<Q", header)
        file.seek(length + FOOTER_BYTES, 1)
        position += HEADER_BYTES + length + FOOTER_BYTES
        num_records += 1
    if position != (file.tell() if size is None else size):
        raise OSError(f"{path}: does not end where its records do, at {position}")
    return num_records


def count_tar(path: Path) -> int:
    """Counts the samples of one tar: its JPEG or PNG members."""
    with tarfile.open(path) as tar:
        return sum(member.name.endswith((".jpg", ".png")) for member in tar)


def count_mds(path: Path) -> int:
    """Counts the samples that the index of an MDS dataset names."""
    return sum(shard["samples"] for shard in json.loads(path.read_bytes())["shards"])


COUNTERS = {
    "tfrecord": ("*.tfrecord*", count_tfrecord),
    "tar": ("*.tar", count_tar),
    "mds": ("index.json", count_mds),
}


def count_records(folder: Path, kind: str = "tfrecord") -> int:
    """Counts the records of all files of a kind below a folder."""
    pattern, count = COUNTERS[kind]
    return sum(count(path) for path in folder.rglob(pattern))
