"""Cuts the list of pictures into input ranges: slices, each of one split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.inventory import slices

FILES_PER_RANGE = 4096
RANGE_BYTES = 64 << 20  # a larger picture is a range of its own


def cut_pictures(
    pictures: Sequence[InputFile],
    splits: Sequence[str],
    root: str,
    *,
    max_range_bytes: int | None = None,
) -> list[InputRange]:
    """Cuts the list into ranges, whose unit is one file.

    Where it is cut changes no byte of the dataset.

    Args:
      pictures: the files.
      splits: of each.
      root: what every uri begins with, before the path.
      max_range_bytes: of the files of a range, RANGE_BYTES if not given; a larger
        picture is one by itself.
    """
    return [
        InputRange(
            index=index,
            path=pictures[start].path,
            uri=root,
            start=start,
            stop=stop,
            first_position=start,
            total_positions=len(pictures),
            split=splits[start],
        )
        for index, (start, stop) in enumerate(
            _slices(pictures, splits, max_range_bytes or RANGE_BYTES)
        )
    ]


def _slices(
    pictures: Sequence[InputFile], splits: Sequence[str], max_range_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yields slices of the list, each of one split."""
    start = 0
    for _, group in groupby(splits):
        stop = start + sum(1 for _ in group)
        part = pictures[start:stop]
        for low, high in pairwise(slices(part, FILES_PER_RANGE, max_range_bytes)):
            yield start + low, start + high
        start = stop
