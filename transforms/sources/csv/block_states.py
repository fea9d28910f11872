"""Finds the state of the quotes in which each block of a CSV file begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.csv.broken_rows import masked, unclosed_quote
from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.header_row import header_start
from recordmill.transforms.sources.csv.quote_states import (
    end_states,
)
from recordmill.transforms.sources.csv.row_bounds import BOM, Reader
from recordmill.transforms.sources.csv.states import (
    FIELD_START,
    QuoteState,
    TransitionMap,
    compose,
    first_state,
    is_open,
    pack_map,
    unpack_map,
)

# A field that is open at the file's end and has no more bytes than this is rejected
# with all of them: the file may have been cut off. In a larger one a quote is wrong.
UNCLOSED_BYTES = 16 << 20
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
    states = _states(surveys, dialect)
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
            states = _states(maps, dialect)
    cuts = [0, *(int(state) for state in states[:-1]), 0]
    return [
        replace(each, quoted=ends)
        for each, ends in zip(ranges, pairwise(cuts), strict=True)
    ]


def _states(maps: Sequence[int], dialect: Dialect) -> list[QuoteState]:
    """Returns the state behind each block of a file."""
    states, state = [], first_state(dialect)
    for number in maps:
        state = unpack_map(number)[state - FIELD_START]
        states.append(state)
    return states
