"""Reads a shard, or a range of one, once and forwards: its bytes, and their checksum."""

from __future__ import annotations

import io
from collections.abc import Iterator

from recordmill.schemas.errors import InputError
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.archives.list_tar import BLOCK, is_tar
from recordmill.transforms.sources.unpack import StreamPositions
from recordmill.transforms.storage.compressions import compression_of
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.storage.unpacked import decompress
from recordmill.transforms.tfrecord import crc32c

STEP_BYTES = 4 << 20  # read at once: many members by one request


class ShardBytes(io.RawIOBase):
    """The bytes of a tar archive, compressed or not, for `tarfile`.

    What lies before `kept_from` is forgotten, so a shard of any size takes little memory.

    Args:
      file: the shard.
      storage: options of its storage.
      start: the first byte that is read; of an archive that is not compressed.
      stop: the byte after the last one; None for the file's end.

    Attributes:
      file: the shard.
      stop: as above.
      compression: of it, or "".
      crc: the checksum of what was read of the file.
      positions: where in a compressed file its bytes come from.
      kept_from: the first byte that may be asked for again.

    Raises:
      InputError: it is no tar archive.
    """

    def __init__(
        self,
        file: InputFile,
        storage: StorageOptions,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.file, self._storage = file, storage
        self.stop = file.size if stop is None else stop
        self.crc = 0
        self.kept_from = self._consumed = self._offset = self._begin = start
        self.positions = StreamPositions()
        self._held = bytearray()
        self.compression = ""
        if not start:
            head = read_range(file.uri, 0, min(BLOCK, file.size), storage, file.seen)
            self.compression = compression_of(head)
        self._blocks = self._plain()
        if self.compression:
            self._blocks = decompress(
                file.uri, self.compression, file.size, self._read_file
            )
        first = self.read(BLOCK)
        self.seek(start)
        if len(first) < BLOCK or not is_tar(first):
            raise InputError(
                f"{file.uri}: is not a tar archive, as a shard is. Copy it again, or leave "
                "it out of the inputs"
            )

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._begin:
            raise OSError(f"cannot go to byte {offset} of a stream")
        self._offset = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        start = self._offset
        while size < 0 or self._end < start + size:
            block = next(self._blocks, b"")
            if not block:
                break
            self._held += block
            if self.compression:
                self.positions.add(self._end, self._consumed)
            if (passed := min(self.kept_from, start) - self._begin) > 0:
                passed = min(passed, len(self._held))
                del self._held[:passed]
                self._begin += passed
        stop = len(self._held) if size < 0 else start - self._begin + size
        found = bytes(self._held[start - self._begin : stop])
        self._offset += len(found)
        return found

    def drain(self) -> None:
        """Reads what is left of the range, for its checksum."""
        while True:
            start, stop = self._consumed, self._consumed + STEP_BYTES
            if not self._read_file(start, min(stop, self.stop)):
                return

    @property
    def _end(self) -> int:
        return self._begin + len(self._held)

    def _plain(self) -> Iterator[bytes]:
        for start in range(self._consumed, self.stop, STEP_BYTES):
            yield self._read_file(start, min(start + STEP_BYTES, self.stop))

    def _read_file(self, start: int, stop: int) -> bytes:
        data = read_range(self.file.uri, start, stop, self._storage, self.file.seen)
        if start == self._consumed:  # always, but who unpacks might look twice
            self.crc = crc32c(data, self.crc)
            self._consumed += len(data)
        return data
