"""Lists an archive as if it were a folder."""

from __future__ import annotations

import os

from recordmill.schemas.archive_member import ArchiveMember, member_uri
from recordmill.schemas.errors import InputError
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import Seen
from recordmill.transforms.archives.found_member import FoundMember, require_unique
from recordmill.transforms.archives.list_tar import BLOCK, is_tar, list_tar
from recordmill.transforms.archives.list_zip import is_zip, list_zip
from recordmill.transforms.storage.compressions import compression_of
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.storage.read_member import unpacked_archive
from recordmill.transforms.storage.reading import is_local, read_range
from recordmill.transforms.storage.seekable_bytes import ReadBytes, SeekableBytes

_WINDOW_BYTES = 1 << 20  # read at once in a store, where a request takes its time
_LOCAL_WINDOW_BYTES = 1 << 14


def list_archive(
    uri: str, seen: Seen, options: StorageOptions
) -> list[tuple[FoundMember, str, str]]:
    """Returns the files in an archive, each with its uri and version.

    Hidden files and those that operating systems leave are left out, as in a folder. A
    compressed tar archive is unpacked for it, into a file without a name.

    Args:
      uri: of the archive.
      seen: its size and version.
      options: of its storage.

    Raises:
      InputError: it is not an archive, damaged, or cannot be taken for a folder.
    """

    def read(start: int, stop: int) -> bytes:
        return read_range(uri, start, stop, options, seen)

    members = [
        member for member in _members(uri, seen, read) if not is_left_out(member.name)
    ]
    if not members:
        raise InputError(f"{uri}: the archive holds no files")
    require_unique(members, uri)
    return [
        (member, member_uri(uri, member.name), _version(member, seen))
        for member in members
    ]


def _version(member: FoundMember, archive: Seen) -> str:
    return ArchiveMember(
        member.kind,
        member.offset,
        member.stored_bytes,
        member.crc32,
        len(member.name),
        archive,
    ).version


def _members(uri: str, seen: Seen, read: ReadBytes) -> list[FoundMember]:
    start = read(0, BLOCK)
    window = _LOCAL_WINDOW_BYTES if is_local(uri) else _WINDOW_BYTES
    file = SeekableBytes(seen.size, read, window)
    if is_zip(start):
        return list_zip(file, seen.size, uri)
    if compression := compression_of(start):
        with unpacked_archive(uri, seen, compression, read) as descriptor:
            return _list_unpacked(descriptor, uri, compression)
    if len(start) < BLOCK or not is_tar(start):
        raise _not_an_archive(uri, "" if start else " (it is empty)")
    return list_tar(file, seen.size, uri, "tar")


def _list_unpacked(descriptor: int, uri: str, compression: str) -> list[FoundMember]:
    def read(start: int, stop: int) -> bytes:
        return os.pread(descriptor, stop - start, start)

    size = os.fstat(descriptor).st_size
    if not is_tar(read(0, BLOCK)):
        raise _not_an_archive(
            uri, f": what is compressed in it by {compression} is not one"
        )
    return list_tar(
        SeekableBytes(size, read, _LOCAL_WINDOW_BYTES), size, uri, compression
    )


def _not_an_archive(uri: str, why: str) -> InputError:
    return InputError(
        f"{uri}: is named as an archive, but is neither a tar archive nor a zip file{why}. "
        "Copy it again, or rename it"
    )
