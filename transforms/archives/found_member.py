"""Defines a member that was found in an archive, and checks the names of all."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import NamedTuple

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import escaped

_DRIVE = re.compile(r"[A-Za-z]:")


class FoundMember(NamedTuple):
    """A member of an archive.

    Attributes:
      name: as it is used: without "./" and the like.
      size: in bytes, unpacked.
      kind: see `ArchiveMember`.
      offset: as well.
      stored_bytes: as well.
      crc32: as well.
      problem: why it cannot be read, or "".
    """

    name: str
    size: int
    kind: str
    offset: int
    stored_bytes: int
    crc32: str = ""
    problem: str = ""


def safe_name(name: str, archive: str) -> str:
    """Returns the name of a member as a path below the archive.

    Nothing is ever written to such a path, but origins are made of it.

    Raises:
      InputError: it leads out of the archive.
    """
    path = posixpath.normpath(name) if name else "."
    if (
        path == ".."
        or path.startswith(("/", "../"))
        or _DRIVE.match(path)
        or "\0" in path
    ):
        raise InputError(
            f"{archive}: holds a member named {escaped(name)!r}, which leads out of the "
            "archive. Nothing of it was read; pack it again with names below one folder"
        )
    return path


def require_unique(members: Iterable[FoundMember], archive: str) -> None:
    """Refuses an archive in which a name stands twice: which is meant is unclear.

    Raises:
      InputError: names the member.
    """
    seen: set[str] = set()
    for member in members:
        if member.name in seen:
            raise InputError(
                f"{archive}: holds several members named {escaped(member.name)!r}, as "
                "archives do to which a newer file was appended. Unpack it and give the "
                "folder as the input, or pack it again"
            )
        seen.add(member.name)
