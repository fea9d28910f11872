"""Defines input files, members of archives, and checksums of the bytes that were read.

A member of an archive is listed as a file of the input, but is read from its archive. So
its version includes its location, because workers and checkpoints receive the version of
each file.

    uri        /data/photos.zip!/cat/1.jpg
    version    member:deflated:4096:1234:89abcdef:9:70000:1700000000000000000
               (kind, offset, stored bytes, CRC-32, characters of "cat/1.jpg", and size
               and version of the archive)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple


class FileChecksum(NamedTuple):
    """The CRC-32C of a part of an input file, computed by the task that read it."""

    path: str  # path of the file, relative to the input root
    start: int  # first byte
    stop: int  # one after the last byte
    crc32c: int  # checksum of these bytes


def reduce_to_call(instance: Any) -> tuple[type, tuple[Any, ...]]:
    """Returns the pickled form of a dataclass: a call of the class with its fields.

    The default of dataclasses calls a function for each field and takes twice the time,
    which matters because the launcher reads the results of all ranges.
    """
    return type(instance), tuple(getattr(instance, name) for name in instance.__slots__)


@dataclass(frozen=True, slots=True)
class TaskChecksums:
    """The checksums of the bytes that one task read."""

    # the checksums, if they are few enough to pass through the runner
    checksums: tuple[FileChecksum, ...] = ()
    # otherwise, the number of checksums in a file of the workspace
    num_in_file: int = 0
    __reduce__ = reduce_to_call


NO_CHECKSUMS = TaskChecksums()


class FileStat(NamedTuple):
    """The size and version of a file, as in the inventory."""

    size: int
    version: str


class InputFile(NamedTuple):
    """A file of the inventory, which has these columns (see transforms/inventory.py)."""

    path: str  # relative to the input root, "/" between parts: the stable origin
    uri: str  # URI to read it from
    size: int  # size in bytes
    # the store's etag, or mtime in nanoseconds; changes with the content
    version: str = ""
    # the input folder above the file, relative to the input root; for an input that is a
    # file, its own folder
    given_folder: str = ""
    problem: str = ""  # reason why it cannot be read, or ""

    @property
    def stat(self) -> FileStat:
        """Returns the size and version that must be unchanged when the file is read."""
        return FileStat(self.size, self.version)


MEMBER_MARK = "!"
"""The suffix of the name of an archive that replaces a folder."""

MEMBER_VERSION = "member:"
"""The prefix of the version of a member."""

_ARCHIVE_ENDING = re.compile(
    r"\.(?:zip|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|bz2|xz|zst))$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """The location of the bytes of a member in its archive."""

    # in a zip file, "stored" or "deflated"; in a tar archive, "tar" or the compression of
    # the whole archive: "gzip", "bz2", "xz", "zstd"
    kind: str
    # in a zip file, offset of the header; in a tar archive, offset of the data in the
    # unpacked archive
    offset: int
    stored_bytes: int  # size in the archive, without the header
    crc32: str  # CRC-32 of the data, in hexadecimal digits; "" in tar archives
    name_chars: int  # length of its name in the archive
    archive_stat: FileStat  # size and version of the archive

    @property
    def version(self) -> str:
        """Returns the version of the member, as in the inventory."""
        return (
            f"{MEMBER_VERSION}{self.kind}:{self.offset}:{self.stored_bytes}:{self.crc32}:"
            f"{self.name_chars}:{self.archive_stat.size}:{self.archive_stat.version}"
        )

    def archive_uri(self, uri: str) -> str:
        """Returns the URI of the archive, given the URI of the member."""
        return uri[: -(self.name_chars + len(MEMBER_MARK) + 1)]


def parse_member(version: str) -> ArchiveMember | None:
    """Parses the location of a member from a version; None for the version of a file."""
    return _parse_member(version) if version.startswith(MEMBER_VERSION) else None


@lru_cache(maxsize=1024)
def _parse_member(version: str) -> ArchiveMember:
    _, kind, offset, stored, crc32, chars, size, archive = version.split(":", 7)
    return ArchiveMember(
        kind, int(offset), int(stored), crc32, int(chars), FileStat(int(size), archive)
    )


def member_uri(archive: str, name: str) -> str:
    """Returns the URI of a member with this name."""
    return f"{archive}{MEMBER_MARK}/{name}"


def is_archive_name(path: str) -> bool:
    """Returns whether a file has the name of an archive.

    >>> [is_archive_name(p) for p in ("a.zip", "b.tar.gz", "c.TGZ", "d.csv.gz", "e")]
    [True, True, True, False, False]
    """
    return _ARCHIVE_ENDING.search(path) is not None


def folder_name(name: str) -> str:
    """Returns the name of a folder, without the ending of an archive that replaces it.

    >>> folder_name("cat"), folder_name("cat.tar.gz!"), folder_name("cat.zip")
    ('cat', 'cat', 'cat.zip')
    """
    bare = name.removesuffix(MEMBER_MARK)
    return _ARCHIVE_ENDING.sub("", bare) if bare != name else name
