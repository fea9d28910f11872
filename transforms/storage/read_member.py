"""Reads members of archives: parts of the archive where that is possible.

A member of a plain tar archive and a stored one of a zip file are read as parts of the
archive. A deflated one is read and inflated as a whole. A large one, and a compressed tar
archive, is unpacked as a stream into one file, once in each process, from which parts are
read then. That file has no name in any folder, so nothing can be left behind, and no path
that an archive names is written to.
"""

from __future__ import annotations

import atexit
import errno
import io
import math
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO

from zlib_ng import zlib_ng

from recordmill.schemas.errors import FULL, InputError
from recordmill.schemas.input_files import ArchiveMember, Seen
from recordmill.schemas.text import human_bytes
from recordmill.transforms.storage.input_stream import (
    BLOCK_BYTES,
    InflateError,
    Inflater,
    InputStream,
    ReadBytes,
)

GUARDED_BYTES = 1 << 30  # what unpacks to more than this must not be too good
MOST_FILES = 64  # that are kept open; a process may open some 1,000
IDLE_SECONDS = 3600.0  # after which a file is closed: its job has ended
MOST_TIMES = 250  # to unpack to so many times the bytes is too good: nothing real does

_lock = threading.Lock()
_files: dict[tuple[str, ...], _Unpacked] = {}
_folder = ""


@dataclass(slots=True)
class _Unpacked:
    """A file that is being unpacked, or was.

    Attributes:
      lock: of who unpacks it.
      file: once it is there.
      num_readers: that are at work.
      used_at: when it was read last.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    file: IO[bytes] | None = None
    num_readers: int = 0
    used_at: float = 0.0


def unpack_into(folder: str) -> None:
    """Chooses the local folder whose disk unpacked files are on, instead of TMPDIR.

    Args:
      folder: that, or the first folder above it that is there, is taken.
    """
    global _folder
    path = Path(folder).absolute()
    _folder = str(next(each for each in (path, *path.parents) if each.is_dir()))


@contextmanager
def unpacked(
    key: tuple[str, ...], uri: str, unpack: Callable[[], Iterator[bytes]]
) -> Iterator[int]:
    """Yields the descriptor of an unpacked file; unpacks it where that is still to do.

    Args:
      key: of what is unpacked, and its version.
      uri: of the archive, for messages.
      unpack: yields the bytes.

    Raises:
      InputError: it cannot be unpacked, or there is no room for it.
    """
    with _lock:
        if key not in _files:
            _close_unused(time.monotonic() - IDLE_SECONDS)
        entry = _files.setdefault(key, _Unpacked())
        entry.num_readers += 1
    try:
        with entry.lock:
            if entry.file is None:
                entry.file = _write(uri, unpack())
        yield entry.file.fileno()
    finally:
        with _lock:
            entry.num_readers -= 1
            entry.used_at = time.monotonic()


def _close_unused(before: float) -> None:
    """Closes files that nobody has read since then, and the oldest of very many."""
    unused = [key for key, entry in _files.items() if not entry.num_readers]
    unused.sort(key=lambda key: _files[key].used_at)
    too_many = len(_files) - MOST_FILES
    for number, key in enumerate(unused):
        if number < too_many or _files[key].used_at < before:
            file = _files.pop(key).file
            if file is not None:
                file.close()


@atexit.register
def close_all() -> None:
    """Closes the files that nobody reads; who needs one again unpacks it again."""
    with _lock:
        _close_unused(math.inf)


def _write(uri: str, blocks: Iterator[bytes]) -> IO[bytes]:
    try:
        file = _open()
        try:
            for block in blocks:
                file.write(block)
            file.flush()
        except BaseException:
            file.close()
            raise
    except OSError as error:
        if error.errno not in (*FULL, errno.EROFS, errno.EACCES):
            raise
        raise InputError(
            f"{uri}: cannot be unpacked in {_folder or tempfile.gettempdir()}: "
            f"{error.strerror}. Make room there, or set `scratch` to a folder with room; "
            "or unpack it yourself and give the folder as the input"
        ) from error
    return file


def _open() -> IO[bytes]:
    if _folder and os.access(_folder, os.W_OK):
        return tempfile.TemporaryFile(dir=_folder)
    return tempfile.TemporaryFile()


def decompress(
    uri: str, compression: str, size: int, read: ReadBytes
) -> Iterator[bytes]:
    """Yields the bytes of a compressed archive.

    Raises:
      InputError: it is damaged or cut short, or unpacks to far too much.
    """
    stream = InputStream(read, size, uri=uri, compression=compression)
    total = 0
    while block := stream.piece():
        total += len(block)
        require_plausible(uri, total, stream.consumed)
        yield block


def require_plausible(uri: str, unpacked_bytes: int, packed_bytes: int) -> None:
    """Checks that something unpacks to what it may really hold.

    Raises:
      InputError: it would fill the disk.
    """
    if unpacked_bytes > max(GUARDED_BYTES, MOST_TIMES * packed_bytes):
        raise InputError(
            f"{uri}: unpacks to more than {human_bytes(unpacked_bytes)}, over {MOST_TIMES} "
            "times its size, as archives do that are made to fill disks. If it is what you "
            "want, unpack it yourself and give the folder as the input"
        )


ReadArchive = Callable[[str, int, int, Seen], bytes]
"""Reads a file, here an archive, from a byte to another one."""

INFLATED_BYTES = 16 << 20  # the largest member that is inflated in memory
_HEADER = struct.Struct("<4s5H3I2H")  # of a member of a zip file
_EXTRA_BYTES = 512  # of a header; more than most have


@dataclass(frozen=True, slots=True)
class MemberReader:
    """Reads a member of an archive; equal ones read the same.

    Attributes:
      uri: of the member.
      seen: its size and version.
      member: where it lies.
      read_archive: reads the archive, if it is still as it was listed.
    """

    uri: str
    seen: Seen
    member: ArchiveMember
    read_archive: ReadArchive

    def read(self, start: int, stop: int) -> bytes:
        """Returns bytes of the member; fewer if it ends before.

        Raises:
          InputError: the member is damaged, or the archive cannot be read.
        """
        member, stop = self.member, min(stop, self.seen.size)
        if start >= stop:
            return b""
        is_whole = stop - start == self.seen.size
        if member.kind == "tar":
            data = self._stored(member.offset + start, member.offset + stop)
        elif member.kind == "stored" and is_whole:
            data = self._with_header()
            self._require_crc(zlib_ng.crc32(data))
        elif member.kind == "stored":
            first = self._data_offset(self._header())
            data = self._stored(first + start, first + stop)
        elif member.kind != "deflated":
            archive = member.archive_uri(self.uri)
            with unpacked_archive(
                archive, member.archive, member.kind, self._stored
            ) as descriptor:
                data = os.pread(descriptor, stop - start, member.offset + start)
        elif self.seen.size > INFLATED_BYTES:
            with unpacked(
                (member.archive_uri(self.uri), member.version),
                member.archive_uri(self.uri),
                lambda: self._inflate(self._packed()),
            ) as descriptor:
                data = os.pread(descriptor, stop - start, start)
        else:
            data = self.inflated() if is_whole else _kept(self)[start:stop]
        return self._require_size(data, stop - start)

    def _stored(self, start: int, stop: int) -> bytes:
        archive = self.member.archive_uri(self.uri)
        return self.read_archive(archive, start, stop, self.member.archive)

    def _header(self) -> bytes:
        return self._stored(self.member.offset, self.member.offset + _HEADER.size)

    def _data_offset(self, head: bytes) -> int:
        """Returns where in the archive the data of a member of a zip file begins."""
        if len(head) < _HEADER.size or head[:4] != b"PK\3\4":
            raise _damaged(self.uri, "has no header where the archive says")
        *_, name_bytes, extra_bytes = _HEADER.unpack_from(head)
        return int(self.member.offset + _HEADER.size + name_bytes + extra_bytes)

    def _with_header(self) -> bytes:
        """Returns all stored bytes, most often read with their header at once."""
        begin, size = self.member.offset, self.member.stored_bytes
        guess = _HEADER.size + 4 * self.member.name_chars + _EXTRA_BYTES
        head = self._stored(begin, begin + guess + size)
        first = self._data_offset(head)
        data = head[first - begin : first - begin + size]
        if len(data) < size:
            data += self._stored(first + len(data), first + size)
        return self._require_size(data, size)

    def _packed(self) -> InputStream:
        first = self._data_offset(self._header())
        part = first, first + self.member.stored_bytes
        return InputStream(self._stored, part[1], uri=self.uri, part=part)

    def inflated(self) -> bytes:
        """Returns all bytes of a deflated member."""
        return b"".join(self._inflate(io.BytesIO(self._with_header())))

    def _inflate(self, packed: IO[bytes] | InputStream) -> Iterator[bytes]:
        inflater, size = Inflater(packed, "deflate"), self.seen.size
        total = crc = 0
        try:
            while total <= size and (block := inflater.read(BLOCK_BYTES)):
                total += len(block)
                crc = zlib_ng.crc32(block, crc)
                yield block
        except EOFError:
            total = -1
        except InflateError as error:
            raise _damaged(self.uri, f"cannot be inflated: {error}") from error
        if total != size:
            raise _damaged(self.uri, f"does not inflate to its {size:,} bytes")
        self._require_crc(crc)

    def _require_crc(self, crc32: int) -> None:
        if f"{crc32:08x}" != self.member.crc32:
            found = f"has the CRC {crc32:08x}, but its archive says {self.member.crc32}"
            raise _damaged(self.uri, found)

    def _require_size(self, data: bytes, size: int) -> bytes:
        if len(data) != size:
            raise InputError(
                f"{self.uri}: ends {size - len(data):,} bytes too early. The archive is "
                "cut short: copy it again"
            )
        return data


@lru_cache(maxsize=4)
def _kept(reader: MemberReader) -> bytes:
    """Returns an inflated member of which parts are read one after the other."""
    return reader.inflated()


def _damaged(uri: str, found: str) -> InputError:
    return InputError(f"{uri}: {found}. The archive is damaged: copy it again")


@contextmanager
def unpacked_archive(
    uri: str, seen: Seen, compression: str, read: ReadBytes
) -> Iterator[int]:
    """Yields the descriptor of a file that has all of a compressed archive, unpacked.

    Args:
      uri: of the archive.
      seen: its size and version.
      compression: gzip, bz2, xz or zstd.
      read: reads the archive.
    """
    key = (uri, str(seen.size), seen.version)
    with unpacked(
        key, uri, lambda: decompress(uri, compression, seen.size, read)
    ) as descriptor:
        yield descriptor
