"""Lists archives as if they were folders: members of tar archives and zip files.

An archive that is damaged, cut short or hostile is an error: nothing of it is read.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import ArchiveMember, Seen, member_uri
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import escaped
from recordmill.transforms.storage.input_stream import (
    InputStream,
    ReadBytes,
    compression_of,
)
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.storage.read_member import UNPACKED, require_plausible
from recordmill.transforms.storage.reading import is_local, read_range

_DRIVE = re.compile(r"[A-Za-z]:")


class _FoundMember(NamedTuple):
    """A member of an archive, most of it as in `ArchiveMember`."""

    name: str  # as it is used: without "./" and the like
    size: int  # unpacked
    kind: str
    offset: int
    stored_bytes: int
    crc32: str = ""
    problem: str = ""  # why it cannot be read

    def version(self, archive: Seen) -> str:
        """Returns the version of the member in an archive with the given file stat."""
        where = self.kind, self.offset, self.stored_bytes, self.crc32
        return ArchiveMember(*where, len(self.name), archive).version


def _safe_name(name: str, archive: str) -> str:
    """Returns the name of a member as a path below the archive.

    Nothing is ever written to such a path, but origins contain it.
    """
    path = posixpath.normpath(name) if name else "."
    if (
        path == ".."
        or path.startswith(("/", "../"))
        or _DRIVE.match(path)
        or "\0" in path
    ):
        raise InputError(
            f"{archive}: contains a member named {escaped(name)!r}, which leads out of "
            "the archive. Nothing was read from it; pack it again with names below one "
            "folder"
        )
    return path


def _require_unique(members: Iterable[_FoundMember], archive: str) -> None:
    """Raises InputError if two members have the same name, which is ambiguous."""
    seen: set[str] = set()
    for member in members:
        if member.name in seen:
            raise InputError(
                f"{archive}: contains several members named {escaped(member.name)!r}, "
                "as archives do after a newer file was appended. Unpack it and use the "
                "folder as the input, or pack it again"
            )
        seen.add(member.name)


BLOCK = tarfile.BLOCKSIZE
_REST_BYTES = 1 << 20  # bytes after the end, read at once
_KEPT = 1000  # most members that tarfile keeps
_COPY = "The archive is damaged or cut short: copy it again"


def is_tar(start: bytes) -> bool:
    """Returns whether a file with these first 512 bytes is a tar archive."""
    if start[257:262] == b"ustar":
        return True
    try:  # the oldest tar format has a checksum but no such mark
        tarfile.TarInfo.frombuf(start[:BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def open_tar(file: Any) -> tarfile.TarFile:
    """Opens a tar archive that is not compressed."""
    return tarfile.open(
        fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape"
    )


def members_of(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an archive.

    Only the latest members stay in memory, because each takes a kilobyte.
    """
    held: list[tarfile.TarInfo] = vars(tar)["members"]
    while (info := tar.next()) is not None:
        if len(held) > _KEPT:
            held.clear()
        yield info


def _list_tar(file: InputStream, size: int, uri: str, kind: str) -> list[_FoundMember]:
    """Returns the files in a tar archive, in its order."""
    try:
        with open_tar(file) as tar:
            found = list(_tar_members(tar, size, uri, kind))
            if not has_end(file, tar.offset, _COPY):
                raise InputError(
                    f"{uri}: has no end mark at byte {tar.offset:,}. {_COPY}"
                )
            return found
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise InputError(
            f"{uri}: cannot be read as a tar archive: {error}. {_COPY}"
        ) from error


def _tar_members(
    tar: tarfile.TarFile, size: int, uri: str, kind: str
) -> Iterator[_FoundMember]:
    known: dict[str, _FoundMember] = {}
    for info in members_of(tar):
        if info.isdir():
            continue
        name, problem = _safe_name(info.name, uri), problem_of(info)
        length = 0 if problem else info.size
        start = info.offset_data
        if start + length > size:
            raise InputError(
                f"{uri}: ends within the member {info.name!r}, at byte {size:,}. {_COPY}"
            )
        member = _FoundMember(name, length, kind, start, length, problem=problem)
        if info.islnk():  # perhaps another name of an earlier file
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


def has_end(file: InputStream, offset: int, advice: str) -> bool:
    """Returns whether an archive ends after its last member; only zeros may follow.

    Raises:
      InputError: other bytes follow; the message ends with `advice`.
    """
    file.seek(offset)
    block = file.read(BLOCK)
    if len(block) < BLOCK:
        return False
    if any(block):
        raise InputError(
            f"{file.uri}: has no member header at byte {offset:,}, where one is "
            f"expected. {advice}"
        )
    file.kept_from = file.tell()
    while rest := file.read(_REST_BYTES):
        if any(rest):
            raise InputError(
                f"{file.uri}: continues after its end at byte {offset:,}: are these several "
                "archives in one file? Join archives with tar --concatenate"
            )
        file.kept_from = file.tell()
    return True


_KINDS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_OTHER_KINDS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
_HEADER_BYTES = 30
_ENCRYPTED = 1
_UTF_8 = 0x800
_DOS = 0
_UNIX = 3


def _list_zip(file: InputStream, size: int, uri: str) -> list[_FoundMember]:
    """Returns the files in a zip file, in its order."""
    infos = read_zip_directory(file, size, uri)
    return [_member(info, uri) for info in infos]


# The errors that Python raises for a damaged directory. OSError means a position before
# the start of the file; a store that does not answer raises another error.
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, struct.error, EOFError, OSError, ValueError, OverflowError),
    NotImplementedError,
)


def read_zip_directory(
    file: InputStream, size: int, uri: str, kind: str = "a zip file"
) -> list[zipfile.ZipInfo]:
    """Returns the members of a zip file in its order, without folders.

    Raises:
      InputError: the directory is damaged, or members share bytes.
    """
    try:
        with zipfile.ZipFile(cast("IO[bytes]", file)) as packed:
            infos = packed.infolist()
            end = packed.start_dir
    except _ZIP_ERRORS as error:
        raise InputError(
            f"{uri}: cannot be read as {kind}: {error}. {_COPY}"
        ) from error
    _require_apart(infos, min(end, size), uri)
    # A member without a name is no folder; `is_dir` would fail on it.
    return [info for info in infos if not info.filename.endswith("/")]


def _member(info: zipfile.ZipInfo, uri: str) -> _FoundMember:
    name = _safe_name(_name_of(info), uri)
    if name == ".":
        raise InputError(f"{uri}: contains a file without a name. {_COPY}")
    problem = _problem(info)
    if not problem:
        require_plausible(f"{uri}!/{name}", info.file_size, info.compress_size)
    return _FoundMember(
        name,
        0 if problem else info.file_size,
        _KINDS.get(info.compress_type, ""),
        info.header_offset,
        info.compress_size,
        f"{info.CRC:08x}",
        problem,
    )


def _name_of(info: zipfile.ZipInfo) -> str:
    name = info.filename
    if not info.flag_bits & _UTF_8:
        # The specification names code page 437, but most programs write UTF-8.
        try:
            name = name.encode("cp437").decode("utf-8")
        except UnicodeError:
            name = info.filename
    return name.replace("\\", "/") if info.create_system == _DOS else name


def _problem(info: zipfile.ZipInfo) -> str:
    """Returns why a member cannot be read, or ""."""
    mode = info.external_attr >> 16
    if info.create_system == _UNIX and stat.S_ISLNK(mode):
        return (
            "a link (links in archives are not followed: pack without zip --symlinks)"
        )
    if info.flag_bits & _ENCRYPTED:
        return "encrypted (unpack the archive with its password, and use the folder)"
    if info.compress_type not in _KINDS:
        method = _OTHER_KINDS.get(info.compress_type, f"method {info.compress_type}")
        return f"compressed by {method} (pack it again with deflate, or stored)"
    if (
        info.compress_type == zipfile.ZIP_STORED
        and info.compress_size != info.file_size
    ):
        return (
            "of two sizes, although not compressed (the archive is damaged: copy it "
            "again)"
        )
    return ""


def _require_apart(infos: Sequence[zipfile.ZipInfo], end: int, uri: str) -> None:
    """Raises InputError if members share bytes, as in archives made to fill disks."""
    ordered = sorted(infos, key=lambda info: info.header_offset)
    for info, following in zip(ordered, [*ordered[1:], None], strict=True):
        stop = following.header_offset if following else end
        data_end = info.header_offset + _HEADER_BYTES + info.compress_size
        if info.header_offset < 0 or data_end > stop:
            raise InputError(
                f"{uri}: its member {info.filename!r} has {info.compress_size:,} bytes, "
                f"but ends before byte {stop:,}. {_COPY}"
            )


_WINDOW_BYTES = 1 << 20  # read at once from a store, because requests are slow
_LOCAL_WINDOW_BYTES = 1 << 14


def list_archive(
    uri: str, seen: Seen, options: StorageOptions
) -> list[tuple[_FoundMember, str, str]]:
    """Returns the files in an archive, each with its URI and version.

    Hidden files and junk of operating systems are skipped, as in a folder. A compressed
    tar archive is unpacked into a file without a name.
    """

    def read(start: int, stop: int) -> bytes:
        return read_range(uri, start, stop, options, seen)

    members = [
        member for member in _members(uri, seen, read) if not is_left_out(member.name)
    ]
    if not members:
        raise InputError(f"{uri}: the archive contains no files")
    _require_unique(members, uri)
    return [(each, member_uri(uri, each.name), each.version(seen)) for each in members]


def _members(uri: str, seen: Seen, read: ReadBytes) -> list[_FoundMember]:
    start = read(0, BLOCK)
    window = _LOCAL_WINDOW_BYTES if is_local(uri) else _WINDOW_BYTES
    file = InputStream(read, seen.size, uri=uri, window_bytes=window)
    if start[:4] in (b"PK\3\4", b"PK\5\6", b"PK\7\x08"):
        return _list_zip(file, seen.size, uri)
    if compression := compression_of(start):
        with UNPACKED.archive(uri, seen, compression, read) as descriptor:
            return _list_unpacked(descriptor, uri, compression)
    if len(start) < BLOCK or not is_tar(start):
        raise _not_an_archive(uri, "" if start else " (it is empty)")
    return _list_tar(file, seen.size, uri, "tar")


def _list_unpacked(descriptor: int, uri: str, compression: str) -> list[_FoundMember]:
    def read(start: int, stop: int) -> bytes:
        return os.pread(descriptor, stop - start, start)

    size = os.fstat(descriptor).st_size
    if not is_tar(read(0, BLOCK)):
        raise _not_an_archive(
            uri, f": its content, compressed with {compression}, is neither"
        )
    file = InputStream(read, size, uri=uri, window_bytes=_LOCAL_WINDOW_BYTES)
    return _list_tar(file, size, uri, compression)


def _not_an_archive(uri: str, why: str) -> InputError:
    return InputError(
        f"{uri}: is named as an archive, but is neither a tar archive nor a zip file{why}. "
        "Copy it again, or rename it"
    )
