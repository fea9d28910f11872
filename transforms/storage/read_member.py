"""Unpacks compressed archives and large members of archives, once in each process.

The unpacked bytes are streamed into one file, from which parts are then read. The file
has no name in any folder, so it cannot be left behind. No path from an archive is ever
written.
"""

from __future__ import annotations

import atexit
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import IO

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileStat
from recordmill.schemas.text import format_bytes
from recordmill.transforms.storage.input_stream import InputStream, ReadBytes
from recordmill.transforms.temporary import TEMPORARY

GUARDED_BYTES = 1 << 30  # beyond this unpacked size, the compression ratio is checked
MOST_FILES = 64  # kept open; a process can open some 1,000
IDLE_SECONDS = 3600.0  # an unused file is closed after this time: its job has ended
# highest accepted compression ratio; no real input has more
MAX_COMPRESSION_RATIO = 250


@dataclass(slots=True)
class _UnpackedFile:
    """An unpacked file, or a file that is being unpacked."""

    lock: threading.Lock = field(default_factory=threading.Lock)  # held while unpacking
    file: IO[bytes] | None = None  # None until it is unpacked
    num_readers: int = 0  # number of current readers
    used_at: float = 0.0  # time of the last read


class UnpackedFiles:
    """The unpacked files of a process, one for each archive or large member."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, ...], _UnpackedFile] = {}
        self._lock = threading.Lock()

    @contextmanager
    def open_unpacked(
        self, key: tuple[str, ...], uri: str, unpack: Callable[[], Iterator[bytes]]
    ) -> Iterator[int]:
        """Yields the descriptor of an unpacked file; unpacks it at first use.

        Args:
          key: the location and version of the archive or member.
          uri: the URI of the archive, for messages.
          unpack: returns the blocks of the unpacked file.
        """
        with self._lock:
            if key not in self._files:
                self._close_unused(time.monotonic() - IDLE_SECONDS)
            unpacked_file = self._files.setdefault(key, _UnpackedFile())
            unpacked_file.num_readers += 1
        try:
            with unpacked_file.lock:
                if unpacked_file.file is None:
                    unpacked_file.file = self._write(uri, unpack())
            yield unpacked_file.file.fileno()
        finally:
            with self._lock:
                unpacked_file.num_readers -= 1
                unpacked_file.used_at = time.monotonic()

    def open_archive(
        self, uri: str, archive_stat: FileStat, compression: str, read: ReadBytes
    ) -> AbstractContextManager[int]:
        """Returns a context with the descriptor of an unpacked compressed archive."""
        key = (uri, str(archive_stat.size), archive_stat.version)
        return self.open_unpacked(
            key, uri, lambda: _decompress(uri, compression, archive_stat.size, read)
        )

    def close(self) -> None:
        """Closes all files without readers; a later reader unpacks its file again."""
        with self._lock:
            self._close_unused(math.inf)

    def _close_unused(self, min_used_at: float) -> None:
        """Closes files not used since a time, and the oldest files beyond the limit."""
        unused = [
            key
            for key, unpacked_file in self._files.items()
            if not unpacked_file.num_readers
        ]
        unused.sort(key=lambda key: self._files[key].used_at)
        too_many = len(self._files) - MOST_FILES
        for number, key in enumerate(unused):
            if number < too_many or self._files[key].used_at < min_used_at:
                file = self._files.pop(key).file
                if file is not None:
                    file.close()

    def _write(self, uri: str, blocks: Iterator[bytes]) -> IO[bytes]:
        way_out = "; or unpack it yourself and use the folder as the input"
        with TEMPORARY.open_file(f"{uri}: cannot be unpacked", way_out) as file:
            file.writelines(blocks)
        return file


# One instance per process, like open files: all readers in the process share the files
# that one of them has unpacked.
UNPACKED = UnpackedFiles()
atexit.register(UNPACKED.close)


def _decompress(
    uri: str, compression: str, size: int, read: ReadBytes
) -> Iterator[bytes]:
    stream = InputStream(read, size, uri=uri, compression=compression)
    total = 0
    while block := stream.read_block():
        total += len(block)
        require_plausible(uri, total, stream.packed_bytes_read)
        yield block


def require_plausible(uri: str, unpacked_bytes: int, packed_bytes: int) -> None:
    """Raises InputError if the compression ratio is implausible (decompression bomb)."""
    if unpacked_bytes > max(GUARDED_BYTES, MAX_COMPRESSION_RATIO * packed_bytes):
        raise InputError(
            f"{uri}: unpacks to more than {format_bytes(unpacked_bytes)}, over "
            f"{MAX_COMPRESSION_RATIO} times its size, like archives that are designed to fill "
            "disks. If it is intended, unpack it yourself and use the folder as the "
            "input"
        )
