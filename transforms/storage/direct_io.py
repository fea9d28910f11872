"""Reads and writes large sequential files, with or without the page cache.

Data that is used once only fills the page cache. In a container it counts against the
memory limit, and on many virtual machines a fresh cache page costs ten times its copy.
Direct I/O avoids both, but waits for the disk, which a cached scratch file may never
reach. So scratch files measure both ways and take the faster one; shards, which must be
on disk before they count, use direct I/O.

Direct I/O (open(2), O_DIRECT) needs buffers, offsets and lengths that are multiples of
a block. File systems without it (tmpfs, some network ones) refuse the flag; their files
are read and written through the cache.
"""

from __future__ import annotations

import errno
import fcntl
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
from recordmill.transforms import native
from recordmill.transforms.arrow import U8

BLOCK_BYTES = 4096
BUFFER_BYTES = 4 << 20
_WRITE_BUFFERS = 3
_PROBE_BYTES = 4 << 20  # smaller writes do not show the speed
_PROBES = 2
_REMEMBERED = 8
_O_DIRECT = getattr(os, "O_DIRECT", 0)

_local = threading.local()


def _aligned_buffer(use: str) -> U8:
    """Returns this thread's page-aligned buffer for one use; allocated once."""
    if not hasattr(_local, use):
        setattr(_local, use, np.frombuffer(mmap.mmap(-1, BUFFER_BYTES), np.uint8))
    buffer: U8 = getattr(_local, use)
    return buffer


def _open(path: Path, flags: int, direct: bool) -> tuple[int, bool]:
    """Opens a file; returns its descriptor and whether it uses direct I/O."""
    if direct and _O_DIRECT:
        try:
            return os.open(path, flags | _O_DIRECT, 0o666), True
        except OSError:
            pass  # no direct I/O here; any other error is raised by the next open
    return os.open(path, flags, 0o666), False


class BlockWriter:
    """A writer of one new file, from front to end; one at a time in each thread.

    Direct writes wait for the disk, so a thread of their own does them while the caller
    fills other buffers. Of three, two may be waiting: some writes take far longer than others.
    """

    def __init__(self, path: Path, *, direct: bool, name: Path | None = None) -> None:
        """Creates the file.

        Args:
          path: its path.
          direct: whether to write past the page cache, where that can be done.
          name: what errors call it, if that is not `path`: the name it gets later.
        """
        self._name = str(name or path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        if getattr(_local, "writing", False):
            raise RuntimeError(f"{path}: this thread is already writing another file")
        self._descriptor, self.direct = _open(path, flags, direct)
        _local.writing = True
        self._buffer, *self._free = (
            _aligned_buffer(f"write {number}") for number in range(_WRITE_BUFFERS)
        )
        self._filled = 0
        self._size = 0
        self._behind: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Future[None], U8]] = deque()  # oldest first

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
        _local.writing = False
        os.close(self._descriptor)  # may fail: the disk is full

    def write(self, data: memoryview | bytes) -> None:
        """Appends bytes to the file."""
        self._size += len(data)
        if not self.direct:
            self._write_now(memoryview(data))
            return
        source = memoryview(data)  # its slices cost less than those of an array
        while source:
            piece = source[: BUFFER_BYTES - self._filled]
            self._buffer.data[self._filled : self._filled + len(piece)] = piece
            self._filled += len(piece)
            source = source[len(piece) :]
            if self._filled == BUFFER_BYTES:
                self._write_behind()

    def write_all(self, pieces: list[memoryview]) -> None:
        """Appends the bytes of many pieces; in one call it takes 5 us less for each."""
        if not self.direct:
            for piece in pieces:
                self.write(piece)
            return
        done, total = 0, sum(map(len, pieces))
        self._size += total
        while done < total:
            room = self._buffer.data[self._filled :]
            copied = native.loops.copy(pieces, done, room)
            done += copied
            self._filled += copied
            if self._filled == BUFFER_BYTES:
                self._write_behind()

    def _write_behind(self) -> None:
        if self._behind is None:
            self._behind = ThreadPoolExecutor(1, "write-behind")
        full = self._buffer
        write = self._behind.submit(self._write_now, full.data)
        self._pending.append((write, full))
        if not self._free:
            self._wait()
        self._buffer = self._free.pop()
        self._filled = 0

    def _write_now(self, view: memoryview) -> None:
        """Writes all of it; an error tells the name of the file.

        Raises:
          OSError: the disk is full, or something else is wrong with it.
        """
        try:
            while view:
                try:
                    view = view[os.write(self._descriptor, view) :]
                except OSError as error:
                    if error.errno != errno.EINVAL or not self._end_direct_writes():
                        raise
        except OSError as error:
            error.filename = self._name
            raise

    def _end_direct_writes(self) -> bool:
        """Lets the file be written through the cache; returns whether it was not before.

        Where room for a part of a block is left (a limit, a full disk), a direct write
        is an "invalid argument". A write through the cache tells what is the matter.
        """
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
        return bool(flags & _O_DIRECT)

    def _wait(self) -> None:
        """Waits for the first write in the background; raises its error if it failed."""
        write, buffer = self._pending.popleft()
        write.result()
        self._free.append(buffer)

    def finish(self, *, durable: bool) -> None:
        """Writes the rest; if durable, waits until the file is on disk."""
        while self._pending:
            self._wait()
        if self._filled:
            padded = -(-self._filled // BLOCK_BYTES) * BLOCK_BYTES
            self._buffer[self._filled : padded] = 0
            self._write_now(self._buffer.data[:padded])
            os.ftruncate(self._descriptor, self._size)
            self._filled = 0
        if durable:
            os.fsync(self._descriptor)


def read_into(path: Path, target: memoryview, offset: int, *, direct: bool) -> None:
    """Fills `target` with the file's bytes that begin at `offset`.

    Raises:
      RecordmillError: the file ends too early.
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
    """Reads whole blocks into a buffer and copies what was asked for.

    Bytes 5000 to 9000: the block before is byte 4096, so `before` is 904; 904 + 4000
    bytes are wanted, which two blocks (8192 bytes) cover; buffer[904:4904] is the
    result.
    """
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


class ScratchSpeed:
    """The measured speed of scratch files with and without the page cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds_per_byte: dict[bool, deque[float]] = {
            direct: deque(maxlen=_REMEMBERED) for direct in (False, True)
        }

    @property
    def direct(self) -> bool:
        """Tells whether the next scratch file should bypass the page cache."""
        with self._lock:
            cached, direct = self._seconds_per_byte[False], self._seconds_per_byte[True]
            if len(cached) < _PROBES or len(direct) < _PROBES:
                return len(direct) < len(cached)
            return sum(direct) / len(direct) < sum(cached) / len(cached)

    def note(self, num_bytes: int, seconds: float, *, direct: bool) -> None:
        """Adds the time of a finished write to the measurements."""
        if num_bytes >= _PROBE_BYTES:
            with self._lock:
                self._seconds_per_byte[direct].append(seconds / num_bytes)


SCRATCH_SPEED = ScratchSpeed()
