"""Lists the members of a zip file, and checks that it is not hostile."""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Sequence
from typing import IO, cast

from recordmill.schemas.errors import InputError
from recordmill.transforms.archives.found_member import FoundMember, safe_name
from recordmill.transforms.storage.seekable_bytes import SeekableBytes
from recordmill.transforms.storage.unpacked import require_plausible

_KINDS = {zipfile.ZIP_STORED: "stored", zipfile.ZIP_DEFLATED: "deflated"}
_OTHER_KINDS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
_HEADER_BYTES = 30
_ENCRYPTED = 1
_UTF_8 = 0x800
_DOS = 0
_UNIX = 3


def is_zip(start: bytes) -> bool:
    """Tells whether a file of these first bytes is a zip file."""
    return start[:4] in (b"PK\3\4", b"PK\5\6", b"PK\7\x08")


def list_zip(file: SeekableBytes, size: int, uri: str) -> list[FoundMember]:
    """Returns the files in a zip file, in its order.

    Args:
      file: the zip file.
      size: of that, in bytes.
      uri: of that, for messages.

    Raises:
      InputError: it is damaged or cut short, its members overlap, or holds a name that
        leads out of it.
    """
    try:
        with zipfile.ZipFile(cast("IO[bytes]", file)) as packed:
            infos = packed.infolist()
            end = packed.start_dir
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        ValueError,
        OverflowError,
    ) as error:
        raise InputError(
            f"{uri}: cannot be read as a zip file: {error}. The archive is damaged or cut "
            "short: copy it again"
        ) from error
    _require_apart(infos, min(end, size), uri)
    return [_member(info, uri) for info in infos if not info.is_dir()]


def _member(info: zipfile.ZipInfo, uri: str) -> FoundMember:
    name = safe_name(_name_of(info), uri)
    problem = _problem(info)
    if not problem:
        require_plausible(f"{uri}!/{name}", info.file_size, info.compress_size)
    return FoundMember(
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
        # By the book it is code page 437; most programs write UTF-8 all the same.
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
        return "encrypted (unpack the archive with its password, and give the folder)"
    if info.compress_type not in _KINDS:
        method = _OTHER_KINDS.get(info.compress_type, f"method {info.compress_type}")
        return f"compressed by {method} (pack it again with deflate, or stored)"
    if (
        info.compress_type == zipfile.ZIP_STORED
        and info.compress_size != info.file_size
    ):
        return "of two sizes, though stored (the archive is damaged: copy it again)"
    return ""


def _require_apart(infos: Sequence[zipfile.ZipInfo], end: int, uri: str) -> None:
    """Refuses members that share bytes, as in archives made to fill disks.

    Raises:
      InputError: names the member.
    """
    ordered = sorted(infos, key=lambda info: info.header_offset)
    for info, following in zip(ordered, [*ordered[1:], None], strict=True):
        stop = following.header_offset if following else end
        data_end = info.header_offset + _HEADER_BYTES + info.compress_size
        if info.header_offset < 0 or data_end > stop:
            raise InputError(
                f"{uri}: its member {info.filename!r} has {info.compress_size:,} bytes, "
                f"but ends before byte {stop:,}. The archive is damaged or cut short: copy "
                "it again"
            )
