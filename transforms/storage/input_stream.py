"""Reads the bytes of a file, or of a part of it: unpacked, decoded, with a checksum.

A file that is neither compressed nor in another encoding is read at any offset. Any other
file is a stream, of which little is held in memory:

    file        blocks of 4 MiB, each read once and added to the checksum
    unpacked    64 KiB of the file at a time, so that `positions` maps it to file offsets
    decoded     UTF-8 from any encoding; undecodable text becomes bytes that are not
                UTF-8, so that only its row is rejected
"""

from __future__ import annotations

import codecs
import importlib
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import IO, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.transforms.arrow import I64
from recordmill.transforms.tfrecord import crc32c

BLOCK_BYTES = 4 << 20  # read from a file at once
STEP_BYTES = 1 << 16  # passed to the decompressor at once
TEXT_BYTES = 1 << 20  # most bytes that one call of the decompressor returns

ReadBytes = Callable[[int, int], bytes]
"""Reads a file from a start offset to a stop offset; returns fewer bytes at its end."""


class InflateError(Exception):
    """The error for damaged compressed bytes."""


_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
# zlib's wbits; "deflated" means gzip or zlib.
_WINDOW_BITS = {"gzip": 31, "zlib": 15, "deflate": -15, "deflated": 47}
_JOINED = ("gzip", "deflated")  # one stream may follow another
_UNDECODABLE = "recordmill.undecodable"
_LONE_SURROGATE = "\udcff"  # a lone surrogate, which UTF-8 does not allow


def compression_of(start: bytes) -> str:
    """Returns the compression of a file by its first bytes, or ""."""
    compressions = (
        name for mark, name in _COMPRESSIONS.items() if start.startswith(mark)
    )
    return next(compressions, "")


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _LONE_SURROGATE, error.end


codecs.register_error(_UNDECODABLE, _mark_undecodable)


@dataclass(slots=True)
class _StreamPositions:
    """The approximate offsets in a file from which the bytes of a stream come."""

    offsets: list[int] = field(default_factory=lambda: [0])
    consumed: list[int] = field(default_factory=lambda: [0])

    def row_offsets(self, ordinals: I64, num_rows: int, begin: int, end: int) -> I64:
        """Returns the approximate start of each row of a part in the file, increasing."""
        return self.file_offsets(begin + ordinals * (end - begin) // max(1, num_rows))

    def file_offsets(self, offsets: I64) -> I64:
        """Returns the approximate file offsets of bytes of the stream, increasing."""
        positions = np.interp(offsets, self.offsets, self.consumed).astype(np.int64)
        return np.minimum(positions, max(0, self.consumed[-1] - 1))


class InputStream(io.RawIOBase):
    """A stream of a file's bytes, for forward readers and for libraries."""

    def __init__(
        self,
        read: ReadBytes,
        size: int,
        *,
        uri: str = "",
        part: tuple[int, int] | None = None,
        compression: str = "",
        encoding: str = "utf-8",
        window_bytes: int = 0,
    ) -> None:
        """Opens a file; nothing is read yet.

        Args:
          read: reads bytes of the file by offsets.
          size: size of the file in bytes.
          uri: location of the file, for messages.
          part: the first byte and the byte after the last; None for the whole file. Only
            these bytes enter the checksum. Later bytes are read only on request.
          compression: a value of `compression_of`, zlib, deflate, or deflated (gzip or
            zlib).
          encoding: Python's name of the text's encoding.
          window_bytes: least bytes per read; they are kept for the next reads.
        """
        super().__init__()
        self.uri, self.size = uri, size
        self.start, self.stop = part or (0, size)
        self._file = _ChecksummedFile(read, uri, size, self.start, self.stop)
        # Whether offsets refer to the unpacked text, not to the file.
        self.is_packed = bool(compression) or encoding != "utf-8"
        # Whether the part ends before the packed file does, possibly within a character.
        self.is_cut = self.is_packed and self.stop < size
        # the first byte that may be read again
        self.keep_from_offset: int | None = None
        self.positions = _StreamPositions()
        self._compression, self._encoding = compression, encoding
        self._window_bytes = window_bytes
        self._offset = 0 if self.is_packed else self.start
        self._open()

    def _open(self) -> None:
        self._steps = _FileSteps(self._file.fetch, self.start, self.stop)
        self._unpacked = _decompressor_of(self._steps, self._compression)
        self._decoder: codecs.IncrementalDecoder | None = None
        if self._encoding != "utf-8":
            self._decoder = codecs.getincrementaldecoder(self._encoding)(_UNDECODABLE)
        self._is_ended = False
        self._window, self._window_start = b"", 0

    @property
    def packed_bytes_read(self) -> int:
        """Returns the number of bytes of a packed file that were unpacked."""
        return self._steps.bytes_read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self.size}
        if base[whence] + offset < 0:
            raise OSError("cannot seek to a position before the start of a file")
        self._offset = base[whence] + offset
        return self._offset

    def read(self, size: int = -1, /) -> bytes:
        block = self.part(
            self._offset, self._offset + size if size >= 0 else self._end_of_all()
        )
        self._offset += len(block)
        return block

    def _end_of_all(self) -> int:
        return 1 << 62 if self.is_packed else self.stop

    def part(self, start: int, stop: int) -> bytes:
        """Returns the bytes between two offsets; fewer at the end.

        Raises:
          ChangedInputError: the file has changed since it was listed.
          InputError: the file cannot be read or unpacked.
        """
        window, begin = self.window(start, stop)
        return window[max(0, start - begin) : max(0, stop - begin)]

    def window(self, start: int, stop: int) -> tuple[bytes, int]:
        """Returns the bytes in memory, with this part among them, and their offset.

        Raises the errors of `part`.
        """
        if not self.is_packed:
            stop = min(stop, self.size)
        end = self._window_start + len(self._window)
        if start < stop and (start < self._window_start or stop > end):
            kept_offset = (
                start
                if self.keep_from_offset is None
                else min(start, self.keep_from_offset)
            )
            if self.is_packed:
                self._unpack_to(start, stop, kept_offset)
            else:
                self._read_to(start, stop, kept_offset)
        return self._window, self._window_start

    def _read_to(self, start: int, stop: int, kept_offset: int) -> None:
        end = self._window_start + len(self._window)
        to = max(stop, min(start + self._window_bytes, self.stop))
        if kept_offset < start and self._window_start <= kept_offset < end < to:
            self._window = self._window[
                kept_offset - self._window_start :
            ] + self._file.fetch(end, to)
            self._window_start = kept_offset
        else:
            self._window, self._window_start = self._file.fetch(start, to), start

    def _unpack_to(self, start: int, stop: int, kept_offset: int) -> None:
        if start < self._window_start:
            self._open()
        end = self._window_start + len(self._window)
        max_bytes = STEP_BYTES if self.is_cut else self._window_bytes
        parts = [self._window[max(0, kept_offset - self._window_start) :]]
        self._window_start = max(self._window_start, min(kept_offset, end))
        try:
            while end < stop and (block := self._read_decoded(max_bytes or stop - end)):
                if end <= kept_offset:  # no earlier byte will be read again
                    parts, self._window_start = [], end
                parts.append(block)
                end += len(block)
                self._add_position(end)
        finally:  # bytes before the damage can still be read
            self._window = b"".join(parts)

    def release(self, stop: int) -> None:
        """Releases the bytes before an offset; copies the bytes after it."""
        if stop > self._window_start:
            self._window = self._window[stop - self._window_start :]
            self._window_start = stop

    def read_block(self) -> bytes:
        """Returns the next bytes of a text, or b"" at its end; for sequential readers."""
        block = self._read_decoded(STEP_BYTES if self.is_cut else TEXT_BYTES)
        self._window_start += len(block)
        self._add_position(self._window_start)
        return block

    def checksum_of_part(self) -> int:
        """Reads the rest of the file's part; returns the checksum of the whole part."""
        while (summed := self._file.checksummed_until) < self.stop:
            self._file.fetch(summed, min(summed + BLOCK_BYTES, self.stop))
        return self._file.crc

    def _add_position(self, end: int) -> None:
        self.positions.offsets.append(end)
        self.positions.consumed.append(self.packed_bytes_read)

    def _read_decoded(self, max_bytes: int) -> bytes:
        """Returns the next bytes of a stream, decoded."""
        while not self._is_ended:
            raw = self._read_unpacked(min(max_bytes, BLOCK_BYTES))
            self._is_ended = not raw
            if self._decoder is None:
                return raw
            try:
                text = self._decoder.decode(raw, self._is_ended and not self.is_cut)
            except UnicodeError as error:  # from a codec that cannot continue
                raise InputError(
                    f"{self.uri}: is not {self._encoding}: {error}. Set `encoding`"
                ) from error
            if text:
                return text.encode("utf-8", "surrogatepass")
        return b""

    def _read_unpacked(self, max_bytes: int) -> bytes:
        try:
            return self._unpacked.read(max_bytes)
        except InputError:
            raise
        except (
            OSError,
            EOFError,
            ValueError,
            lzma.LZMAError,
            pa.ArrowException,
            InflateError,
        ) as error:
            if self.is_cut:
                return b""
            compression_note = (
                "" if self._compression == "deflated" else f" as {self._compression}"
            )
            raise InputError(
                f"{self.uri}: cannot be decompressed{compression_note}: {error}. The file is damaged "
                "or cut short: copy it again"
            ) from error


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(slots=True)
class _ChecksummedFile:
    """A file and the checksum of the bytes of a part that were read.

    It is not the stream itself, to avoid a reference cycle. Only the garbage collector
    could free such a stream, long after its input range was read.
    """

    read: ReadBytes
    uri: str
    size: int
    checksummed_until: int
    stop: int
    crc: int = 0

    def fetch(self, start: int, stop: int) -> bytes:
        """Reads bytes of the file; adds bytes to the checksum when first read."""
        data = self.read(start, stop) if start < stop else b""
        if len(data) < stop - start:
            raise ChangedInputError(
                f"{self.uri}: ends at byte {start + len(data)}, but had {self.size} "
                "bytes when the run began; did it change in the meantime?"
            )
        if start <= self.checksummed_until < min(stop, self.stop):
            new = memoryview(data)[self.checksummed_until - start : self.stop - start]
            self.crc = crc32c(new, self.crc)
            self.checksummed_until += len(new)
        return data


class _FileSteps(io.RawIOBase):
    """A reader of a part of a file in small steps; `given` counts the bytes read."""

    def __init__(self, fetch: ReadBytes, start: int, stop: int) -> None:
        super().__init__()
        self._fetch, self._next, self._stop = fetch, start, stop
        self._block = memoryview(b"")
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not self._block:
            stop = min(self._next + BLOCK_BYTES, self._stop)
            self._block = memoryview(self._fetch(self._next, stop))
            self._next = stop
        step = bytes(self._block[: STEP_BYTES if size < 0 else min(size, STEP_BYTES)])
        self._block = self._block[len(step) :]
        self.bytes_read += len(step)
        return step


def _decompressor_of(file: _FileSteps, compression: str) -> _Readable:
    if compression in _WINDOW_BITS:
        return Inflater(file, compression)
    if compression == "xz":
        return lzma.LZMAFile(cast("IO[bytes]", file))
    if compression:
        stream: _Readable = pa.CompressedInputStream(
            pa.PythonFile(file, "r"), compression
        )
        return stream
    return file


class Inflater:
    """A decompressor of gzip, zlib or deflate; several gzip streams may be joined."""

    def __init__(self, file: _Readable, compression: str) -> None:
        try:
            zlib = importlib.import_module("zlib_ng.zlib_ng")
        except ImportError:  # in a training environment, which only reads datasets
            zlib = importlib.import_module("zlib")
        self._file = file
        self._is_joined = compression in _JOINED
        self._new_stream = partial(zlib.decompressobj, _WINDOW_BITS[compression])
        self._stream = self._new_stream()
        self._damaged: type[Exception] = zlib.error
        self._packed = b""

    def read(self, size: int, /) -> bytes:
        """Returns the next bytes; fewer at the end and before damaged bytes.

        Raises:
          EOFError: the end of the stream is missing.
          InflateError: the bytes are damaged.
        """
        parts, remaining_size = list[bytes](), size
        while remaining_size:
            try:
                block = self._inflate(remaining_size)
            except (EOFError, InflateError):
                if not parts:
                    raise
                break
            if not block:
                break
            parts.append(block)
            remaining_size -= len(block)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _inflate(self, max_bytes: int) -> bytes:
        block = b""
        while not block:
            if self._stream.eof:
                if not self._is_joined or not self._skip_zeros():
                    return b""
                self._stream = self._new_stream()
            try:
                block = self._stream.decompress(self._packed, max_bytes)
            except self._damaged as error:
                raise InflateError(str(error)) from error
            self._packed = self._stream.unused_data or self._stream.unconsumed_tail
            if not (block or self._packed or self._stream.eof):
                self._packed = self._file.read(STEP_BYTES)
                if not self._packed:
                    raise EOFError("it ends before its compressed data do")
        return block

    def _skip_zeros(self) -> bool:
        """Returns whether another stream follows; skips zeros that fill up a block."""
        while not (remaining_bytes := self._packed.lstrip(b"\0")):
            self._packed = self._file.read(STEP_BYTES)
            if not self._packed:
                return False
        self._packed = remaining_bytes
        return True


# UTF-32 first, because its marks start with those of UTF-16.
_BOMS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


@dataclass(frozen=True, slots=True)
class Packing:
    """The compression and the encoding of a text file."""

    compression: str = ""  # gzip, bz2, xz or zstd; "" for none
    encoding: str = "utf-8"  # Python's name of the text's encoding

    @property
    def is_plain(self) -> bool:
        """Returns whether the file is uncompressed UTF-8, readable at any offset."""
        return not self.compression and self.encoding == "utf-8"

    @property
    def description(self) -> str:
        """Returns a description for people: "gzip, utf-16"."""
        parts = [self.compression, self.encoding if self.encoding != "utf-8" else ""]
        return ", ".join(filter(None, parts))


class RequestedPacking(NamedTuple):
    """The requested packing; None for a property that is detected in the first file."""

    compression: str | None = None
    encoding: str | None = None


PLAIN = Packing()
DETECT_PACKING = RequestedPacking()
UNPACKED_TIMES = 8  # assumed ratio of unpacked to compressed bytes; mostly less
MARK_BYTES = 8  # read at a file's start to detect its compression or encoding


def compression_mismatch_message(uri: str, actual: str, expected: str) -> str:
    """Returns the message for a file whose compression differs from the first file's."""
    return (
        f"{uri}: is {actual or 'not'} compressed, but the first file is "
        f"{expected or 'not'}. Convert such files separately, or make them consistent"
    )


def encoding_of(start: bytes) -> str:
    """Returns the encoding of a text by its byte order mark; UTF-8 without a mark."""
    encodings = (name for mark, name in _BOMS.items() if start.startswith(mark))
    return next(encodings, "utf-8")
