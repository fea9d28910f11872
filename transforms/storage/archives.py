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
from recordmill.schemas.input_files import ArchiveMember, FileStat, member_uri
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import escape_surrogates
from recordmill.transforms.storage.input_stream import (
    InputStream,
    ReadBytes,
    compression_of,
)
from recordmill.transforms.storage.left_out import is_skipped
from recordmill.transforms.storage.read_member import UNPACKED, require_plausible
from recordmill.transforms.storage.reading import is_local, read_range

_DRIVE = re.compile(r"[A-Za-z]:")


class _ListedMember(NamedTuple):
    """A member of an archive, most of it as in `ArchiveMember`."""

    name: str  # as it is used: without "./" and the like
    size: int  # unpacked
    kind: str
    offset: int
    stored_bytes: int
    crc32: str = ""
    problem: str = ""  # why it cannot be read

    def version(self, archive: FileStat) -> str:
        """Returns the version of the member in an archive with the given file stat."""
        stored_fields = self.kind, self.offset, self.stored_bytes, self.crc32
        return ArchiveMember(*stored_fields, len(self.name), archive).version


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
            f"{archive}: contains a member named {escape_surrogates(name)!r}, which leads out of "
            "the archive. Nothing was read from it; pack it again with names below one "
            "folder"
        )
    return path


def _require_unique(members: Iterable[_ListedMember], archive: str) -> None:
    """Raises InputError if two members have the same name, which is ambiguous."""
    seen_names: set[str] = set()
    for member in members:
        if member.name in seen_names:
            raise InputError(
                f"{archive}: contains several members named {escape_surrogates(member.name)!r}, "
                "as archives do after a newer file was appended. Unpack it and use the "
                "folder as the input, or pack it again"
            )
        seen_names.add(member.name)


BLOCK = tarfile.BLOCKSIZE
_REST_BYTES = 1 << 20  # bytes after the end, read at once
_MAX_CACHED_MEMBERS = 1000  # most members that tarfile keeps
_DAMAGE_ADVICE = "The archive is damaged or cut short: copy it again"


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


def iterate_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an archive.

    Only the latest members stay in memory, because each takes a kilobyte.
    """
    cached_members: list[tarfile.TarInfo] = vars(tar)["members"]
    while (member := tar.next()) is not None:
        if len(cached_members) > _MAX_CACHED_MEMBERS:
            cached_members.clear()
        yield member


def _list_tar(file: InputStream, size: int, uri: str, kind: str) -> list[_ListedMember]:
    """Returns the files in a tar archive, in its order."""
    try:
        with open_tar(file) as tar:
            members = list(_tar_members(tar, size, uri, kind))
            if not check_archive_end(file, tar.offset, _DAMAGE_ADVICE):
                raise InputError(
                    f"{uri}: has no end mark at byte {tar.offset:,}. {_DAMAGE_ADVICE}"
                )
            return members
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise InputError(
            f"{uri}: cannot be read as a tar archive: {error}. {_DAMAGE_ADVICE}"
        ) from error


def _tar_members(
    tar: tarfile.TarFile, size: int, uri: str, kind: str
) -> Iterator[_ListedMember]:
    members_by_name: dict[str, _ListedMember] = {}
    for tar_member in iterate_members(tar):
        if tar_member.isdir():
            continue
        name, problem = _safe_name(tar_member.name, uri), tar_member_problem(tar_member)
        length = 0 if problem else tar_member.size
        start = tar_member.offset_data
        if start + length > size:
            raise InputError(
                f"{uri}: ends within the member {tar_member.name!r}, at byte {size:,}. {_DAMAGE_ADVICE}"
            )
        member = _ListedMember(name, length, kind, start, length, problem=problem)
        if tar_member.islnk():  # perhaps another name of an earlier file
            target = members_by_name.get(
                posixpath.normpath(tar_member.linkname), member
            )
            member = target._replace(name=name)
        members_by_name[name] = member
        yield member


def tar_member_problem(member: tarfile.TarInfo) -> str:
    """Returns why a member cannot be read, or ""."""
    if member.issym() or member.islnk():
        return (
            f"a link to {member.linkname} (links in archives are not followed: pack them "
            "with tar --dereference --hard-dereference)"
        )
    if member.issparse():
        return "a sparse file (pack it again without tar --sparse)"
    if not member.isreg():
        return "not a regular file (a pipe or a device: leave it out of the archive)"
    return ""


def check_archive_end(file: InputStream, offset: int, advice: str) -> bool:
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
    file.keep_from_offset = file.tell()
    while trailing_bytes := file.read(_REST_BYTES):
        if any(trailing_bytes):
            raise InputError(
                f"{file.uri}: continues after its end at byte {offset:,}: are these several "
                "archives in one file? Join archives with tar --concatenate"
            )
        file.keep_from_offset = file.tell()
    return True


_KINDS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_OTHER_KINDS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
_HEADER_BYTES = 30
_ENCRYPTED = 1
_UTF_8 = 0x800
_DOS = 0
_UNIX = 3


def _list_zip(file: InputStream, size: int, uri: str) -> list[_ListedMember]:
    """Returns the files in a zip file, in its order."""
    zip_members = read_zip_directory(file, size, uri)
    return [_listed_zip_member(member, uri) for member in zip_members]


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
            members = packed.infolist()
            end = packed.start_dir
    except _ZIP_ERRORS as error:
        raise InputError(
            f"{uri}: cannot be read as {kind}: {error}. {_DAMAGE_ADVICE}"
        ) from error
    _require_no_overlap(members, min(end, size), uri)
    # A member without a name is no folder; `is_dir` would fail on it.
    return [member for member in members if not member.filename.endswith("/")]


def _listed_zip_member(zip_member: zipfile.ZipInfo, uri: str) -> _ListedMember:
    name = _safe_name(_name_of(zip_member), uri)
    if name == ".":
        raise InputError(f"{uri}: contains a file without a name. {_DAMAGE_ADVICE}")
    problem = _zip_member_problem(zip_member)
    if not problem:
        require_plausible(
            f"{uri}!/{name}", zip_member.file_size, zip_member.compress_size
        )
    return _ListedMember(
        name,
        0 if problem else zip_member.file_size,
        _KINDS.get(zip_member.compress_type, ""),
        zip_member.header_offset,
        zip_member.compress_size,
        f"{zip_member.CRC:08x}",
        problem,
    )


def _name_of(member: zipfile.ZipInfo) -> str:
    name = member.filename
    if not member.flag_bits & _UTF_8:
        # The specification names code page 437, but most programs write UTF-8.
        try:
            name = name.encode("cp437").decode("utf-8")
        except UnicodeError:
            name = member.filename
    return name.replace("\\", "/") if member.create_system == _DOS else name


def _zip_member_problem(member: zipfile.ZipInfo) -> str:
    """Returns why a member cannot be read, or ""."""
    mode = member.external_attr >> 16
    if member.create_system == _UNIX and stat.S_ISLNK(mode):
        return (
            "a link (links in archives are not followed: pack without zip --symlinks)"
        )
    if member.flag_bits & _ENCRYPTED:
        return "encrypted (unpack the archive with its password, and use the folder)"
    if member.compress_type not in _KINDS:
        method = _OTHER_KINDS.get(
            member.compress_type, f"method {member.compress_type}"
        )
        return f"compressed by {method} (pack it again with deflate, or stored)"
    if (
        member.compress_type == zipfile.ZIP_STORED
        and member.compress_size != member.file_size
    ):
        return (
            "of two sizes, although not compressed (the archive is damaged: copy it "
            "again)"
        )
    return ""


def _require_no_overlap(members: Sequence[zipfile.ZipInfo], end: int, uri: str) -> None:
    """Raises InputError if members share bytes, as in archives made to fill disks."""
    ordered = sorted(members, key=lambda member: member.header_offset)
    for member, following in zip(ordered, [*ordered[1:], None], strict=True):
        stop = following.header_offset if following else end
        data_end = member.header_offset + _HEADER_BYTES + member.compress_size
        if member.header_offset < 0 or data_end > stop:
            raise InputError(
                f"{uri}: its member {member.filename!r} has {member.compress_size:,} bytes, "
                f"but ends before byte {stop:,}. {_DAMAGE_ADVICE}"
            )


_WINDOW_BYTES = 1 << 20  # read at once from a store, because requests are slow
_LOCAL_WINDOW_BYTES = 1 << 14


def list_archive(
    uri: str, archive_stat: FileStat, options: StorageOptions
) -> list[tuple[_ListedMember, str, str]]:
    """Returns the files in an archive, each with its URI and version.

    Hidden files and junk of operating systems are skipped, as in a folder. A compressed
    tar archive is unpacked into a file without a name.
    """

    def read(start: int, stop: int) -> bytes:
        return read_range(uri, start, stop, options, archive_stat)

    members = [
        member
        for member in _list_members(uri, archive_stat, read)
        if not is_skipped(member.name)
    ]
    if not members:
        raise InputError(f"{uri}: the archive contains no files")
    _require_unique(members, uri)
    return [
        (member, member_uri(uri, member.name), member.version(archive_stat))
        for member in members
    ]


def _list_members(
    uri: str, archive_stat: FileStat, read: ReadBytes
) -> list[_ListedMember]:
    start = read(0, BLOCK)
    window = _LOCAL_WINDOW_BYTES if is_local(uri) else _WINDOW_BYTES
    file = InputStream(read, archive_stat.size, uri=uri, window_bytes=window)
    if start[:4] in (b"PK\3\4", b"PK\5\6", b"PK\7\x08"):
        return _list_zip(file, archive_stat.size, uri)
    if compression := compression_of(start):
        with UNPACKED.open_archive(uri, archive_stat, compression, read) as descriptor:
            return _list_unpacked(descriptor, uri, compression)
    if len(start) < BLOCK or not is_tar(start):
        raise _no_archive_error(uri, "" if start else " (it is empty)")
    return _list_tar(file, archive_stat.size, uri, "tar")


def _list_unpacked(descriptor: int, uri: str, compression: str) -> list[_ListedMember]:
    def read(start: int, stop: int) -> bytes:
        return os.pread(descriptor, stop - start, start)

    size = os.fstat(descriptor).st_size
    if not is_tar(read(0, BLOCK)):
        raise _no_archive_error(
            uri, f": its content, compressed with {compression}, is neither"
        )
    file = InputStream(read, size, uri=uri, window_bytes=_LOCAL_WINDOW_BYTES)
    return _list_tar(file, size, uri, compression)


def _no_archive_error(uri: str, reason: str) -> InputError:
    return InputError(
        f"{uri}: is named as an archive, but is neither a tar archive nor a zip file{reason}. "
        "Copy it again, or rename it"
    )
