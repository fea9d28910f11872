"""Cuts tables into input ranges, and chooses small ones for a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.base import number_ranges
from recordmill.transforms.sources.csv.block_states import survey_block
from recordmill.transforms.sources.csv.guess_states import guess_states
from recordmill.transforms.sources.csv.range_rows import RangeRows
from recordmill.transforms.sources.csv.small_files import join_small_files
from recordmill.transforms.sources.spread_ranges import spread_evenly

SAMPLED_RANGES = 32
SAMPLED_RANGE_BYTES = 1 << 18


def cut_tables(
    files: Sequence[InputFile], range_bytes: int, *, is_plain: bool, is_joined: bool
) -> list[InputRange]:
    """Returns the ranges of files that have bytes.

    Args:
      files: in input order.
      range_bytes: the most bytes of a range of plain files.
      is_plain: whether a file can be read from its middle.
      is_joined: whether small files may share a range.
    """
    parts = [
        (file, start, min(start + size, file.size), "")
        for file in files
        for size in (range_bytes if is_plain else file.size,)
        for start in range(0, file.size, size)
    ]
    ranges = number_ranges(parts)
    return join_small_files(ranges, range_bytes) if is_plain and is_joined else ranges


def sampled_ranges(rows: RangeRows, ranges: Sequence[InputRange]) -> list[InputRange]:
    """Returns small ranges of some files, spread over the input.

    Args:
      rows: of the files.
      ranges: all of the input.
    """
    files = [each for input_range in ranges for each in input_range.by_file()]
    if not rows.packing.is_plain:
        return [
            replace(each, stop=min(each.stop, SAMPLED_RANGE_BYTES))
            for each in files[:: -(-len(files) // SAMPLED_RANGES)]
        ]
    chosen = spread_evenly(files, SAMPLED_RANGES, SAMPLED_RANGE_BYTES)
    return [
        guess_states(rows, each, survey_block(rows.of_file(each), each, rows.dialect))
        for each in chosen
    ]
