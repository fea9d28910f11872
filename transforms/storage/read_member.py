"""Reads members of archives: parts of the archive where that is possible.

A member of a plain tar archive and a stored one of a zip file are read as parts of the
archive. A deflated one is read and inflated as a whole; if it is large, into a file
without a name, as a compressed tar archive is.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

from zlib_ng import zlib_ng

from recordmill.schemas.archive_member import ArchiveMember
from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import Seen
from recordmill.transforms.storage.seekable_bytes import ReadBytes
from recordmill.transforms.storage.unpacked import (
    damaged_member,
    decompress,
    inflate,
    unpacked,
)

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
