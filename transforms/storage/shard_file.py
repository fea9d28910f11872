"""Writes the records of one shard to a file, with their size and checksum."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from recordmill.transforms.arrow import array_parts
from recordmill.transforms.storage.atomic_files import sync_folder, temp_path
from recordmill.transforms.storage.direct_io import BlockWriter
from recordmill.transforms.tfrecord import FRAME_BYTES, crc32c

GZIP_LEVEL = 6
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # writes a gzip header with mtime 0


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The size and checksum of a shard file that was just written.

    Attributes:
      records: number of records.
      bytes: size of the file, after compression.
      example_bytes: bytes of all payloads, without their frames, before compression.
      crc32c: checksum of the file's bytes.
    """

    records: int
    bytes: int
    example_bytes: int
    crc32c: int


def write_records(
    path: Path, windows: Iterable[pa.BinaryArray], compression: str
) -> WrittenFile:
    """Writes framed records to a file that appears whole or not at all.

    The bytes go to a temporary file beside `path`. When they are on disk (fsync) the
    file is renamed and its folder is synced.

    Args:
      path: final name of the shard.
      windows: framed records, in order.
      compression: "none" or "gzip".
    """
    temporary = temp_path(path)
    packer = (
        zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        if compression == "gzip"
        else None
    )
    records = stored = framed = crc = 0
    try:
        # A shard counts only once it is on disk, so the page cache is of no use.
        with BlockWriter(temporary, direct=True) as file:
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
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return WrittenFile(records, stored, framed - records * FRAME_BYTES, crc)
