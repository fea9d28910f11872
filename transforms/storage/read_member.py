"""Unpacks archives and large members of them, once in each process.

What is unpacked goes as a stream into one file, from which parts are read then. That file
has no name in any folder, so nothing can be left behind, and no path that an archive names
is written to.
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
from recordmill.schemas.input_files import Seen
from recordmill.schemas.text import human_bytes
from recordmill.transforms.storage.input_stream import InputStream, ReadBytes
from recordmill.transforms.temporary import TEMPORARY

GUARDED_BYTES = 1 << 30  # what unpacks to more than this must not be too good
MOST_FILES = 64  # that are kept open; a process may open some 1,000
IDLE_SECONDS = 3600.0  # after which a file is closed: its job has ended
MOST_TIMES = 250  # to unpack to so many times the bytes is too good: nothing real does


@dataclass(slots=True)
class _Unpacked:
    """A file that is being unpacked, or was."""

    lock: threading.Lock = field(default_factory=threading.Lock)  # of who unpacks it
    file: IO[bytes] | None = None  # once it is there
    num_readers: int = 0  # that are at work
    used_at: float = 0.0  # when it was read last


class UnpackedFiles:
    """What a process has unpacked: each archive, or large member, in a file of its own."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, ...], _Unpacked] = {}
        self._lock = threading.Lock()

    @contextmanager
    def opened(
        self, key: tuple[str, ...], uri: str, unpack: Callable[[], Iterator[bytes]]
    ) -> Iterator[int]:
        """Yields the descriptor of a file; unpacks it where that is still to do.

        The key is of what is unpacked, and its version; the uri of the archive, for
        messages.
        """
        with self._lock:
            if key not in self._files:
                self._close_unused(time.monotonic() - IDLE_SECONDS)
            entry = self._files.setdefault(key, _Unpacked())
            entry.num_readers += 1
        try:
            with entry.lock:
                if entry.file is None:
                    entry.file = self._write(uri, unpack())
            yield entry.file.fileno()
        finally:
            with self._lock:
                entry.num_readers -= 1
                entry.used_at = time.monotonic()

    def archive(
        self, uri: str, seen: Seen, compression: str, read: ReadBytes
    ) -> AbstractContextManager[int]:
        """Yields the descriptor of a file with all of a compressed archive, unpacked."""
        key = (uri, str(seen.size), seen.version)
        return self.opened(
            key, uri, lambda: _decompress(uri, compression, seen.size, read)
        )

    def close(self) -> None:
        """Closes the files that nobody reads; who needs one again unpacks it again."""
        with self._lock:
            self._close_unused(math.inf)

    def _close_unused(self, before: float) -> None:
        """Closes files that nobody has read since then, and the oldest of very many."""
        unused = [key for key, entry in self._files.items() if not entry.num_readers]
        unused.sort(key=lambda key: self._files[key].used_at)
        too_many = len(self._files) - MOST_FILES
        for number, key in enumerate(unused):
            if number < too_many or self._files[key].used_at < before:
                file = self._files.pop(key).file
                if file is not None:
                    file.close()

    def _write(self, uri: str, blocks: Iterator[bytes]) -> IO[bytes]:
        way_out = "; or unpack it yourself and give the folder as the input"
        with TEMPORARY.writing(f"{uri}: cannot be unpacked", way_out) as file:
            file.writelines(blocks)
        return file


# Open files are the process's, and so is what holds them: an input is read wherever it is
# needed, and what one reader unpacked serves all others.
UNPACKED = UnpackedFiles()
atexit.register(UNPACKED.close)


def _decompress(
    uri: str, compression: str, size: int, read: ReadBytes
) -> Iterator[bytes]:
    stream = InputStream(read, size, uri=uri, compression=compression)
    total = 0
    while block := stream.piece():
        total += len(block)
        require_plausible(uri, total, stream.consumed)
        yield block


def require_plausible(uri: str, unpacked_bytes: int, packed_bytes: int) -> None:
    """Checks that something unpacks to what it may really hold."""
    if unpacked_bytes > max(GUARDED_BYTES, MOST_TIMES * packed_bytes):
        raise InputError(
            f"{uri}: unpacks to more than {human_bytes(unpacked_bytes)}, over {MOST_TIMES} "
            "times its size, as archives do that are made to fill disks. If it is what you "
            "want, unpack it yourself and give the folder as the input"
        )
