"""Tells size and times of many files of this machine, by a compiled loop if it is there."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recordmill.transforms import compiled
from recordmill.transforms.arrow import I64


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Sizes and times of files.

    Attributes:
      sizes: in bytes; -1 where there is no regular file, or it cannot be asked.
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
    # Bytes that are not UTF-8 stay as they are; a path cannot hold a zero byte.
    joined = os.fsencode("".join([f"{path}\0" for path in paths]))
    if compiled.loops is not None and joined.count(b"\0") == len(paths):
        compiled.loops.status(joined, *facts)
    else:
        for index, path in enumerate(paths):
            facts[:, index] = _asked(path)
    return FileStatus(*facts)


def _asked(path: str) -> tuple[int, int, int]:
    try:
        now = os.stat(path)  # noqa: PTH116 (the hot call of a large listing)
    except (OSError, ValueError):
        return -1, 0, 0
    if not stat.S_ISREG(now.st_mode):
        return -1, 0, 0
    return now.st_size, now.st_mtime_ns, now.st_ctime_ns
