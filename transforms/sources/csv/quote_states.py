"""How the quotes of one block of a CSV file lead from a state to the next, without a loop.

Each byte is in one of three states, which fix what the next byte means:

    FIELD_START  a quote opens a quoted field here, or is the second of a doubled one
    UNQUOTED     a quote is an ordinary character: 5" pipe
    QUOTED       all but a quote is an ordinary character

    in FIELD_START  " -> QUOTED       , CR LF -> FIELD_START   other -> UNQUOTED
    in UNQUOTED     " -> UNQUOTED     , CR LF -> FIELD_START   other -> UNQUOTED
    in QUOTED       " -> FIELD_START  , CR LF -> QUOTED        other -> QUOTED

(A quote that ends a field leads to FIELD_START: a further quote would double it. What
else is behind it belongs to the field, unquoted.) Python's csv module and Arrow read
the same. Where a block begins is known only after all blocks before it were read, so
a block is described by its transition map, which has an end state for each start state.
Maps compose, stray quotes included. The comma and the quote are those of the dialect;
without a quote every map leads to one state. Where it also has escapes or comments,
`marked_states` takes over.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

from recordmill.transforms.sources.csv import marked_states
from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.states import (
    FIELD_START,
    QUOTED,
    UNQUOTED,
    QuoteState,
    TransitionMap,
    compose,
    first_state,
)

_TAIL_BYTES = 1 << 16
_MAX_PIECE_BYTES = 1 << 20

# Only quotes and the bytes before them matter. Before a quote the field is bare, has
# just been closed, or is quoted: states 0, 1, 2 of a function that has three kinds.
_BARE, _CLOSED, _OPEN = range(3)
_Function = tuple[int, ...]  # three of them
_STRAY: _Function = (_BARE, _BARE, _CLOSED)  # behind an ordinary character
_AT_START: _Function = (_OPEN, _OPEN, _CLOSED)  # behind a comma or a row's end
_ADJACENT: _Function = (_BARE, _OPEN, _CLOSED)  # behind a quote
_IDENTITY: _Function = (_BARE, _CLOSED, _OPEN)


def _code(function: _Function) -> int:
    return function[0] + 3 * function[1] + 9 * function[2]


@lru_cache(maxsize=64)
def _function_of_a_quote(dialect: Dialect) -> npt.NDArray[np.uint8]:
    """Returns a quote's function by the byte before it, as codes."""
    codes = np.full(256, _code(_STRAY), np.uint8)
    codes[list(dialect.field_ends)] = _code(_AT_START)
    codes[list(dialect.quote)] = _code(_ADJACENT)
    return codes


def _composition() -> npt.NDArray[np.uint8]:
    """Returns the code of "first, then second", at index first + 256 * second."""
    table = np.zeros(27 * 256, np.uint8)
    for first, second in product(product(range(3), repeat=3), repeat=2):
        both = (second[first[0]], second[first[1]], second[first[2]])
        table[_code(first) + 256 * _code(second)] = _code(both)
    return table


_COMPOSED = _composition()


def _compose(codes: npt.NDArray[np.uint8]) -> _Function:
    r"""Returns one function for a row of them, in about log2 of their number steps.

    Worked example, the quotes behind the first one of  "a","5"" x"\n7" y :

        quotes behind      a         ,         5         "         x         7
        functions          stray     at start  stray     adjacent  stray     stray
        (bare, closed,     (0,0,1)   (2,2,1)   (0,0,1)   (0,2,1)   (0,0,1)   (0,0,1)
         open) -> next
        codes              9         17        9         15        9         9
        pairs composed     (2,2,2) 26          (0,0,2) 18          (0,0,0) 0
        once more          (2,2,2) 26                              (0,0,0) 0
        at last            (0,0,0) 0

    The first quote leads from bare to open, the others from there to bare. An odd last
    one is paired with the identity.
    """
    while len(codes) > 1:
        if len(codes) % 2:
            codes = np.append(codes, np.uint8(_code(_IDENTITY)))
        codes = _COMPOSED[codes.view("<u2")]
    code = int(codes[0]) if len(codes) else _code(_IDENTITY)
    return code % 3, code // 3 % 3, code // 9


def end_states(
    block: bytes,
    first: int = 0,
    stop: int | None = None,
    dialect: Dialect = RFC_4180,
) -> TransitionMap:
    """Returns the transition map of a block: its end state for each start state.

    Args:
      block: bytes of a file.
      first: where to begin in them.
      stop: where to end.
      dialect: of the file.

    >>> [state.name for state in end_states(b'5" pipe,"a')]
    ['QUOTED', 'QUOTED', 'QUOTED']
    >>> [state.name for state in end_states(b"pipe,a")]
    ['UNQUOTED', 'UNQUOTED', 'QUOTED']
    """
    stop, size = len(block) if stop is None else stop, _TAIL_BYTES
    if dialect.is_marked:
        return marked_states.end_states(block, first, stop, dialect)
    ends: TransitionMap = (FIELD_START, UNQUOTED, QUOTED)
    # From the end: mostly a few fields lead from all states to one, and what stands
    # before them no longer matters.
    while stop > first and len(set(ends)) > 1:
        start = max(first, stop - size)
        ends = compose(_piece_map(block, start, stop, dialect), ends)
        stop, size = start, min(2 * size, _MAX_PIECE_BYTES)
    return ends


def _piece_map(block: bytes, start: int, stop: int, dialect: Dialect) -> TransitionMap:
    """Returns the transition map of a piece of a block that is not empty."""
    field_ends = dialect.field_ends
    bare = FIELD_START if block[stop - 1] in field_ends else UNQUOTED
    if not dialect.quote:
        return bare, bare, bare
    if block.find(dialect.quote, start, stop) < 0:
        return bare, bare, QUOTED
    data = np.frombuffer(block, np.uint8, stop - start, start)
    offsets = np.flatnonzero(data == ord(dialect.quote))
    others = _compose(_function_of_a_quote(dialect)[data[offsets[1:] - 1]])
    closed = FIELD_START if offsets[-1] == len(data) - 1 else bare
    ends = {_BARE: bare, _CLOSED: closed, _OPEN: QUOTED}
    first = int(offsets[0])
    if first == 0:
        opening, stray = _OPEN, _BARE
    else:
        opening = stray = _OPEN if data[first - 1] in field_ends else _BARE
    return ends[others[opening]], ends[others[stray]], ends[others[_CLOSED]]


def end_state(
    block: bytes,
    start: QuoteState | None = None,
    dialect: Dialect = RFC_4180,
    first: int = 0,
    stop: int | None = None,
) -> QuoteState:
    """Returns the state behind a part of a block.

    Args:
      block: bytes of a file.
      start: the state before the part; None if a row starts there.
      dialect: of the file.
      first: where the part begins.
      stop: where it ends.
    """
    start = first_state(dialect) if start is None else start
    return end_states(block, first, stop, dialect)[start - FIELD_START]
