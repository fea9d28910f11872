"""Unpacks files as a stream: decompresses them and makes UTF-8 of their text.

What cannot be decoded becomes bytes that are not UTF-8, so that only its row is rejected.
"""

from __future__ import annotations

import codecs
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Protocol, cast

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import Seen
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64
from recordmill.transforms.sources.packing import UTF_8, Packing
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

BLOCK_BYTES = 4 << 20  # read of a file at once
STEP_BYTES = 1 << 16  # given to the decompressor at once
TEXT_BYTES = 1 << 20  # asked of it at once
_UNDECODABLE = "recordmill.undecodable"
_BAD = "\udcff"  # half a character: none in UTF-8


def _mark_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _BAD, error.end


codecs.register_error(_UNDECODABLE, _mark_undecodable)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class FileBytes(io.RawIOBase):
    """The bytes of a file from its start to a given stop, read in blocks.

    Attributes:
      consumed: bytes that were given away.
      crc: checksum of those that were read.
    """

    def __init__(
        self, uri: str, stop: int, storage: StorageOptions, seen: Seen | None
    ) -> None:
        self._uri, self._stop, self._storage, self._seen = uri, stop, storage, seen
        self._block = memoryview(b"")
        self._at = self._read = 0
        self.consumed = 0
        self.crc = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._at == len(self._block):
            self._next_block()
        most = STEP_BYTES if size < 0 else min(size, STEP_BYTES)
        found = bytes(self._block[self._at : self._at + most])
        self._at += len(found)
        self.consumed += len(found)
        return found

    def drain(self) -> None:
        """Reads what is left, for the checksum of all bytes."""
        while self._read < self._stop:
            self._next_block()

    def _next_block(self) -> None:
        stop = min(self._read + BLOCK_BYTES, self._stop)
        if self._read == stop:
            self._block, self._at = memoryview(b""), 0
            return
        block = read_range(self._uri, self._read, stop, self._storage, self._seen)
        if len(block) < stop - self._read:
            raise ChangedInputError(
                f"{self._uri}: ends at byte {self._read + len(block)}, but had "
                f"{self._stop} bytes when the run began; did it change meanwhile?"
            )
        self._block, self._at = memoryview(block), 0
        self._read = stop
        self.crc = crc32c(block, self.crc)


@dataclass(slots=True)
class StreamPositions:
    """Where in its file each byte of a text comes from, about."""

    offsets: list[int] = field(default_factory=lambda: [0])
    consumed: list[int] = field(default_factory=lambda: [0])

    def add(self, offset: int, consumed: int) -> None:
        """Notes that so many bytes of the text took so many bytes of the file."""
        self.offsets.append(offset)
        self.consumed.append(consumed)

    def of_rows(self, ordinals: I64, num_rows: int, begin: int, end: int) -> I64:
        """Returns about where each row of a part starts in the file, rising.

        Args:
          ordinals: of each row in the part.
          num_rows: of the part.
          begin, end: of the part in the text.
        """
        return self.of(begin + ordinals * (end - begin) // max(1, num_rows))

    def of(self, offsets: I64) -> I64:
        """Returns about where bytes of the text come from in the file, rising."""
        found = np.interp(offsets, self.offsets, self.consumed).astype(np.int64)
        return np.minimum(found, max(0, self.consumed[-1] - 1))


@dataclass(slots=True)
class UnpackedText:
    """The text of a file as a stream of UTF-8.

    Attributes:
      file: its bytes.
      text: the same, decompressed.
      uri: of the file, for messages.
      packing: of the file.
      decoder: of the text, or None for UTF-8.
      is_cut: whether the file's end is left out, so that it may break off anywhere.
      size: of the text that was read.
      positions: where in the file it came from.
    """

    file: FileBytes
    text: _Readable
    uri: str
    packing: Packing
    decoder: codecs.IncrementalDecoder | None
    is_cut: bool
    is_ended: bool = False
    size: int = 0
    positions: StreamPositions = field(default_factory=StreamPositions)

    def read(self) -> bytes:
        """Returns the next bytes of the text; none at its end.

        Raises:
          InputError: the file cannot be decompressed.
        """
        text = self._read()
        self.size += len(text)
        self.positions.add(self.size, self.file.consumed)
        return text

    def _read(self) -> bytes:
        while not self.is_ended:
            raw = self._read_raw()
            self.is_ended = not raw
            if self.decoder is None:
                return raw
            try:
                text = self.decoder.decode(raw, self.is_ended and not self.is_cut)
            except UnicodeError as e:  # of a codec that cannot go on behind it
                raise InputError(
                    f"{self.uri}: is not {self.packing.encoding}: {e}. Say which "
                    "encoding it is: `encoding`"
                ) from e
            if text:
                return text.encode(UTF_8, "surrogatepass")
        return b""

    def _read_raw(self) -> bytes:
        try:
            return self.text.read(STEP_BYTES if self.is_cut else TEXT_BYTES)
        except (ChangedInputError, InputError):
            raise
        except (OSError, EOFError, ValueError, lzma.LZMAError, pa.ArrowException) as e:
            if self.is_cut:
                return b""
            raise InputError(
                f"{self.uri}: cannot be decompressed as {self.packing.compression}: "
                f"{e}. The file is damaged or cut short: copy it again"
            ) from e


def unpack(
    uri: str,
    stop: int,
    packing: Packing,
    storage: StorageOptions,
    seen: Seen | None,
) -> UnpackedText:
    """Opens a file as text.

    Args:
      uri: of the file.
      stop: where to end in it.
      packing: of the file.
      storage: options of its storage.
      seen: what the file has to be, or None.
    """
    file = FileBytes(uri, stop, storage, seen)
    text: _Readable = file
    if packing.compression == "xz":
        text = lzma.LZMAFile(cast("IO[bytes]", file))  # noqa: SIM115 (`text` is read by the caller)
    elif packing.compression:
        text = pa.CompressedInputStream(pa.PythonFile(file, "r"), packing.compression)
    decoder = None
    if packing.encoding != UTF_8:
        decoder = codecs.getincrementaldecoder(packing.encoding)(_UNDECODABLE)
    is_cut = seen is not None and stop < seen.size
    return UnpackedText(file, text, uri, packing, decoder, is_cut)


class UnpackedReader:
    """Reads bytes of a text by their offsets, forwards; going back begins anew."""

    def __init__(self, open_text: Callable[[], UnpackedText]) -> None:
        self._open = open_text
        self._text: UnpackedText | None = None
        self._begin = 0  # of what is held
        self._held = b""

    def __call__(self, start: int, stop: int) -> bytes:
        if self._text is None or start < self._begin:
            self._text, self._begin, self._held = self._open(), 0, b""
        parts, end = [self._held], self._begin + len(self._held)
        while end < stop and (more := self._text.read()):
            if end <= start:  # nothing of what came before is asked for
                parts, self._begin = [], end
            parts.append(more)
            end += len(more)
        self._held = b"".join(parts)
        return self._held[max(0, start - self._begin) : max(0, stop - self._begin)]
