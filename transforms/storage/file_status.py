"""Tells size and times of many files of this machine, by the native functions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from recordmill.transforms import native
from recordmill.transforms.arrow import I64

_AT_ONCE = 8192  # files of one call


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Sizes and times of files.

    Sizes are -1 where there is no regular file, it cannot be asked, or 64 bits do not hold
    its times.
    """

    sizes: I64
    modified: I64  # nanoseconds since 1970
    changed: I64  # the same of the last change of any kind, renames included


def file_status(paths: Sequence[str]) -> FileStatus:
    """Asks for sizes and times of local files; links are followed.

    A million files take a second, in Python's own calls three.
    """
    facts = np.zeros((3, len(paths)), np.int64)
    facts[0] = -1
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
    # Bytes that are not UTF-8 stay as they are; a path with a zero byte names no file.
    names = ["" if "\0" in path else path for path in paths]
    joined = os.fsencode("".join([f"{name}\0" for name in names]))
    native.loops.status(joined, *facts)
