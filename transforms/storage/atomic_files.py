"""Writing one shard: append framed records, close to durable storage, report facts."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from recordmill.transforms.arrow import array_parts
from recordmill.transforms.storage.direct_io import BlockWriter
from recordmill.transforms.tfrecord import FRAME_BYTES, crc32c

GZIP_LEVEL = 6
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # a gzip header whose mtime is 0


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What was written: records, bytes as stored, bytes of the examples, CRC-32C."""

    records: int
    bytes: int
    example_bytes: int
    crc32c: int


def write_records(
    path: Path, windows: Iterable[pa.BinaryArray], compression: str
) -> FileFacts:
    """Writes framed records to a file that appears whole or not at all.

    The bytes lie in a file beside `path` until they are on disk (fsync), then it is
    renamed and the folder synced.

    Args:
      path: final name of the shard.
      windows: framed records, in order.
      compression: "none" or "gzip".
    """
    aside = temp_path(path)
    packer = (
        zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        if compression == "gzip"
        else None
    )
    records = stored = framed = crc = 0
    try:
        # Shards count only once they are on disk: no use for the page cache.
        with BlockWriter(aside, direct=True) as file:
            for window in windows:
                offsets, data = array_parts(window)
                body: memoryview | bytes = data.data[offsets[0] : offsets[-1]]
                records += len(window)
                framed += len(body)
                if packer is not None:
                    body = packer.compress(body)
                crc = crc32c(body, crc)
                stored += len(body)
                file.write(body)
            if packer is not None:
                body = packer.flush()
                crc = crc32c(body, crc)
                stored += len(body)
                file.write(body)
            file.finish(durable=True)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return FileFacts(records, stored, framed - records * FRAME_BYTES, crc)


def temp_path(path: Path) -> Path:
    """A hidden name beside `path`, another one for every try and every machine."""
    return path.with_name(f".{path.name}.{uuid4().hex}")


def write_atomic(
    path: Path, data: bytes | memoryview, *, durable: bool = False
) -> None:
    """Writes a small file beside its name and renames, so there is never a half.

    Args:
      path: final name.
      data: the file's bytes.
      durable: whether to wait until they are on disk; syncing the folder is the
        caller's.
    """
    aside = temp_path(path)
    try:
        with aside.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
