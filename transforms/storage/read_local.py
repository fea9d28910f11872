"""Reads files of this machine, and checks that they are those of the inventory."""

from __future__ import annotations

import os

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.ranges import Seen
from recordmill.transforms.arrow import U8


def path_text(uri: str) -> str:
    """Returns the path of a local URI as text, for where a pathlib.Path takes too long.

    Ask `reading.is_local` before: of the URI of a file in a store this is none.
    """
    return uri.removeprefix("file://")


def read_part(descriptor: int, start: int, length: int) -> bytes:
    """Returns bytes of an open file; fewer if it ends before."""
    first = os.pread(descriptor, length, start)
    if len(first) == length or not first:
        return first
    chunks = [first]
    done = len(first)
    while done < length:
        chunk = os.pread(descriptor, length - done, start + done)
        if not chunk:
            break
        chunks.append(chunk)
        done += len(chunk)
    return b"".join(chunks)


def fill_from(descriptor: int, start: int, target: U8) -> int:
    """Fills an array with bytes of an open file; returns how many there were."""
    done = 0
    while done < len(target):
        count = os.preadv(descriptor, [target.data[done:]], start + done)
        if not count:
            break
        done += count
    return done


def read_seen_file(uri: str, seen: Seen) -> bytes:
    """Reads a local file whose size is known.

    Raises:
      ChangedInputError: it is another one by now.
    """
    # As pathlib and io do it, 75 kB take 12 us; so, 6 us.
    descriptor = os.open(path_text(uri), os.O_RDONLY)
    try:
        data = read_part(descriptor, 0, seen.size)
        require_seen(descriptor, uri, seen)
        return data
    finally:
        os.close(descriptor)


def require_seen(descriptor: int, uri: str, seen: Seen | None) -> None:
    """Checks that a local file is the one of the inventory; call it after reading.

    Raises:
      ChangedInputError: it is not, so what was read may be a mix of both.
    """
    if seen is None:
        return
    now = os.fstat(descriptor)
    if now.st_size != seen.size:
        raise ChangedInputError(
            f"{uri}: has {now.st_size} bytes, but had {seen.size} when the run began; "
            "did it change meanwhile?"
        )
    if seen.version and str(now.st_mtime_ns) != seen.version:
        raise ChangedInputError(
            f"{uri}: was written again after the run began (with {now.st_size} bytes as "
            "before). Run the same command again when nothing writes to the inputs"
        )
