"""Tells size and times of many files of this machine, by a compiled loop if it is there."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from recordmill.transforms import compiled
from recordmill.transforms.arrow import I64

_AT_ONCE = 8192  # files of one call
_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Sizes and times of files.

    Attributes:
      sizes: in bytes; -1 where there is no regular file, it cannot be asked, or 64 bits
        do not hold its times.
      modified: nanoseconds since 1970.
      changed: the same of the last change of any kind, renames included.
    """

    sizes: I64
    modified: I64
    changed: I64


def file_status(paths: Sequence[str]) -> FileStatus:
    """Asks for sizes and times of local files; links are followed.

    A million files take a second, in Python's own calls three.
    """
    facts = np.full((3, len(paths)), -1, np.int64)
    starts = range(0, len(paths), _AT_ONCE)
    if len(starts) < 2:
        _ask(paths, facts)
    else:
        with ThreadPoolExecutor(os.cpu_count(), "file-status") as threads:
            slices = [slice(start, start + _AT_ONCE) for start in starts]
            parts = [(paths[each], facts[:, each]) for each in slices]
            list(threads.map(_ask, *zip(*parts, strict=True)))
    return FileStatus(*facts)


def _ask(paths: Sequence[str], facts: I64) -> None:
    """Fills a column of facts for each path."""
    # Bytes that are not UTF-8 stay as they are; a path cannot hold a zero byte.
    joined = os.fsencode("".join([f"{path}\0" for path in paths]))
    if compiled.loops is not None and joined.count(b"\0") == len(paths):
        compiled.loops.status(joined, *facts)
        return
    for index, path in enumerate(paths):
        facts[:, index] = _asked(path)


def _asked(path: str) -> tuple[int, int, int]:
    try:
        now = os.stat(path)  # noqa: PTH116 (the hot call of a large listing)
    except (OSError, ValueError):
        return -1, 0, 0
    times = now.st_mtime_ns, now.st_ctime_ns
    if not stat.S_ISREG(now.st_mode) or max(map(abs, times)) > _MOST:
        return -1, 0, 0
    return now.st_size, *times
