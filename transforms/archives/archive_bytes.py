"""Reads an archive as a file that can be sought in, for Python's own modules."""

from __future__ import annotations

import io

from recordmill.transforms.storage.unpacked import ReadBytes

WINDOW_BYTES = 1 << 20  # read at once in a store, where a request takes its time
LOCAL_WINDOW_BYTES = 1 << 14


class ArchiveBytes(io.RawIOBase):
    """The bytes of an archive; what is read lies in a window that follows."""

    def __init__(self, size: int, read: ReadBytes, window_bytes: int) -> None:
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
