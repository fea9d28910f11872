"""Defines input files, members of archives, and checksums of what was read.

A member of an archive is listed as a file of the input. It is read from its archive, so
its version says where: it goes wherever the version of a file goes, to workers and into
checkpoints.

    uri        /data/photos.zip!/cat/1.jpg
    version    member:deflated:4096:1234:89abcdef:9:70000:1700000000000000000
               (kind, offset, bytes there, CRC-32, characters of "cat/1.jpg", and size and
               version of the archive)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple


class FileChecksum(NamedTuple):
    """The CRC-32C of a part of an input file, computed where it was read."""

    path: str  # of the file, relative to the input root
    start: int  # first byte
    stop: int  # one after the last byte
    crc32c: int  # of these bytes


def as_call(value: Any) -> tuple[type, tuple[Any, ...]]:
    """Returns the pickled form of a dataclass: a call of the class with its fields.

    What dataclasses do by themselves calls a function for each field: it takes twice the
    time, and the launcher reads the results of all ranges.
    """
    return type(value), tuple(getattr(value, name) for name in value.__slots__)


@dataclass(frozen=True, slots=True)
class TaskChecksums:
    """The checksums of what one task read."""

    # them, where they are few enough to pass through the runner
    few: tuple[FileChecksum, ...] = ()
    in_file: int = 0  # how many there are in a file of the workspace instead
    __reduce__ = as_call


NO_CHECKSUMS = TaskChecksums()


class Seen(NamedTuple):
    """Size and version of a file, as the inventory has them."""

    size: int
    version: str


class InputFile(NamedTuple):
    """One file of the inventory, whose columns are these (see transforms/inventory.py)."""

    path: str  # relative to the input root, "/" between parts: the stable origin
    uri: str  # where it is read from
    size: int  # bytes
    # the store's etag, or mtime in nanoseconds; changes with the content
    version: str = ""
    # the input folder that it was found below, relative to the input root; of a file
    # that was given by itself, its own folder
    given: str = ""
    problem: str = ""  # why it cannot be read, or ""

    @property
    def seen(self) -> Seen:
        """Returns what has to be the same when the file is read."""
        return Seen(self.size, self.version)


MEMBER_MARK = "!"
"""What stands behind the name of an archive that is taken for a folder."""

MEMBER_VERSION = "member:"
"""How the version of a member begins."""

_ENDING = re.compile(
    r"\.(?:zip|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|bz2|xz|zst))$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """Where the bytes of a member are."""

    # "stored" in a zip file, "deflated" in one, "tar"; or the compression of a whole
    # tar archive: "gzip", "bz2", "xz", "zstd"
    kind: str
    # of its header in a zip file; of its data in a tar archive, once that is unpacked
    offset: int
    stored_bytes: int  # that it takes there, without its header
    crc32: str  # of its data, in hexadecimal digits; "" in tar archives
    name_chars: int  # of its name in the archive
    archive: Seen  # size and version of the archive

    @property
    def version(self) -> str:
        """Returns the version of the member, as the inventory has it."""
        return (
            f"{MEMBER_VERSION}{self.kind}:{self.offset}:{self.stored_bytes}:{self.crc32}:"
            f"{self.name_chars}:{self.archive.size}:{self.archive.version}"
        )

    def archive_uri(self, uri: str) -> str:
        """Returns the uri of the archive, given that of the member."""
        return uri[: -(self.name_chars + len(MEMBER_MARK) + 1)]


def member_of(version: str) -> ArchiveMember | None:
    """Returns what a version says of a member; None if it is that of a file."""
    return _parse(version) if version.startswith(MEMBER_VERSION) else None


@lru_cache(maxsize=1024)
def _parse(version: str) -> ArchiveMember:
    _, kind, offset, stored, crc32, chars, size, archive = version.split(":", 7)
    return ArchiveMember(
        kind, int(offset), int(stored), crc32, int(chars), Seen(int(size), archive)
    )


def member_uri(archive: str, name: str) -> str:
    """Returns the uri of a member of this name."""
    return f"{archive}{MEMBER_MARK}/{name}"


def is_archive_name(path: str) -> bool:
    """Tells whether a file is named as an archive.

    >>> [is_archive_name(p) for p in ("a.zip", "b.tar.gz", "c.TGZ", "d.csv.gz", "e")]
    [True, True, True, False, False]
    """
    return _ENDING.search(path) is not None


def folder_title(name: str) -> str:
    """Returns the name of a folder; of an archive in place of one, without its ending.

    >>> folder_title("cat"), folder_title("cat.tar.gz!"), folder_title("cat.zip")
    ('cat', 'cat', 'cat.zip')
    """
    bare = name.removesuffix(MEMBER_MARK)
    return _ENDING.sub("", bare) if bare != name else name
