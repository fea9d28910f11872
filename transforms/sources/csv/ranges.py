"""Cuts tables into input ranges, and finds where quotes are open at their ends.

Many small tables are one range, because each range costs some milliseconds in every step
of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange, RangeFile
from recordmill.transforms.sources.base import number_ranges, spread_evenly
from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.header import header_start
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    FIELD_START,
    QUOTED,
    ROW_START,
    UNCLOSED_BYTES,
    UNQUOTED,
    QuoteState,
    Reader,
    TransitionMap,
    compose,
    end_states,
    is_open,
    masked,
    pack_map,
    unclosed_quote,
    unpack_map,
)
from recordmill.transforms.sources.csv.rows import RangeRows

FILES_PER_RANGE = 256
RANGES_KEPT = 64  # left for workers to share, before any range is of two files
SMALL_SHARE = 16  # files of a range's bytes that are still small, of which each is
TAIL_BYTES = 1 << 16  # of a block, that mostly tell the state behind it


def survey_block(
    read: Reader,
    block: InputRange,
    dialect: Dialect = RFC_4180,
    *,
    tail_first: bool = False,
) -> int:
    """Returns the transition map of a block, packed.

    Args:
      read: reads bytes of the file.
      block: a part of it.
      dialect: of the file.
      tail_first: whether to read the block's end, and the rest only if that does not
        tell the state. A block without quotes is never told by its end.
    """
    start = block.start
    # The first field starts behind what is before the header.
    if dialect.skip_rows:
        start = max(start, header_start(read, block.uri, dialect))
    elif 0 < start < len(BOM) and read(0, len(BOM)) == BOM:
        start = len(BOM)
    start = min(start, block.stop)
    tail = max(start, block.stop - TAIL_BYTES) if tail_first else start
    ends = _ends(read, tail, block.stop, dialect)
    if tail > start and len(set(ends)) > 1:
        ends = compose(_ends(read, start, tail, dialect), ends)
    return pack_map(ends)


def _ends(read: Reader, start: int, stop: int, dialect: Dialect) -> TransitionMap:
    data = read(start, stop)
    is_marked = start == 0 and not dialect.skip_rows and data.startswith(BOM)
    return end_states(data, len(BOM) if is_marked else 0, dialect=dialect)


def resolve_file(
    read: Reader,
    ranges: Sequence[InputRange],
    surveys: Sequence[int],
    dialect: Dialect = RFC_4180,
) -> list[InputRange]:
    """Returns the ranges of a file with the states of the quotes at their ends.

    If the last field is open at the file's end and large, only the row in which it
    begins is lost: all goes on as if its quote were another character.

    Args:
      read: reads bytes of the file.
      ranges: all of the file.
      surveys: the packed transition map of each.
      dialect: of the file.
    """
    if len(ranges) == 1:
        return list(ranges)  # there is nothing before it
    states = _states(surveys)
    if is_open(states[-1]):
        size = ranges[-1].stop
        quote = unclosed_quote(read, size, dialect)
        if size - quote > UNCLOSED_BYTES:
            ranges = [replace(each, unclosed=quote) for each in ranges]
            maps = [
                survey_block(masked(read, quote, dialect), each, dialect)
                if each.start <= quote < each.stop
                else number
                for each, number in zip(ranges, surveys, strict=True)
            ]
            states = _states(maps)
    cuts = [0, *(int(state) for state in states[:-1]), 0]
    return [
        replace(each, quoted=ends)
        for each, ends in zip(ranges, pairwise(cuts), strict=True)
    ]


def _states(maps: Sequence[int]) -> list[QuoteState]:
    """Returns the state behind each block of a file."""
    state: QuoteState = ROW_START
    states = []
    for number in maps:
        state = unpack_map(number)[state - FIELD_START]
        states.append(state)
    return states


LOOKED_AT_BYTES = 1 << 18


def _guess_states(rows: RangeRows, input_range: InputRange, survey: int) -> InputRange:
    """Returns the range with the states of quotes that give the fewest rejects.

    To know them would take reading the file from its start.
    """
    start = input_range.start
    ends = unpack_map(survey)
    if start == 0:
        state = ends[ROW_START - FIELD_START]
        return replace(input_range, quoted=(0, int(state)))
    before = rows.of_file(input_range)(start - 1, start)
    state = FIELD_START if before in rows.dialect.field_ends else UNQUOTED
    if before in (b"\r", b"\n"):
        state = ROW_START
    states = (state, QUOTED)
    guesses = [
        replace(input_range, quoted=(int(state), int(ends[state - FIELD_START])))
        for state in states
    ]
    return min(guesses, key=lambda guess: _share_rejected(rows, guess))


def _share_rejected(rows: RangeRows, input_range: InputRange) -> float:
    """Returns the share of rows that cannot be split into the columns.

    One half if no row starts there, as in the middle of a long text.
    """
    parsed = rows.sample(input_range, LOOKED_AT_BYTES)
    if parsed is None or not parsed.num_rows:
        return 0.5
    return len(parsed.rejects) / parsed.num_rows


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
        _guess_states(rows, each, survey_block(rows.of_file(each), each, rows.dialect))
        for each in chosen
    ]


def join_small_files(
    ranges: Sequence[InputRange], range_bytes: int
) -> list[InputRange]:
    """Returns the ranges of an input, those of small files joined."""
    small_files = sum(_is_small(each, range_bytes) for each in ranges)
    most = min(FILES_PER_RANGE, max(1, small_files // RANGES_KEPT))
    groups: list[list[InputRange]] = []
    room = files = 0  # for a small file, in the last group
    for each in ranges:
        small = _is_small(each, range_bytes)
        if small and files and each.stop <= room:
            groups[-1].append(each)
            room, files = room - each.stop, files - 1
        else:
            groups.append([each])
            room, files = range_bytes - each.stop, (most - 1) * small
    return [_joined(index, group) for index, group in enumerate(groups)]


def _is_small(input_range: InputRange, range_bytes: int) -> bool:
    seen = input_range.seen
    return (
        seen is not None
        and input_range.num_positions == seen.size
        and seen.size * SMALL_SHARE <= range_bytes
    )


def _joined(index: int, group: Sequence[InputRange]) -> InputRange:
    if len(group) == 1:
        return replace(group[0], index=index)
    files = tuple(RangeFile(each.path, *each.seen) for each in group if each.seen)
    stop = sum(file.size for file in files)
    return replace(group[0], index=index, stop=stop, seen=None, files=files)
