"""Opens an input file for Arrow's readers, which jump about in it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

WHOLE_BYTES = 16 << 20  # of a file that is read at once
_STEP_BYTES = 4 << 20


class InputWindow(io.RawIOBase):
    """An input file that is read in the version of the inventory."""

    def __init__(self, file: InputFile, storage: StorageOptions) -> None:
        super().__init__()
        self._file = file
        self._storage = storage
        self._at = 0
        self._whole: bytes | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        """Returns the bytes of the file."""
        return self._file.size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}
        self._at = max(0, base[whence] + offset)
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        stop = self._file.size if size < 0 else min(self._at + size, self._file.size)
        data = self.part(self._at, stop)
        self._at += len(data)
        return data

    def part(self, start: int, stop: int) -> bytes:
        """Returns some bytes of the file."""
        if self._whole is not None:
            return self._whole[start:stop]
        file = self._file
        return read_range(file.uri, start, stop, self._storage, file.seen)

    def hold(self) -> None:
        """Reads the file at once, if it is small, to be read from memory."""
        if self._file.size <= WHOLE_BYTES:
            self._whole = self.part(0, self._file.size)

    def checksum(self, start: int, stop: int) -> FileChecksum:
        """Returns the checksum of a part of the file."""
        crc = 0
        for begin in range(start, stop, _STEP_BYTES):
            crc = crc32c(self.part(begin, min(begin + _STEP_BYTES, stop)), crc)
        return FileChecksum(self._file.path, start, stop, crc)


@contextmanager
def told_of(uri: str, what: str) -> Iterator[None]:
    """Tells of what Arrow's readers refuse as an error of the input.

    Raises:
      InputError: names the file.
    """
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        told = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"{uri}: cannot be read as {what}: {told}. Copy or write the file again; if "
            "it is of another kind, name only the files to convert"
        ) from error
