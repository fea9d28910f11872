"""Makes columns of pixels and of frames from the bytes of pictures that were made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.transforms.arrow import I64, array_parts, binary_array, offsets_of
from recordmill.transforms.pictures.image_header import ImageHeader


def frame_lists(
    pictures: pa.BinaryArray, frames: Sequence[tuple[int, ...]]
) -> pa.LargeListArray:
    """Returns the frames of each picture as a list of bytes.

    Args:
      pictures: the bytes of all frames of each.
      frames: how many bytes each frame of a picture has.
    """
    offsets, data = array_parts(pictures)
    lengths = np.array([size for sizes in frames for size in sizes], np.int64)
    values = binary_array(offsets_of(lengths), data[int(offsets[0]) : int(offsets[-1])])
    return pa.LargeListArray.from_arrays(offsets_of(_counts(frames)), values)


def pixel_lists(
    pixels: pa.BinaryArray,
    headers: Sequence[ImageHeader],
    frames: Sequence[tuple[int, ...]] | None = None,
) -> pa.LargeListArray:
    """Returns pixels as lists of rows of samples, as a tensor of three sides is read.

    Pictures of 2 x 1 and 1 x 3 pixels of three channels are the lists [[3], [3], [9]]:
    rows begin at samples 0, 3, 6 and end at 15; pictures begin at rows 0 and 2.

    Args:
      pixels: the samples of each picture.
      headers: of the pictures, or of each frame of them.
      frames: of each picture, if it is to be a list of frames; their number counts.
    """
    heights = np.array([header.height for header in headers], np.int64)
    row_bytes = np.array([header.width * header.depth for header in headers], np.int64)
    counts = np.ones(len(headers), np.int64) if frames is None else _counts(frames)
    heights, row_bytes = np.repeat(heights, counts), np.repeat(row_bytes, counts)
    offsets, data = array_parts(pixels)
    samples = pa.array(data[int(offsets[0]) : int(offsets[-1])], pa.uint8())
    row_starts = offsets_of(np.repeat(row_bytes, heights))
    rows = pa.LargeListArray.from_arrays(row_starts, samples)
    pictures = pa.LargeListArray.from_arrays(offsets_of(heights), rows)
    if frames is None:
        return pictures
    return pa.LargeListArray.from_arrays(offsets_of(counts), pictures)


def _counts(frames: Sequence[tuple[int, ...]]) -> I64:
    """Returns how many frames each picture has."""
    return np.array([len(sizes) for sizes in frames], np.int64)
