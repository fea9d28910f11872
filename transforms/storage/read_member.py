"""Unpacks archives and large members of them, once in each process.

What is unpacked goes as a stream into one file, from which parts are read then. That file
has no name in any folder, so nothing can be left behind, and no path that an archive names
is written to.
"""

from __future__ import annotations

import atexit
import errno
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from recordmill.schemas.errors import FULL, InputError
from recordmill.schemas.input_files import Seen
from recordmill.schemas.text import human_bytes
from recordmill.transforms.storage.input_stream import InputStream, ReadBytes

GUARDED_BYTES = 1 << 30  # what unpacks to more than this must not be too good
MOST_FILES = 64  # that are kept open; a process may open some 1,000
IDLE_SECONDS = 3600.0  # after which a file is closed: its job has ended
MOST_TIMES = 250  # to unpack to so many times the bytes is too good: nothing real does

_lock = threading.Lock()
_files: dict[tuple[str, ...], _Unpacked] = {}
_folder = ""


@dataclass(slots=True)
class _Unpacked:
    """A file that is being unpacked, or was."""

    lock: threading.Lock = field(default_factory=threading.Lock)  # of who unpacks it
    file: IO[bytes] | None = None  # once it is there
    num_readers: int = 0  # that are at work
    used_at: float = 0.0  # when it was read last


def unpack_into(folder: str) -> None:
    """Chooses the local folder whose disk unpacked files are on, instead of TMPDIR.

    If it is not there, the first folder above it is taken.
    """
    global _folder
    path = Path(folder).absolute()
    _folder = str(next(each for each in (path, *path.parents) if each.is_dir()))


@contextmanager
def unpacked(
    key: tuple[str, ...], uri: str, unpack: Callable[[], Iterator[bytes]]
) -> Iterator[int]:
    """Yields the descriptor of an unpacked file; unpacks it where that is still to do.

    The key is of what is unpacked, and its version; the uri of the archive, for messages.
    """
    with _lock:
        if key not in _files:
            _close_unused(time.monotonic() - IDLE_SECONDS)
        entry = _files.setdefault(key, _Unpacked())
        entry.num_readers += 1
    try:
        with entry.lock:
            if entry.file is None:
                entry.file = _write(uri, unpack())
        yield entry.file.fileno()
    finally:
        with _lock:
            entry.num_readers -= 1
            entry.used_at = time.monotonic()


def _close_unused(before: float) -> None:
    """Closes files that nobody has read since then, and the oldest of very many."""
    unused = [key for key, entry in _files.items() if not entry.num_readers]
    unused.sort(key=lambda key: _files[key].used_at)
    too_many = len(_files) - MOST_FILES
    for number, key in enumerate(unused):
        if number < too_many or _files[key].used_at < before:
            file = _files.pop(key).file
            if file is not None:
                file.close()


@atexit.register
def close_all() -> None:
    """Closes the files that nobody reads; who needs one again unpacks it again."""
    with _lock:
        _close_unused(math.inf)


def _write(uri: str, blocks: Iterator[bytes]) -> IO[bytes]:
    try:
        file = _open()
        try:
            file.writelines(blocks)
            file.flush()
        except BaseException:
            file.close()
            raise
    except OSError as error:
        if error.errno not in (*FULL, errno.EROFS, errno.EACCES):
            raise
        raise InputError(
            f"{uri}: cannot be unpacked in {_folder or tempfile.gettempdir()}: "
            f"{error.strerror}. Make room there, or set `scratch` to a folder with room; "
            "or unpack it yourself and give the folder as the input"
        ) from error
    return file


def _open() -> IO[bytes]:
    if _folder and os.access(_folder, os.W_OK):
        return tempfile.TemporaryFile(dir=_folder)
    return tempfile.TemporaryFile()


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


def unpacked_archive(
    uri: str, seen: Seen, compression: str, read: ReadBytes
) -> AbstractContextManager[int]:
    """Yields the descriptor of a file that has all of a compressed archive, unpacked."""
    key = (uri, str(seen.size), seen.version)
    return unpacked(key, uri, lambda: _decompress(uri, compression, seen.size, read))
