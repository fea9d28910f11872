"""Reads files of this machine, some of them by one call of the compiled loops.

A picture of 75 kB takes four calls of the system, and after each of them a thread has to
get the interpreter back from the others. One call for a million bytes leaves it to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import Seen
from recordmill.transforms import compiled
from recordmill.transforms.storage.read_local import path_text
from recordmill.transforms.storage.reading import read_file

TOGETHER_BYTES = 1 << 20

FileToRead = tuple[str, Seen]  # uri; size and version that it has to have


def read_together(
    files: Iterable[FileToRead], options: StorageOptions
) -> Iterator[bytes]:
    """Yields the bytes of each file of this machine, in order.

    Args:
      files: their URIs, and what each has to be.
      options: for their storage.

    Raises:
      ChangedInputError: a file is another one by now.
      InputError: a file cannot be read.
    """
    for group in _groups(files):
        read = _by_loops(group)
        yield from read
        # Members of archives have other versions; what is not as it was is told here.
        for uri, seen in group[len(read) :]:
            yield read_file(uri, options, seen)


def _groups(files: Iterable[FileToRead]) -> Iterator[list[FileToRead]]:
    group: list[FileToRead] = []
    num_bytes = 0
    for file in files:
        group.append(file)
        num_bytes += file[1].size
        if num_bytes >= TOGETHER_BYTES:
            yield group
            group, num_bytes = [], 0
    yield group


def _by_loops(files: Sequence[FileToRead]) -> list[bytes]:
    """Returns the bytes of the files up to one that is not as it was listed."""
    loops = compiled.loops
    if loops is None:
        return []
    try:
        times = [
            int(seen.version) if seen.version else loops.ANY_TIME for _, seen in files
        ]
        modified = np.array(times, np.int64)
    except (ValueError, OverflowError):
        return []
    paths = tuple(os.fsencode(path_text(uri)) for uri, _ in files)
    sizes = np.array([seen.size for _, seen in files], np.int64)
    return loops.files(paths, sizes, modified)
