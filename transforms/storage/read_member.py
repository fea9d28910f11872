"""Unpacks what cannot be read at random into files without a name, once in each process.

A compressed archive, or a large compressed member of one, is read from its start. So it is
unpacked as a stream into one file, from which parts are read then. The file has no name in
any folder, so nothing can be left behind, and no path that an archive names is written to.

Reads members of archives: parts of the archive where that is possible.

A member of a plain tar archive and a stored one of a zip file are read as parts of the
archive. A deflated one is read and inflated as a whole; if it is large, into a file
without a name, as a compressed tar archive is.
"""

from __future__ import annotations

import atexit
import errno
import io
import lzma
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
from typing import IO, cast

import pyarrow as pa
from zlib_ng import zlib_ng

from recordmill.schemas.errors import FULL, InputError
from recordmill.schemas.input_files import ArchiveMember
from recordmill.schemas.ranges import Seen
from recordmill.schemas.text import human_bytes
from recordmill.transforms.storage.seekable_bytes import ReadBytes

BLOCK_BYTES = 4 << 20  # read of an archive at once
GUARDED_BYTES = 1 << 30  # what unpacks to more than this must not be too good
MOST_FILES = 64  # that are kept open; a process may open some 1,000
IDLE_SECONDS = 3600.0  # after which a file is closed: its job has ended
MOST_TIMES = 250  # to unpack to so many times the bytes is too good: nothing real does

_InflateError = cast("type[Exception]", zlib_ng.error)  # its stub has an instance

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
    """Yields the bytes of a compressed file.

    Args:
      uri: of the file, for messages.
      compression: gzip, bz2, xz or zstd.
      size: of the file.
      read: reads it.

    Raises:
      InputError: it is damaged or cut short, or unpacks to far too much.
    """
    file = _CompressedFile(size, read)
    stream: pa.CompressedInputStream | lzma.LZMAFile
    if compression == "xz":
        stream = lzma.LZMAFile(cast("IO[bytes]", file))  # noqa: SIM115 (a view of `file`)
    else:
        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), compression)
    total = 0
    try:
        while block := stream.read(1 << 20):
            total += len(block)
            require_plausible(uri, total, file.position)
            yield block
    except InputError:
        raise
    except (OSError, EOFError, ValueError, lzma.LZMAError, pa.ArrowException) as error:
        raise InputError(
            f"{uri}: cannot be decompressed as {compression}: {error}. The archive is "
            "damaged or cut short: copy it again"
        ) from error


def inflate(uri: str, size: int, stop: int, read: ReadBytes) -> Iterator[bytes]:
    """Yields the bytes of a deflated member of a zip file.

    Args:
      uri: of the member, for messages.
      size: what the archive says that it unpacks to.
      stop: of its data, which `read` reads from byte 0.
      read: reads it.

    Raises:
      InputError: it is damaged.
    """
    inflater = zlib_ng.decompressobj(-zlib_ng.MAX_WBITS)
    total = start = 0
    try:
        while not inflater.eof:
            data = inflater.unconsumed_tail
            if not data:
                data = read(start, min(start + BLOCK_BYTES, stop))
                start += len(data)
            block = inflater.decompress(data, BLOCK_BYTES)
            total += len(block)
            if total > size or not (data or block):
                break
            yield block
    except _InflateError as error:
        raise damaged_member(uri, f"cannot be inflated: {error}") from error
    if total != size or not inflater.eof:
        raise damaged_member(uri, f"does not inflate to its {size:,} bytes")


def damaged_member(uri: str, found: str) -> InputError:
    """Returns the error of a member that is not as its archive says."""
    return InputError(f"{uri}: {found}. The archive is damaged: copy it again")


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


class _CompressedFile(io.RawIOBase):
    """A file that is read forwards, in blocks."""

    def __init__(self, size: int, read: ReadBytes) -> None:
        self._size, self._read_bytes = size, read
        self._block = memoryview(b"")
        self._next = 0
        self.position = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._block and self._next < self._size:
            stop = min(self._next + BLOCK_BYTES, self._size)
            block = self._read_bytes(self._next, stop)
            self._next = stop if block else self._size
            self._block = memoryview(block)
        most = 1 << 16 if size < 0 else min(size, 1 << 16)
        found = bytes(self._block[:most])
        self._block = self._block[len(found) :]
        self.position += len(found)
        return found


ReadArchive = Callable[[str, int, int, Seen], bytes]
"""Reads a file, here an archive, from a byte to another one."""

INFLATED_BYTES = 16 << 20  # the largest member that is inflated in memory
_HEADER = struct.Struct("<4s5H3I2H")  # of a member of a zip file
_EXTRA_BYTES = 512  # of a header; more than most have


def read_member(
    uri: str,
    seen: Seen,
    member: ArchiveMember,
    start: int,
    stop: int,
    read: ReadArchive,
) -> bytes:
    """Returns bytes of a member of an archive; fewer if it ends before.

    Args:
      uri: of the member.
      seen: its size and version.
      member: where it lies.
      start: first byte.
      stop: one after the last byte.
      read: reads the archive, if it is still as it was listed.

    Raises:
      InputError: the member is damaged, or the archive cannot be read.
    """
    stop = min(stop, seen.size)
    if start >= stop:
        return b""
    archive = member.archive_uri(uri)

    def from_archive(first: int, last: int) -> bytes:
        return read(archive, first, last, member.archive)

    if member.kind == "tar":
        data = from_archive(member.offset + start, member.offset + stop)
        return _whole(uri, data, stop - start)
    if member.kind == "stored":
        return _read_stored(uri, seen, member, (start, stop), from_archive)
    if member.kind == "deflated" and seen.size <= INFLATED_BYTES:
        if stop - start == seen.size:
            return _inflated(uri, seen, member, from_archive)
        return _kept(uri, seen, member, read)[start:stop]
    with random_access(uri, seen, member, read) as (descriptor, offset):
        data = os.pread(descriptor, stop - start, offset + start)
        return _whole(uri, data, stop - start)


@contextmanager
def random_access(
    uri: str, seen: Seen, member: ArchiveMember, read: ReadArchive
) -> Iterator[tuple[int, int]]:
    """Yields the descriptor of a file without a name, and where in it a member begins.

    Only of members of compressed archives, and of deflated ones.
    """
    archive = member.archive_uri(uri)

    def from_archive(first: int, last: int) -> bytes:
        return read(archive, first, last, member.archive)

    if member.kind == "deflated":
        key = (archive, member.version)
        with unpacked(
            key, archive, lambda: _inflate(uri, seen, member, from_archive)
        ) as descriptor:
            yield descriptor, 0
        return
    with unpacked_archive(
        archive, member.archive, member.kind, from_archive
    ) as descriptor:
        yield descriptor, member.offset


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


def _read_stored(
    uri: str,
    seen: Seen,
    member: ArchiveMember,
    part: tuple[int, int],
    read: ReadBytes,
) -> bytes:
    if part == (0, seen.size):
        data = _with_header(uri, member, read)
        _require_crc(uri, member, zlib_ng.crc32(data))
        return data
    first = member.offset + _data_offset(uri, _header(member, read))
    data = read(first + part[0], first + part[1])
    return _whole(uri, data, part[1] - part[0])


def _header(member: ArchiveMember, read: ReadBytes) -> bytes:
    return read(member.offset, member.offset + _HEADER.size)


def _with_header(uri: str, member: ArchiveMember, read: ReadBytes) -> bytes:
    """Returns the stored bytes of a member, most often read with their header at once."""
    guess = _HEADER.size + 4 * member.name_chars + _EXTRA_BYTES
    head = read(member.offset, member.offset + guess + member.stored_bytes)
    first = _data_offset(uri, head)
    data = head[first : first + member.stored_bytes]
    if missing := member.stored_bytes - len(data):
        start = member.offset + first + len(data)
        data += read(start, start + missing)
    return _whole(uri, data, member.stored_bytes)


def _data_offset(uri: str, head: bytes) -> int:
    """Returns how many bytes the header of a member has."""
    if len(head) < _HEADER.size or head[:4] != b"PK\3\4":
        raise damaged_member(uri, "has no header where the archive says")
    *_, name_bytes, extra_bytes = _HEADER.unpack_from(head)
    return int(_HEADER.size + name_bytes + extra_bytes)


def _inflate(
    uri: str, seen: Seen, member: ArchiveMember, read: ReadBytes
) -> Iterator[bytes]:
    """Yields the bytes of a deflated member, and checks them at the end."""
    begin = member.offset + _data_offset(uri, _header(member, read))
    crc = 0
    for block in inflate(
        uri,
        seen.size,
        member.stored_bytes,
        lambda start, stop: read(begin + start, begin + stop),
    ):
        crc = zlib_ng.crc32(block, crc)
        yield block
    _require_crc(uri, member, crc)


def _inflated(uri: str, seen: Seen, member: ArchiveMember, read: ReadBytes) -> bytes:
    packed = _with_header(uri, member, read)
    blocks = inflate(
        uri, seen.size, len(packed), lambda start, stop: packed[start:stop]
    )
    data = b"".join(blocks)
    _require_crc(uri, member, zlib_ng.crc32(data))
    return data


@lru_cache(maxsize=4)
def _kept(uri: str, seen: Seen, member: ArchiveMember, read: ReadArchive) -> bytes:
    """Returns an inflated member of which parts are read one after the other."""
    archive = member.archive_uri(uri)
    return _inflated(
        uri,
        seen,
        member,
        lambda start, stop: read(archive, start, stop, member.archive),
    )


def _require_crc(uri: str, member: ArchiveMember, crc32: int) -> None:
    if f"{crc32:08x}" != member.crc32:
        raise damaged_member(
            uri, f"has the CRC {crc32:08x}, but its archive says {member.crc32}"
        )


def _whole(uri: str, data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise InputError(
            f"{uri}: ends {size - len(data):,} bytes too early. The archive is cut short: "
            "copy it again"
        )
    return data
