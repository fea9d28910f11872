"""Writes the records of one shard to a file, with their size and checksum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from recordmill.transforms.encode.large_values import (
    Window,
    pieces_of,
    window_bytes,
    window_crc,
)
from recordmill.transforms.native.combine_crcs import combine_all
from recordmill.transforms.storage.atomic_files import sync_folder, temp_path
from recordmill.transforms.storage.direct_io import BlockWriter
from recordmill.transforms.storage.gzip_packer import DEFAULT_LEVEL, gzip_packer
from recordmill.transforms.tfrecord import FRAME_BYTES, crc32c

_BLOCK_BYTES = 256 << 10  # packed at once


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
    path: Path,
    windows: Iterable[Window],
    compression: str,
    gzip_level: int = DEFAULT_LEVEL,
) -> WrittenFile:
    """Writes framed records to a file that appears whole or not at all.

    The bytes go to a temporary file beside `path`. When they are on disk (fsync) the
    file is renamed and its folder is synced.

    Args:
      path: final name of the shard.
      windows: framed records, in order.
      compression: "none" or "gzip".
      gzip_level: from 1, fast, to 9, small.
    """
    temporary = temp_path(path)
    tally = _Tally()
    if compression == "gzip":
        parts = _packed(windows, tally, gzip_level)
    else:
        parts = _plain(windows, tally)
    try:
        # A shard counts only once it is on disk, so the page cache is of no use.
        with BlockWriter(temporary, direct=True, name=path) as file:
            for pieces in parts:
                file.write_all(pieces)
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


def _plain(windows: Iterable[Window], tally: _Tally) -> Iterator[list[memoryview]]:
    for window in windows:
        tally.add_window(window)
        tally.add_part(window_crc(window), window_bytes(window))
        yield list(pieces_of(window))


def _packed(
    windows: Iterable[Window], tally: _Tally, level: int
) -> Iterator[list[memoryview]]:
    packer = gzip_packer(level)
    for block in _blocks_of(windows, tally):
        if packed := packer.compress(block):
            tally.add_part(crc32c(packed), len(packed))
            yield [memoryview(packed)]
    packed = packer.flush()
    tally.add_part(crc32c(packed), len(packed))
    yield [memoryview(packed)]


def _blocks_of(windows: Iterable[Window], tally: _Tally) -> Iterator[memoryview]:
    """Yields the bytes of windows in blocks of one size, and the rest.

    At level 1 zlib-ng looks for matches in what one call gives it, so the bytes that
    come out would depend on the windows.
    """
    block, filled = memoryview(bytearray(_BLOCK_BYTES)), 0
    for window in windows:
        tally.add_window(window)
        for piece in pieces_of(window):
            source = memoryview(piece)
            while source:
                some = source[: _BLOCK_BYTES - filled]
                block[filled : filled + len(some)] = some
                filled += len(some)
                source = source[len(some) :]
                if filled == _BLOCK_BYTES:
                    yield block
                    filled = 0
    yield block[:filled]
