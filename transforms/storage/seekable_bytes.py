"""Reads a file by ranges as one that can be sought in, for modules that want one."""

from __future__ import annotations

import io
from collections.abc import Callable

ReadBytes = Callable[[int, int], bytes]
"""Reads a file from a byte to another one."""


class SeekableBytes(io.RawIOBase):
    """The bytes of a file, which are read by ranges.

    Args:
      size: of the file.
      read: reads it.
      window_bytes: that are read at least, and kept for what is read next.
    """

    def __init__(self, size: int, read: ReadBytes, window_bytes: int = 0) -> None:
        self._size, self._read_bytes, self._window_bytes = size, read, window_bytes
        self._offset = self._start = 0
        self._window = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}
        place = base[whence] + offset
        if place < 0:
            raise OSError("there is nothing before the start of a file")
        self._offset = place
        return place

    def read(self, size: int = -1) -> bytes:
        start = self._offset
        stop = self._size if size < 0 else min(start + size, self._size)
        if start >= stop:
            return b""
        if not (self._start <= start and stop <= self._start + len(self._window)):
            end = min(max(stop, start + self._window_bytes), self._size)
            self._start, self._window = start, self._read_bytes(start, end)
        found = self._window[start - self._start : stop - self._start]
        self._offset += len(found)
        return found
