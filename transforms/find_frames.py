"""Finds TFRecord frames in bytes that were read from a file, and again behind damage.

Frames tell their length only at their start, so one is found from the end of the one
before. Where a length is damaged, each later byte is tried as the start of a frame: its
length must fit, and both of its checksums must be right.
"""

from __future__ import annotations

import numpy as np

from recordmill.transforms import native
from recordmill.transforms.arrow import I64, U8, unaligned_rows
from recordmill.transforms.native.numpy_loops import length_crcs
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    MAX_EXAMPLE_BYTES,
    crc32c,
    mask,
)

MOST_FRAMES = 1 << 17  # found at once
_TRIED_AT_ONCE = 1 << 18  # bytes, each as the start of a frame
_HEAD = np.dtype([("length", "<u8"), ("crc", "<u4")])


def find_frames(data: U8, at: int = 0) -> I64:
    """Returns where frames begin that follow each other, and where the last one ends.

    Only their heads are checked. The search ends before a frame that does not lie in the
    data, or whose length is damaged, and after MOST_FRAMES.

    Args:
      data: some bytes of a file.
      at: where a frame begins in them.
    """
    starts = np.empty(min(MOST_FRAMES, len(data) // FRAME_BYTES) + 1, np.int64)
    count = native.loops.frames(data, at, starts)
    return starts[: count + 1]


def is_head(head: bytes | memoryview) -> bool:
    """Tells whether bytes begin with a length and its checksum."""
    if len(head) < HEAD_BYTES:
        return False
    found = int.from_bytes(head[8:HEAD_BYTES], "little")
    return found == mask(crc32c(head[:8]))


def frame_bytes(head: bytes | memoryview) -> int:
    """Returns the bytes of the frame that begins with a head."""
    return int.from_bytes(head[:8], "little") + FRAME_BYTES


def find_whole_frame(data: U8, at: int) -> tuple[int | None, int]:
    """Searches for a frame whose checksums are right, whatever lies before it.

    Args:
      data: some bytes of a file.
      at: where the search begins.

    Returns:
      Where such a frame begins, or None; and how many bytes of the data are needed to
      tell of each that begins in it, if there are more in the file.
    """
    needed = 0
    last = len(data) - FRAME_BYTES
    while at <= last:
        stop = min(at + _TRIED_AT_ONCE, last + 1)
        heads = unaligned_rows(data, _HEAD)[at:stop]
        few = np.flatnonzero(heads["length"] <= MAX_EXAMPLE_BYTES)
        likely = heads[few]
        lengths = likely["length"].astype(np.int64)
        right = likely["crc"] == length_crcs(lengths)
        # A head by chance comes once in 4 GB of small lengths.
        for begin, length in zip(
            (few[right] + at).tolist(), lengths[right].tolist(), strict=True
        ):
            end = begin + length + FRAME_BYTES
            if end > len(data):
                needed = max(needed, end)
            elif _is_whole(data[begin:end].data):
                return begin, needed
        at = stop
    return None, needed


def _is_whole(frame: memoryview) -> bool:
    found = int.from_bytes(frame[-4:], "little")
    return found == mask(crc32c(frame[HEAD_BYTES:-4]))
