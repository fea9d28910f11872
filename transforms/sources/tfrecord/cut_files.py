"""Cuts TFRecord files into input ranges, at the starts of records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.find_frames import find_frames, frame_bytes, is_head
from recordmill.transforms.sources.tfrecord.file_bytes import look_at
from recordmill.transforms.storage.reading import is_local, read_range
from recordmill.transforms.tfrecord import HEAD_BYTES

WHOLE_BYTES = 256 << 20  # a file of so many bytes is one range
STEP_BYTES = 64 << 20  # of a range of a larger one, about
_LOOK_BYTES = 1 << 20  # read at once to find records
_FEW = 4  # records in so many bytes: then only heads are read


def cut_files(
    files: Sequence[InputFile],
    storage: StorageOptions,
    *,
    whole_bytes: int = WHOLE_BYTES,
    step_bytes: int = STEP_BYTES,
) -> list[tuple[InputFile, int, int]]:
    """Returns the ranges of files as (file, start, stop).

    Only a large file of this machine is cut, if it is not compressed: where records
    begin is told by the one before. The cut changes no byte of the dataset.

    Args:
      files: with records, in order.
      storage: options of their storage.
      whole_bytes: the most bytes of a file that is one range.
      step_bytes: of the ranges of larger ones.
    """
    parts = []
    for file in files:
        edges = [0, file.size]
        if file.size > whole_bytes and is_local(file.uri):
            edges = _edges(file, storage, step_bytes)
        parts += [(file, start, stop) for start, stop in pairwise(edges)]
    return parts


def _edges(file: InputFile, storage: StorageOptions, step_bytes: int) -> list[int]:
    """Returns where the ranges of a file begin, and its end; none behind damage."""
    edges, at, look = [0], 0, _LOOK_BYTES
    if look_at(file.uri, storage, file.seen)[0] != "plain":
        return [0, file.size]
    while at < file.size:
        data = read_range(file.uri, at, min(at + look, file.size), storage, file.seen)
        found = find_frames(np.frombuffer(data, np.uint8))
        behind = found + at
        while edges[-1] + step_bytes <= behind[-1]:
            next_edge = int(np.searchsorted(behind, edges[-1] + step_bytes))
            edges.append(int(behind[next_edge]))
        end = int(found[-1])
        head = data[end : end + HEAD_BYTES]
        at += end
        look = _LOOK_BYTES if len(found) > _FEW else HEAD_BYTES
        if len(head) == HEAD_BYTES:
            if not is_head(head) or at + frame_bytes(head) > file.size:
                break
            if not end:  # it is longer than what was read
                at += frame_bytes(head)
                if edges[-1] + step_bytes <= at:
                    edges.append(at)
        elif not end:
            break
    if edges[-1] != file.size:
        edges.append(file.size)
    return edges
