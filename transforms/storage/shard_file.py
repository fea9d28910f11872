"""Writes the records of one shard to a file, with their size and checksum."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recordmill.transforms.combine_crcs import combine_all
from recordmill.transforms.hollow_records import (
    Window,
    pieces_of,
    window_bytes,
    window_crc,
)
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
    path: Path, windows: Iterable[Window], compression: str
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
    tally = _Tally()
    pieces = (
        _packed(windows, tally) if compression == "gzip" else _plain(windows, tally)
    )
    try:
        # A shard counts only once it is on disk, so the page cache is of no use.
        with BlockWriter(temporary, direct=True) as file:
            for piece in pieces:
                file.write(piece)
            file.finish(durable=True)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return tally.written()


@dataclass(slots=True)
class _Tally:
    """The counts of a file while it is written, and the checksums of its parts."""

    records: int = 0
    framed_bytes: int = 0
    crcs: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def add_window(self, window: Window) -> None:
        self.records += len(window)
        self.framed_bytes += window_bytes(window)

    def add_part(self, crc: int, length: int) -> None:
        self.crcs.append(crc)
        self.lengths.append(length)

    def written(self) -> WrittenFile:
        lengths = np.array(self.lengths, np.int64)
        return WrittenFile(
            self.records,
            sum(self.lengths),
            self.framed_bytes - self.records * FRAME_BYTES,
            combine_all(np.array(self.crcs, np.uint32), lengths),
        )


def _plain(windows: Iterable[Window], tally: _Tally) -> Iterator[memoryview]:
    for window in windows:
        tally.add_window(window)
        tally.add_part(window_crc(window), window_bytes(window))
        yield from pieces_of(window)


def _packed(windows: Iterable[Window], tally: _Tally) -> Iterator[bytes]:
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    for window in windows:
        tally.add_window(window)
        for piece in pieces_of(window):
            if packed := packer.compress(piece):
                tally.add_part(crc32c(packed), len(packed))
                yield packed
    packed = packer.flush()
    tally.add_part(crc32c(packed), len(packed))
    yield packed
