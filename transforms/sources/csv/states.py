"""Defines the states that a byte of a CSV file can be in, and maps between them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect


class QuoteState(IntEnum):
    """The state before a byte of a CSV file, which fixes what the byte means.

    The first three are all that there are in a dialect without escapes and comments
    (see quote_states), the others are those of marked_states. Ranges keep the values.
    The values 0 and 1 are left out: earlier versions kept whether the quotes before
    a byte are odd in number.
    """

    FIELD_START = 2
    UNQUOTED = 3
    QUOTED = 4
    ROW_START = 5  # where a comment may begin; else as FIELD_START
    COMMENT = 6
    ESCAPED = 7  # behind an escape character outside quotes
    QUOTED_ESCAPED = 8


FIELD_START, UNQUOTED, QUOTED, ROW_START, COMMENT, ESCAPED, QUOTED_ESCAPED = QuoteState
TransitionMap = tuple[QuoteState, ...]
"""The end state for each start state, in the order of QuoteState; 3 or 7 of them."""


def states_of(dialect: Dialect) -> tuple[QuoteState, ...]:
    """Returns the states that bytes of a dialect can be in."""
    return tuple(QuoteState) if dialect.is_marked else (FIELD_START, UNQUOTED, QUOTED)


def first_state(dialect: Dialect = RFC_4180) -> QuoteState:
    """Returns the state where a row starts."""
    return ROW_START if dialect.is_marked else FIELD_START


def is_open(state: QuoteState) -> bool:
    """Tells whether a quoted field is open."""
    return state in (QUOTED, QUOTED_ESCAPED)


def compose(first: Sequence[QuoteState], second: TransitionMap) -> TransitionMap:
    """Returns the transition map of a block and the block behind it."""
    return tuple(second[end - FIELD_START] for end in first)


def pack_map(ends: TransitionMap) -> int:
    """Returns a transition map as one number, never 0.

    >>> hex(pack_map((UNQUOTED, UNQUOTED, QUOTED)))
    '0x433'
    """
    return sum(int(end) << 4 * index for index, end in enumerate(ends))


def unpack_map(number: int) -> TransitionMap:
    """Returns the transition map that `pack_map` made a number of."""
    shifts = range(0, number.bit_length(), 4)
    return tuple(QuoteState(number >> shift & 15) for shift in shifts)
