"""Unpacks compressed arrays as a stream, a few rows at a time."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from recordmill.schemas.errors import InputError

STEP_BYTES = 4 << 20  # of a file that are read at once
_WINDOW = {"gzip": 31, "zlib": 15, "deflate": -15}  # zlib's wbits for each packing


class Unpacked:
    """What compressed bytes of a file are; read once, forwards."""

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        start: int,
        stop: int,
        packing: str,
        uri: str,
    ) -> None:
        """Opens a part of a file.

        Args:
          read: (start, stop) -> bytes of the file.
          start: first byte of what is compressed.
          stop: one after the last byte.
          packing: gzip, zlib or deflate.
          uri: the file, for messages.
        """
        self._read, self._at, self._stop = read, start, stop
        self._packing, self._uri = packing, uri
        self._stream = zlib.decompressobj(_WINDOW[packing])
        self._rest = b""
        self.crc32 = 0

    def take(self, size: int) -> bytes:
        """Returns the next bytes; fewer at the end.

        Raises:
          InputError: they cannot be unpacked.
        """
        parts: list[bytes] = []
        left = size
        while left:
            more = self._unpack(left)
            if not more:
                break
            parts.append(more)
            left -= len(more)
        data = b"".join(parts)
        self.crc32 = zlib.crc32(data, self.crc32)
        return data

    def drain(self) -> int:
        """Reads what is left, so that the checksum at its end is checked.

        Returns:
          How many bytes were left.
        """
        left = 0
        while more := self.take(STEP_BYTES):
            left += len(more)
        return left

    def _unpack(self, most: int) -> bytes:
        while True:
            if not self._rest and self._at < self._stop:
                stop = min(self._at + STEP_BYTES, self._stop)
                self._rest = self._read(self._at, stop)
                self._at += len(self._rest)
                if not self._rest:
                    self._at = self._stop
            if self._stream.eof:
                if self._packing != "gzip" or not self._rest.strip(b"\0"):
                    return b""
                self._stream = zlib.decompressobj(_WINDOW["gzip"])  # the next member
            if not self._rest:
                raise self._damaged("it ends too early")
            try:
                found = self._stream.decompress(self._rest, most)
            except zlib.error as error:
                raise self._damaged(str(error)) from error
            self._rest = self._stream.unconsumed_tail or self._stream.unused_data
            if found:
                return found

    def _damaged(self, why: str) -> InputError:
        return InputError(
            f"{self._uri}: cannot be decompressed as {self._packing}: {why}. The file is "
            "damaged or cut short: copy it again"
        )
