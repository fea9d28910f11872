"""Lists the members of a tar archive, and checks that it is whole."""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Iterator

from recordmill.schemas.errors import InputError
from recordmill.transforms.archives.found_member import FoundMember, safe_name
from recordmill.transforms.storage.seekable_bytes import SeekableBytes

BLOCK = tarfile.BLOCKSIZE
_REST_BYTES = 1 << 20  # behind the end, read at once
_KEPT = 1000  # members that tarfile keeps at most
_COPY = "The archive is damaged or cut short: copy it again"


def is_tar(start: bytes) -> bool:
    """Tells whether a file of these first 512 bytes is a tar archive."""
    if start[257:262] == b"ustar":
        return True
    try:  # of the first tar, without that mark but with a checksum
        tarfile.TarInfo.frombuf(start[:BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def list_tar(file: SeekableBytes, size: int, uri: str, kind: str) -> list[FoundMember]:
    """Returns the files in a tar archive, in its order.

    Args:
      file: the archive, not compressed.
      size: of that, in bytes.
      uri: of the archive, for messages.
      kind: see `ArchiveMember`.

    Raises:
      InputError: it is damaged, cut short, or holds a name that leads out of it.
    """
    try:
        with tarfile.open(
            fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as tar:
            found = list(_members(tar, size, uri, kind))
            _require_end(file, tar.offset, uri)
            return found
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise InputError(
            f"{uri}: cannot be read as a tar archive: {error}. {_COPY}"
        ) from (error)


def _members(
    tar: tarfile.TarFile, size: int, uri: str, kind: str
) -> Iterator[FoundMember]:
    known: dict[str, FoundMember] = {}
    held: list[tarfile.TarInfo] = vars(tar)["members"]
    while (info := tar.next()) is not None:
        if len(held) > _KEPT:
            held.clear()  # a kilobyte each
        if info.isdir():
            continue
        name, problem = safe_name(info.name, uri), problem_of(info)
        length = 0 if problem else info.size
        if info.offset_data + length > size:
            raise InputError(
                f"{uri}: ends within the member {info.name!r}, at byte {size:,}. {_COPY}"
            )
        member = FoundMember(
            name, length, kind, info.offset_data, length, problem=problem
        )
        if info.islnk():  # perhaps another name of a file that came before
            target = known.get(posixpath.normpath(info.linkname), member)
            member = target._replace(name=name)
        known[name] = member
        yield member


def problem_of(info: tarfile.TarInfo) -> str:
    """Returns why a member cannot be read, or ""."""
    if info.issym() or info.islnk():
        return (
            f"a link to {info.linkname} (links in archives are not followed: pack them "
            "with tar --dereference --hard-dereference)"
        )
    if info.issparse():
        return "a sparse file (pack it again without tar --sparse)"
    if not info.isreg():
        return "not a regular file (a pipe or a device: leave it out of the archive)"
    return ""


def _require_end(file: SeekableBytes, offset: int, uri: str) -> None:
    """Checks that what follows the last member is the end of an archive.

    Raises:
      InputError: it is not, so members may be missing.
    """
    file.seek(offset)
    block = file.read(BLOCK)
    if len(block) < BLOCK:
        raise InputError(f"{uri}: has no end mark at byte {offset:,}. {_COPY}")
    if any(block):
        raise InputError(
            f"{uri}: has no header of a member at byte {offset:,}, where one should be. "
            f"{_COPY}"
        )
    while rest := file.read(_REST_BYTES):
        if any(rest):
            raise InputError(
                f"{uri}: goes on after its end at byte {offset:,}: are these several "
                "archives in one file? Join archives with tar --concatenate"
            )
