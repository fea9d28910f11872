"""Combines the checksums of parts of files, and says what a file's content is.

The content of a file is a short text, the same wherever and whenever the file is read:

    crc32c:e3069283       of all of its bytes
    crc32c:e3069283/64    of the first 64 bytes, and no others were read
    ""                    nothing was read of it: what it holds does not matter
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.input_files import FileChecksum
from recordmill.transforms.native.numpy_loops import combine

_PREFIX = "crc32c:"
_CONTENT = re.compile(_PREFIX + "[0-9a-f]{8}(?:/([0-9]{1,18}))?")


def contents(parts: Iterable[FileChecksum], sizes: dict[str, int]) -> dict[str, str]:
    """Returns the content of each file of which something was read.

    Parts may come in any order and several times, as long as they join; files that
    `sizes` does not have are left out.

    Raises:
      ChangedInputError: a part was read several times, and was not the same.
    """
    whole: dict[str, int] = {}  # most files are read at once
    others: dict[str, set[FileChecksum]] = {}
    for part in parts:
        path, start, stop, crc = part
        if (
            start == 0
            and stop == sizes.get(path)
            and whole.setdefault(path, crc) == crc
        ):
            continue
        if path in sizes:
            others.setdefault(path, set()).add(part)
    found = {path: f"{_PREFIX}{crc:08x}" for path, crc in whole.items()}
    for path, own in others.items():
        if path in whole:
            own.add(FileChecksum(path, 0, sizes[path], whole[path]))
        found[path] = _content(path, sorted(own), sizes[path])
    return found


def _content(path: str, parts: list[FileChecksum], size: int) -> str:
    """Returns the content of a file from its parts, sorted by start and stop."""
    for before, part in pairwise(parts):
        if before[1:3] == part[1:3]:
            raise ChangedInputError(
                f"{path}: bytes {part.start} to {part.stop} were read twice and were "
                "not the same. Run the job again, and do not write to its inputs "
                "meanwhile"
            )
    crcs = {0: 0}  # of all bytes up to here
    for part in parts:
        if part.start in crcs and part.stop not in crcs:
            length = part.stop - part.start
            crcs[part.stop] = combine(crcs[part.start], part.crc32c, length)
    stop = max(crcs)
    if stop == size:
        return f"{_PREFIX}{crcs[stop]:08x}"
    return f"{_PREFIX}{crcs[stop]:08x}/{stop}" if stop else ""


def bytes_of_content(content: str, size: int) -> int | None:
    """Returns how many bytes of a file its content speaks of; None if it is no content.

    >>> bytes_of_content("crc32c:e3069283", 9), bytes_of_content("crc32c:00000000/4", 9)
    (9, 4)
    >>> bytes_of_content("", 9), bytes_of_content("1700000000000000000", 9)
    (0, None)
    """
    if not content:
        return 0
    found = _CONTENT.fullmatch(content)
    if not found:
        return None
    if not found[1]:
        return size
    head = int(found[1])
    return head if 0 < head < size else None
