"""Large sequential files with or round the page cache, whichever is faster here.

Data that passes once only fills the page cache: in a container it counts against the
memory limit, and where the host hands out memory page by page (many virtual machines)
a fresh cache page costs ten times its copy. Direct I/O avoids both, but waits for the
disk, where a cached scratch file may never reach it. So scratch measures both ways
once, and shards, which must be on disk before they count, go direct.

Direct I/O (open(2), O_DIRECT) wants buffers, offsets and lengths aligned to blocks;
file systems without it (tmpfs, some network ones) refuse, and are written as usual.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.arrow import U8

BLOCK_BYTES = 4096
BUFFER_BYTES = 4 << 20
_PROBE_BYTES = 4 << 20  # smaller writes tell nothing about speed
_PROBES = 2
_REMEMBERED = 8
_O_DIRECT = getattr(os, "O_DIRECT", 0)

_local = threading.local()


def _aligned_buffer(use: str) -> U8:
    """A page-aligned buffer of this thread for one use, made once."""
    if not hasattr(_local, use):
        setattr(_local, use, np.frombuffer(mmap.mmap(-1, BUFFER_BYTES), np.uint8))
    buffer: U8 = getattr(_local, use)
    return buffer


def _open(path: Path, flags: int, direct: bool) -> tuple[int, bool]:
    """Opens a file, directly if asked and possible; says which it was."""
    if direct and _O_DIRECT:
        try:
            return os.open(path, flags | _O_DIRECT, 0o666), True
        except OSError:
            pass  # a file system without direct I/O; any other trouble comes again
    return os.open(path, flags, 0o666), False


class BlockWriter:
    """Writes a new file from front to end; one at a time in a thread.

    Direct writes wait for the disk, so they are done by a thread of their own while
    the caller fills the other one of two buffers.
    """

    def __init__(self, path: Path, *, direct: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        if getattr(_local, "writing", False):
            raise RuntimeError(f"{path}: another file is being written in this thread")
        self._descriptor, self.direct = _open(path, flags, direct)
        _local.writing = True
        self._buffer = _aligned_buffer("write")
        self._other = _aligned_buffer("write_behind")
        self._filled = 0
        self._size = 0
        self._behind: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._behind is not None:
            self._behind.shutdown(wait=True)
        os.close(self._descriptor)
        _local.writing = False

    def write(self, data: memoryview | bytes) -> None:
        """Appends bytes."""
        self._size += len(data)
        if not self.direct:
            _write_all(self._descriptor, memoryview(data))
            return
        source = np.frombuffer(data, np.uint8)
        while len(source):
            part = source[: BUFFER_BYTES - self._filled]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled += len(part)
            source = source[len(part) :]
            if self._filled == BUFFER_BYTES:
                self._write_behind()

    def _write_behind(self) -> None:
        self._wait()
        if self._behind is None:
            self._behind = ThreadPoolExecutor(1, "write-behind")
        full = self._buffer.data
        self._pending = self._behind.submit(_write_all, self._descriptor, full)
        self._buffer, self._other = self._other, self._buffer
        self._filled = 0

    def _wait(self) -> None:
        """Waits for the buffer on its way; raises what went wrong with it."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def finish(self, *, durable: bool) -> None:
        """Writes what is left; if durable, waits until all is on disk."""
        self._wait()
        if self._filled:
            whole = -(-self._filled // BLOCK_BYTES) * BLOCK_BYTES
            self._buffer[self._filled : whole] = 0
            _write_all(self._descriptor, self._buffer.data[:whole])
            os.ftruncate(self._descriptor, self._size)
            self._filled = 0
        if durable:
            os.fsync(self._descriptor)


def read_into(path: Path, target: memoryview, offset: int, *, direct: bool) -> None:
    """Fills `target` with the file's bytes from `offset` on.

    Raises:
      RecordmillError: the file ends before.
    """
    descriptor, direct = _open(path, os.O_RDONLY, direct)
    try:
        if direct:
            _read_blocks(descriptor, path, target, offset)
            return
        while target:
            count = os.preadv(descriptor, [target], offset)
            if count == 0:
                raise _ends_early(path, offset + len(target))
            target = target[count:]
            offset += count
    finally:
        os.close(descriptor)


def _read_blocks(descriptor: int, path: Path, target: memoryview, offset: int) -> None:
    buffer = _aligned_buffer("read")
    out = np.frombuffer(target, np.uint8)
    while len(out):
        before = offset % BLOCK_BYTES
        wanted = min(before + len(out), BUFFER_BYTES)
        blocks = -(-wanted // BLOCK_BYTES) * BLOCK_BYTES
        count = os.preadv(descriptor, [buffer.data[:blocks]], offset - before)
        usable = min(count, wanted) - before
        if usable <= 0:
            raise _ends_early(path, offset + len(out))
        out[:usable] = buffer[before : before + usable]
        out = out[usable:]
        offset += usable


def _ends_early(path: Path, wanted: int) -> RecordmillError:
    return RecordmillError(f"{path}: the scratch file ends before byte {wanted}")


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        view = view[os.write(descriptor, view) :]


class ScratchSpeed:
    """Which way scratch files are faster in this process: measured on real writes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds_per_byte: dict[bool, deque[float]] = {
            way: deque(maxlen=_REMEMBERED) for way in (False, True)
        }

    @property
    def direct(self) -> bool:
        """Whether the next scratch file should go round the page cache."""
        with self._lock:
            cached, direct = (self._seconds_per_byte[way] for way in (False, True))
            if len(cached) < _PROBES or len(direct) < _PROBES:
                return len(direct) < len(cached)
            return sum(direct) / len(direct) < sum(cached) / len(cached)

    def note(self, num_bytes: int, seconds: float, *, direct: bool) -> None:
        """Takes a finished write into account."""
        if num_bytes >= _PROBE_BYTES:
            with self._lock:
                self._seconds_per_byte[direct].append(seconds / num_bytes)


SCRATCH_SPEED = ScratchSpeed()
