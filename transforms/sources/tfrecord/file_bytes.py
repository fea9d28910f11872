"""Reads the bytes of TFRecord files forwards, as they are or unpacked, with a checksum."""

from __future__ import annotations

import zlib
from typing import Protocol

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputRange, Seen
from recordmill.transforms.find_frames import is_head
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import HEAD_BYTES, crc32c

BLOCK_BYTES = 4 << 20  # read of a packed file at once
_STEP_BYTES = 1 << 16  # of it, unpacked at once
_LOOKED_AT = 1 << 12  # bytes at a file's start that tell what it is
_GZIP_OR_ZLIB = 47  # zlib's window of either, told by the header


class FileBytes(Protocol):
    """The bytes of a range, read forwards.

    Attributes:
      is_packed: whether they are unpacked, so that offsets are not those of the file.
      is_cut: whether the file's end is left out, so that it may break off anywhere.
      consumed: bytes of the file that were read so far.
    """

    @property
    def is_packed(self) -> bool: ...

    @property
    def is_cut(self) -> bool: ...

    @property
    def consumed(self) -> int: ...

    def read(self, start: int, stop: int) -> bytes | memoryview:
        """Returns bytes; fewer at the end. `start` never falls from call to call."""

    def checksum(self) -> FileChecksum:
        """Reads what is left, and returns the checksum of all bytes of the range."""


class PlainBytes:
    """The bytes of an uncompressed file; see FileBytes."""

    is_packed = False
    is_cut = False

    def __init__(self, input_range: InputRange, storage: StorageOptions) -> None:
        self._range, self._storage = input_range, storage
        self._read_to = input_range.start  # by the checksum
        self._crc = 0

    @property
    def consumed(self) -> int:
        return self._read_to

    def read(self, start: int, stop: int) -> bytes:
        seen = _seen_of(self._range)
        stop = min(stop, seen.size)
        data = _read(self._range.uri, start, stop, self._storage, seen)
        new = memoryview(data)[self._read_to - start : self._range.stop - start]
        self._crc = crc32c(new, self._crc)
        self._read_to += len(new)
        return data

    def checksum(self) -> FileChecksum:
        part = self._range
        while self._read_to < part.stop:
            self.read(self._read_to, min(self._read_to + BLOCK_BYTES, part.stop))
        return FileChecksum(part.path, part.start, part.stop, self._crc)


class UnpackedBytes:
    """The bytes of a file that is compressed with gzip or zlib; see FileBytes."""

    is_packed = True

    def __init__(self, input_range: InputRange, storage: StorageOptions) -> None:
        self._range, self._storage = input_range, storage
        self.is_cut = input_range.stop < _seen_of(input_range).size
        self._unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._is_started = False  # the stream that the unpacker is for
        self._block, self._given = b"", 0  # read, and how many bytes of it were taken
        self._packed = b""  # taken, and not unpacked yet
        self._held, self._begin = bytearray(), 0  # unpacked; offset of its first byte
        self._crc = 0
        self.consumed = 0

    def read(self, start: int, stop: int) -> bytes:
        if gone := min(start - self._begin, len(self._held)):
            del self._held[:gone]
            self._begin += gone
        while self._begin + len(self._held) < stop:
            more = self._unpack(stop - self._begin - len(self._held))
            if not more:
                break
            self._held += more
            if gone := min(start - self._begin, len(self._held)):
                del self._held[:gone]
                self._begin += gone
        return bytes(self._held[start - self._begin : stop - self._begin])

    def _unpack(self, most: int) -> bytes:
        """Returns the next unpacked bytes; none at the end."""
        while True:
            if self._unpacker.eof:  # another stream may follow, or zeros that fill up
                self._packed = self._unpacker.unused_data.lstrip(b"\0")
                self._unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
                self._is_started = False
            if not self._packed:
                self._packed = self._next_bytes()
                if not self._is_started:
                    self._packed = self._packed.lstrip(b"\0")
            if not self._packed and self.consumed == self._range.stop:
                if self._is_started and not self.is_cut:
                    raise self._damaged("it ends before its compressed data do")
                return b""
            try:
                data = self._unpacker.decompress(self._packed, most)
            except zlib.error as error:
                if self.is_cut:
                    return b""
                raise self._damaged(str(error)) from error
            self._is_started = bool(self._packed) or self._is_started
            self._packed = self._unpacker.unconsumed_tail
            if data:
                return data

    def _damaged(self, why: str) -> InputError:
        return InputError(
            f"{self._range.uri}: cannot be decompressed: {why}. The file is damaged or "
            "cut short: copy it again"
        )

    def _next_bytes(self) -> bytes:
        """Returns the next bytes of the file, few, so that `consumed` tells more."""
        if self._given == len(self._block):
            stop = min(self.consumed + BLOCK_BYTES, self._range.stop)
            if stop == self.consumed:
                return b""
            uri, seen = self._range.uri, _seen_of(self._range)
            self._block = _read(uri, self.consumed, stop, self._storage, seen)
            self._crc = crc32c(self._block, self._crc)
            self._given = 0
        found = self._block[self._given : self._given + _STEP_BYTES]
        self._given += len(found)
        self.consumed += len(found)
        return found

    def checksum(self) -> FileChecksum:
        while self._next_bytes():
            pass
        return FileChecksum(self._range.path, 0, self._range.stop, self._crc)


def open_range(input_range: InputRange, storage: StorageOptions) -> FileBytes:
    """Opens a range; whether its file is compressed is told by its first bytes."""
    if input_range.start == 0:
        uri, seen = input_range.uri, input_range.seen
        if is_packed(uri, storage, seen):
            return UnpackedBytes(input_range, storage)
    return PlainBytes(input_range, storage)


def is_packed(uri: str, storage: StorageOptions, seen: Seen | None) -> bool:
    """Tells whether a file is compressed with gzip or zlib."""
    return kind_of(read_range(uri, 0, _LOOKED_AT, storage, seen))[0] != "plain"


def kind_of(start: bytes) -> tuple[str, bool]:
    """Returns the compression that the first bytes of a file tell, and if records follow.

    Args:
      start: the first bytes.

    Returns:
      "plain", "gzip" or "zlib"; and whether a record begins in the (unpacked) file, or
      it has none.
    """
    if not start or is_head(start[:HEAD_BYTES]):
        return "plain", True
    for name, fits in (("gzip", start[:2] == b"\x1f\x8b"), ("zlib", _is_zlib(start))):
        if not fits:
            continue
        unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            head = unpacker.decompress(start, HEAD_BYTES)
        except zlib.error:
            continue
        if is_head(head) or (unpacker.eof and not head):
            return name, True
        if name == "gzip":
            return name, False
    return "plain", False


def look_at(uri: str, storage: StorageOptions, seen: Seen | None) -> tuple[str, bool]:
    """Returns what `kind_of` says of a file."""
    return kind_of(read_range(uri, 0, _LOOKED_AT, storage, seen))


def _is_zlib(start: bytes) -> bool:
    return start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0


def _seen_of(input_range: InputRange) -> Seen:
    if input_range.seen is None:
        raise ValueError(f"{input_range.uri}: the range has no size of its file")
    return input_range.seen


def _read(
    uri: str, start: int, stop: int, storage: StorageOptions, seen: Seen
) -> bytes:
    data = read_range(uri, start, stop, storage, seen)
    if len(data) < stop - start:
        raise ChangedInputError(
            f"{uri}: ends at byte {start + len(data)}, but had {seen.size} bytes when the "
            "run began; did it change meanwhile?"
        )
    return data
