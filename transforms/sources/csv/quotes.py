"""Defines the states that a byte of a CSV file can be in, and maps between them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt

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


# An escape character takes the meaning of the byte behind it, inside and outside quotes. A
# comment begins where a row could, and ends with its line; nothing else has a meaning in it:
#
#     in ROW_START       # -> COMMENT    others as in FIELD_START
#     in FIELD_START     " -> QUOTED       , -> FIELD_START   CR LF -> ROW_START
#                        \ -> ESCAPED      other -> UNQUOTED
#     in UNQUOTED        " -> UNQUOTED     others as in FIELD_START
#     in QUOTED          " -> FIELD_START  \ -> QUOTED_ESCAPED    other -> QUOTED
#     in COMMENT         CR LF -> ROW_START    other -> COMMENT
#     in ESCAPED         any -> UNQUOTED
#     in QUOTED_ESCAPED  any -> QUOTED
#
# Each byte is a function of seven states. There are at most 474 different ones that such
# functions and their compositions can be, so "first, then second" is one look into a table,
# and a row of n bytes is composed in about log2 n steps:
#
#     bytes                  "     a     "     LF
#     from QUOTED            F     U     U     R      composed in pairs: (" a) and (" LF),
#     from FIELD_START       Q     Q     F     R      then both: R from QUOTED, R from F

_MARKED_TAIL_BYTES = 1 << 14
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


def marked_end_states(
    block: bytes, first: int, stop: int, dialect: Dialect
) -> TransitionMap:
    """Returns the transition map of a part of a block, as quote_states does."""
    functions = _functions(dialect.only_marks)
    ends, size = _IDENTITY, _MARKED_TAIL_BYTES
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


# Each byte is in one of three states, which fix what the next byte means:
#
#     FIELD_START  a quote opens a quoted field here, or is the second of a doubled one
#     UNQUOTED     a quote is an ordinary character: 5" pipe
#     QUOTED       all but a quote is an ordinary character
#
#     in FIELD_START  " -> QUOTED       , CR LF -> FIELD_START   other -> UNQUOTED
#     in UNQUOTED     " -> UNQUOTED     , CR LF -> FIELD_START   other -> UNQUOTED
#     in QUOTED       " -> FIELD_START  , CR LF -> QUOTED        other -> QUOTED
#
# (A quote that ends a field leads to FIELD_START: a further quote would double it. What
# else is behind it belongs to the field, unquoted.) Python's csv module and Arrow read
# the same. Where a block begins is known only after all blocks before it were read, so
# a block is described by its transition map, which has an end state for each start state.
# Maps compose, stray quotes included. The comma and the quote are those of the dialect;
# without a quote every map leads to one state. Where it also has escapes or comments,
# `marked_states` takes over.

_TAIL_BYTES = 1 << 16

# Only quotes and the bytes before them matter. Before a quote the field is bare, has
# just been closed, or is quoted: states 0, 1, 2 of a function that has three kinds.
_BARE, _CLOSED, _OPEN = range(3)
_Function = tuple[int, ...]  # three of them
_STRAY: _Function = (_BARE, _BARE, _CLOSED)  # behind an ordinary character
_AT_START: _Function = (_OPEN, _OPEN, _CLOSED)  # behind a comma or a row's end
_ADJACENT: _Function = (_BARE, _OPEN, _CLOSED)  # behind a quote
_QUOTE_IDENTITY: _Function = (_BARE, _CLOSED, _OPEN)


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
            codes = np.append(codes, np.uint8(_code(_QUOTE_IDENTITY)))
        codes = _COMPOSED[codes.view("<u2")]
    code = int(codes[0]) if len(codes) else _code(_QUOTE_IDENTITY)
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
        return marked_end_states(block, first, stop, dialect)
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


# RFC 4180: a field that begins with a quote ends with one, a quote inside it is doubled,
# and it may hold delimiters and newlines. A row ends with \n, \r\n or \r. A quote inside
# a field that does not begin with one is an ordinary character (see quote_states).
# Behind an escape character any byte is ordinary, and a row that begins with the mark of
# comments is none (see marked_states).


@dataclass(frozen=True, slots=True)
class RowPatterns:
    """The patterns of one dialect.

    Attributes:
      row: a row or a comment with its end, which is group 1.
      cell: a cell: what is quoted, the closing quote, what is behind it.
      cell_bytes: a cell, as the text of a pattern.
      meaning: a doubled quote, or an escape with the byte behind it, which is group 1.
      rest_of_row: what is behind a state of the quotes, with the row's end as group 1.
      comments: some lines of comments, as group 1; or some rows with their ends.
      before_rows: comments and blank lines.
    """

    row: re.Pattern[bytes]
    cell: re.Pattern[bytes]
    cell_bytes: bytes
    meaning: re.Pattern[bytes]
    rest_of_row: dict[QuoteState, re.Pattern[bytes]]
    comments: re.Pattern[bytes]
    before_rows: re.Pattern[bytes]


def row_patterns(dialect: Dialect) -> RowPatterns:
    """Returns the patterns of a dialect."""
    marks = (dialect.delimiter, dialect.quote, dialect.escape, dialect.comment)
    return _patterns(*marks)


@lru_cache(maxsize=64)
def _patterns(
    delimiter_byte: bytes, quote_byte: bytes, escape_byte: bytes, comment_byte: bytes
) -> RowPatterns:
    delimiter, quote = re.escape(delimiter_byte), re.escape(quote_byte)
    # Possessive (*+): no way back, so a long field costs neither time nor memory.
    plain = rb"[^%b\r\n]*+" % delimiter
    inside = rb"[^%b]*+(?:%b%b[^%b]*+)*+" % (quote, quote, quote, quote)
    meaning = quote * 2 + rb"(\Z\A)?"
    if escape_byte:
        escape = re.escape(escape_byte)
        pair = rb"%b(?:[\s\S]|\Z)" % escape
        plain = rb"(?:[^%b\r\n%b]++|%b)*+" % (delimiter, escape, pair)
        inside = rb"(?:[^%b%b]++|%b%b|%b)*+" % (quote, escape, quote, quote, pair)
        meaning = rb"%b%b|%b([\s\S])" % (quote, quote, escape)
        if not quote:
            meaning = rb"%b([\s\S])" % escape
    field = rb"(?:%b%b%b?+)?+%b" % (quote, inside, quote, plain)
    cell = rb"(?:%b(%b)(%b?+))?+(%b)" % (quote, inside, quote, plain)
    if not quote:
        field, inside, cell = plain, b"", rb"(?:(\Z\A)(\Z\A))?+(%b)" % plain
    more = rb"(?:%b%b)*+" % (delimiter, field)
    rest = more + rb"(\r\n|\r|\n)"
    quoted = rb"%b%b?+%b" % (inside, quote, plain) if quote else plain
    row = field + more
    comment = rb"%b[^\r\n]*+" % re.escape(comment_byte)
    if comment_byte:
        row = rb"(?:%b|%b)" % (comment, row)
    end = rb"(?:\r\n|\r|\n)"
    some_rows = rb"(?:(?!%b)%b%b%b)++" % (re.escape(comment_byte), field, more, end)
    return RowPatterns(
        row=re.compile(row + rb"(\r\n|\r|\n|\Z)"),
        cell=re.compile(cell),
        cell_bytes=field,
        meaning=re.compile(meaning),
        rest_of_row={
            FIELD_START: re.compile(field + rest),
            UNQUOTED: re.compile(plain + rest),
            QUOTED: re.compile(quoted + rest),
            ROW_START: re.compile(row + rb"(\r\n|\r|\n)"),
            COMMENT: re.compile(rb"[^\r\n]*+(\r\n|\r|\n)"),
            ESCAPED: re.compile(rb"[\s\S]" + plain + rest),
            QUOTED_ESCAPED: re.compile(rb"[\s\S]" + quoted + rest),
        },
        comments=re.compile(rb"((?:%b(?:%b|\Z))++)|%b" % (comment, end, some_rows)),
        before_rows=re.compile(rb"(?:%b%b|[\r\n]++)*+" % (comment, end)),
    )


BOM = b"\xef\xbb\xbf"
_READ_AHEAD = 1 << 16
_MAX_READ_AHEAD = 16 << 20

Reader = Callable[[int, int], bytes]  # (start, stop) -> bytes, fewer at the end


def row_start(
    read: Reader,
    offset: int,
    state: QuoteState,
    limit: int,
    dialect: Dialect = RFC_4180,
) -> int | None:
    r"""Returns the first row start at or behind a byte offset.

    In b'1,"a\nb"\n2,c\n' rows start at 0 and 8; from offset 3, which is inside quotes,
    the first row start is 8.

    Args:
      read: reads bytes of the file.
      offset: where to begin to look.
      state: of the quotes at `offset`.
      limit: how many bytes to search.
      dialect: of the file.

    Returns:
      A byte offset; the file's end if no row starts any more. None if neither comes
      within the limit.
    """
    if offset == 0:
        return 0
    begin, size = offset - 1, min(_READ_AHEAD, limit + 1)
    block = read(begin, begin + size)
    if state in (FIELD_START, ROW_START) and block[:1] in (b"\r", b"\n"):
        return offset + (block[:2] == b"\r\n")
    at = 1
    rest_of_row = row_patterns(dialect).rest_of_row
    while True:
        if match := rest_of_row[state].match(block, at):
            end = begin + match.end()
            cut = match.group(1) == b"\r" and match.end() == len(block)
            return end + (cut and read(end, end + 1) == b"\n")
        state = end_state(block[at:], state, dialect)
        begin += len(block)
        if len(block) < size:
            return max(offset, begin)
        if begin - offset >= limit:
            return None
        size = min(2 * size, _MAX_READ_AHEAD, offset + limit - begin)
        block, at = read(begin, begin + size), 0


def row_spans(body: bytes, dialect: Dialect = RFC_4180) -> list[tuple[int, int]]:
    """Returns start and end of every row, without its newline.

    Blank lines and comments are no rows.

    One regular expression: only for ranges that hold something to reject.
    """
    spans = [
        (row.start(), row.start(1))
        for row in row_patterns(dialect).row.finditer(body)
        if row.start(1) > row.start()
    ]
    if dialect.comment:
        mark = ord(dialect.comment)
        return [span for span in spans if body[span[0]] != mark]
    return spans


MAX_ROW_BYTES = 256 << 20  # of one row; beyond, a quote is missing or one too many
# A field that is open at the file's end and has no more bytes than this is rejected
# with all of them: the file may have been cut off. In a larger one a quote is wrong.
UNCLOSED_BYTES = 16 << 20
KEPT_BYTES = 1 << 16  # of a row that is longer than a row may be
_BLOCK_BYTES = 16 << 20
_NOTHING_ESCAPED = "the file ends behind an escape character: it may be cut short"


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row without an end of its own, which is rejected.

    Attributes:
      at: offset of a byte of it in the body that is read; that of the quote that is
        not closed, if there is one.
      reason: for the reject.
      quote: that byte, if it is a quote, which may be masked; else b"".
      max_bytes: how much of the row is kept.
    """

    at: int
    reason: str
    quote: bytes
    max_bytes: int | None = None

    def raw(self, body: bytes, start: int, end: int) -> bytes:
        """Returns the row's bytes as they are in the file."""
        raw = body[start:end][: self.max_bytes]
        if not self.quote:
            return raw
        return raw[: self.at - start] + self.quote + raw[self.at - start + 1 :]


def find_broken_rows(
    read: Reader,
    part: bytes,
    begin: int,
    unclosed: int,
    dialect: Dialect = RFC_4180,
    *,
    is_whole: bool = True,
) -> list[BrokenRow]:
    """Returns the rows of a part that have no end of their own.

    Args:
      read: reads bytes of the file as they are.
      part: rows, as they are split.
      begin: byte offset of the part in the file.
      unclosed: byte offset of the quote that is masked there, or -1.
      dialect: of the file.
      is_whole: whether the last row ends with the part.
    """
    broken = []
    quote = dialect.quote
    state = end_state(part, dialect=dialect)
    if is_whole and is_open(state):
        at = unclosed_quote(lambda start, stop: part[start:stop], len(part), dialect)
        broken.append(BrokenRow(at, _never_closed(read, begin + at), quote))
    elif is_whole and state is ESCAPED:
        broken.append(BrokenRow(len(part) - 1, _NOTHING_ESCAPED, b""))
    elif not is_whole or len(part) > MAX_ROW_BYTES:
        start, end = row_spans(part, dialect)[-1]
        if not is_whole or end - start > MAX_ROW_BYTES:
            reason = _too_long(read, begin + start)
            broken.append(BrokenRow(start, reason, b"", KEPT_BYTES))
    if 0 <= unclosed - begin < len(part):
        reason = _never_closed(read, unclosed)
        broken.append(BrokenRow(unclosed - begin, reason, quote))
    return broken


def masked(read: Reader, offset: int, dialect: Dialect = RFC_4180) -> Reader:
    """Returns a reader for which the quote at a byte offset is an ordinary character.

    The offset -1 masks none.
    """
    if offset < 0:
        return read

    def read_masked(start: int, stop: int) -> bytes:
        data = read(start, stop)
        at = offset - start
        if not 0 <= at < len(data):
            return data
        return b"".join((data[:at], dialect.mask, data[at + 1 :]))

    return read_masked


def unclosed_quote(read: Reader, stop: int, dialect: Dialect = RFC_4180) -> int:
    """Returns the offset of the quote whose field is still open at a byte offset.

    Inside that field quotes come in pairs, or it would be closed; so the quote is the
    first of the last row of quotes that is odd in number:

        a,"b ""c"" d    ->    1 quote, 2 quotes, 2 quotes: the one before b

    Args:
      read: reads bytes of the file.
      stop: where a quoted field is open.
      dialect: of the file.
    """
    quote = dialect.quote
    if dialect.escape:
        read = _without_escapes(read, dialect)
    quotes = b""  # those that the block behind begins with
    while stop > 0:
        start = max(0, stop - _BLOCK_BYTES)
        block = read(start, stop) + quotes
        offsets = np.flatnonzero(np.frombuffer(block, np.uint8) == ord(quote))
        first = np.flatnonzero(np.diff(offsets, prepend=-2) > 1)  # of each row of them
        lengths = np.diff(first, append=len(offsets))
        quotes = b""
        if start and len(offsets) and offsets[0] == 0:
            quotes = quote * int(lengths[0])  # more of them may be before it
            first, lengths = first[1:], lengths[1:]
        odd = first[lengths % 2 == 1]
        if len(odd):
            return start + int(offsets[odd[-1]])
        stop = start
    raise ValueError("no quoted field is open there")


def _without_escapes(read: Reader, dialect: Dialect) -> Reader:
    """Returns a reader to which escapes, and what they escape, are ordinary."""
    escape = dialect.escape
    pair = re.compile(re.escape(escape) + rb"[\s\S]")
    filler = dialect.mask * 2

    def read_masked(start: int, stop: int) -> bytes:
        before, size = b"", 64
        while start > len(before) and len(before) == before.count(escape):
            before = read(max(0, start - size), start)
            size *= 2
        escapes = len(before) - len(before.rstrip(escape))
        # The last one before may escape the first byte here.
        text = escape * (escapes % 2) + read(start, stop)
        return pair.sub(filler, text)[escapes % 2 :]

    return read_masked


def line_of(read: Reader, offset: int) -> int:
    """Returns the number, from 1, of the line that a byte offset is in."""
    line, start = 1, 0
    while start < offset:
        block = read(start, min(start + _BLOCK_BYTES, offset))
        if not block:
            break
        start += len(block)
        line += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
        if block.endswith(b"\r") and read(start, start + 1) == b"\n":
            line -= 1  # the next block counts it
    return line


def _never_closed(read: Reader, offset: int) -> str:
    """Returns the reason for the reject of a row with a quote that is never closed."""
    line = line_of(read, offset)
    return f"a quoted field is never closed; it opens at line {line}"


def _too_long(read: Reader, offset: int) -> str:
    """Returns the reason for the reject of a row that is longer than a row may be."""
    return (
        f"the row that begins at line {line_of(read, offset)} has more than "
        f"{MAX_ROW_BYTES:,} bytes, of which the first {KEPT_BYTES:,} are kept: is a "
        "quoted field not closed?"
    )
