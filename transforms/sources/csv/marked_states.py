r"""How a block leads from a state to the next in a dialect with escapes or comments.

An escape character takes the meaning of the byte behind it, inside and outside quotes. A
comment begins where a row could, and ends with its line; nothing else has a meaning in it:

    in ROW_START       # -> COMMENT    others as in FIELD_START
    in FIELD_START     " -> QUOTED       , -> FIELD_START   CR LF -> ROW_START
                       \ -> ESCAPED      other -> UNQUOTED
    in UNQUOTED        " -> UNQUOTED     others as in FIELD_START
    in QUOTED          " -> FIELD_START  \ -> QUOTED_ESCAPED    other -> QUOTED
    in COMMENT         CR LF -> ROW_START    other -> COMMENT
    in ESCAPED         any -> UNQUOTED
    in QUOTED_ESCAPED  any -> QUOTED

Each byte is a function of seven states. There are at most 474 different ones that such
functions and their compositions can be, so "first, then second" is one look into a table,
and a row of n bytes is composed in about log2 n steps:

    bytes                  "     a     "     LF
    from QUOTED            F     U     U     R      composed in pairs: (" a) and (" LF),
    from FIELD_START       Q     Q     F     R      then both: R from QUOTED, R from F
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from recordmill.transforms.sources.csv.dialect import Dialect
from recordmill.transforms.sources.csv.states import (
    COMMENT,
    ESCAPED,
    FIELD_START,
    QUOTED,
    QUOTED_ESCAPED,
    ROW_START,
    UNQUOTED,
    QuoteState,
    TransitionMap,
    compose,
    is_open,
)

_TAIL_BYTES = 1 << 14
_MAX_PIECE_BYTES = 1 << 20
_IDENTITY: TransitionMap = tuple(QuoteState)
_Numbers = npt.NDArray[np.uint16]


def next_state(state: QuoteState, byte: bytes, dialect: Dialect) -> QuoteState:
    """Returns the state behind a byte."""
    is_row_end = byte in (b"\r", b"\n")
    if state is COMMENT:
        return ROW_START if is_row_end else COMMENT
    if state is ESCAPED:
        return UNQUOTED
    if state is QUOTED_ESCAPED:
        return QUOTED
    if state is QUOTED:
        if byte == dialect.quote:
            return FIELD_START
        return QUOTED_ESCAPED if byte == dialect.escape else QUOTED
    if is_row_end:
        return ROW_START
    if state is ROW_START and byte == dialect.comment:
        return COMMENT
    if byte == dialect.quote:
        return UNQUOTED if state is UNQUOTED else QUOTED
    if byte == dialect.delimiter:
        return FIELD_START
    return ESCAPED if byte == dialect.escape else UNQUOTED


class _Functions:
    """All functions of the states that pieces of a dialect can be.

    Attributes:
      maps: what each function does.
      of_byte: the number of each byte's function.
    """

    def __init__(self, dialect: Dialect) -> None:
        by_byte = [
            tuple(next_state(state, bytes([byte]), dialect) for state in QuoteState)
            for byte in range(256)
        ]
        generators = set(by_byte)
        numbers = {_IDENTITY: 0}
        self.maps = [_IDENTITY]
        for known in self.maps:  # grows meanwhile
            for generator in generators:
                longer = compose(known, generator)
                if longer not in numbers:
                    numbers[longer] = len(self.maps)
                    self.maps.append(longer)
        self.of_byte: _Numbers = np.array([numbers[one] for one in by_byte], np.uint16)
        # Each function as one number with a digit for each state.
        ends = np.array(self.maps, np.int64) - int(FIELD_START)
        digits = 7 ** np.arange(len(QuoteState))
        order = np.argsort(ends @ digits)
        both = ends[:, ends] @ digits  # [second, first]: where second leads from first
        sorted_keys = (ends @ digits)[order]
        self._composed: _Numbers = order[np.searchsorted(sorted_keys, both)].astype(
            np.uint16
        )

    def map_of(self, data: npt.NDArray[np.uint8]) -> TransitionMap:
        """Returns the transition map of some bytes."""
        numbers = self.of_byte[data]
        while len(numbers) > 1:
            if len(numbers) % 2:
                numbers = np.append(numbers, np.uint16(0))
            numbers = self._composed[numbers[1::2], numbers[::2]]
        return self.maps[int(numbers[0])] if len(numbers) else _IDENTITY


@lru_cache(maxsize=8)
def _functions(dialect: Dialect) -> _Functions:
    return _Functions(dialect)


def end_states(block: bytes, first: int, stop: int, dialect: Dialect) -> TransitionMap:
    """Returns the transition map of a part of a block, as quote_states does."""
    functions = _functions(dialect.only_marks)
    ends, size = _IDENTITY, _TAIL_BYTES
    # From the end, as it is there; what is open and what is not are seldom one.
    while stop > first and len(set(ends)) > 1:
        quoted, unquoted = (
            {
                ends[state - FIELD_START]
                for state in QuoteState
                if is_open(state) == open_
            }
            for open_ in (True, False)
        )
        if len(quoted) == len(unquoted) == 1 and (
            not dialect.quote or block.find(dialect.quote, first, stop) < 0
        ):
            break  # nothing before opens a field, or closes one
        start = max(first, stop - size)
        data = np.frombuffer(block, np.uint8, stop - start, start)
        ends = compose(functions.map_of(data), ends)
        stop, size = start, min(2 * size, _MAX_PIECE_BYTES)
    return ends
