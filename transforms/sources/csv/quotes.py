r"""Finds the quoted bytes of a CSV file, and the start and end of its rows.

RFC 4180: a field that begins with a quote ends with a quote, and quotes inside it are
doubled. It may contain delimiters and newlines. A row ends with \n, \r\n or \r. Python's
csv module and Arrow follow the same rules. The state before a byte fixes its meaning:

    in ROW_START       # -> COMMENT       others as in FIELD_START
    in FIELD_START     " -> QUOTED        , -> FIELD_START   CR LF -> ROW_START
                       \ -> ESCAPED       other -> UNQUOTED
    in UNQUOTED        " -> UNQUOTED      others as in FIELD_START
    in QUOTED          " -> FIELD_START   \ -> QUOTED_ESCAPED   other -> QUOTED
    in COMMENT         CR LF -> ROW_START    other -> COMMENT
    in ESCAPED         any -> UNQUOTED
    in QUOTED_ESCAPED  any -> QUOTED

(A quote inside an unquoted field is an ordinary character: 5" pipe. A quote that ends a
field leads to FIELD_START, because a further quote would double it. Other bytes after it
belong to the field and are unquoted.) The dialect defines the comma, the quote, the
escape and the comment mark; it can lack the last three.

The state at the start of a block is known only after all blocks before it have been read.
So a block is described by its transition map: an end state for each start state. Maps
compose.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from recordmill.schemas.ranges import RowIssue

ROW_ENDS = b"\r\n"
_MASK_BYTES = b"xyzvw"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The rules that divide the text of CSV files into rows and cells."""

    # the byte between cells; ASCII, so that it cannot be a part of another character; b""
    # until it is detected in the first rows
    delimiter: bytes = b""
    # the byte around cells that contain delimiters or newlines; b"" for none
    quote: bytes = b'"'
    # lines before the header, or before the first row if there is none
    skip_rows: int = 0
    # "first": the first row after `skip_rows`. "none": no header. "auto": the first row,
    # unless it looks like the other rows
    header: str = "auto"
    # column names of a table without header; () to number the columns
    columns: tuple[str, ...] = ()
    # cells that are missing values in every column, in addition to empty cells
    null_values: tuple[str, ...] = ()
    escape: bytes = b""  # the byte before a byte that is taken literally; b"" for none
    # the first byte of comment lines; b"" for none
    comment: bytes = b""
    decimal: str = "."  # decimal separator of numbers: "." or ","

    @property
    def has_header(self) -> bool:
        """Returns whether the first row names the columns."""
        return self.header != "none" and not self.columns

    @property
    def marks(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Returns delimiter, quote, escape and comment mark; b"" if unset."""
        return self.delimiter, self.quote, self.escape, self.comment

    @property
    def field_ends(self) -> bytes:
        """Returns the bytes after which a field begins."""
        return self.delimiter + ROW_ENDS

    @property
    def mask(self) -> bytes:
        """Returns a byte without a meaning in the dialect, to replace others with."""
        marks = b"".join(self.marks)
        return next(bytes([byte]) for byte in _MASK_BYTES if byte not in marks)


RFC_4180 = Dialect(b",")
FIND_DIALECT = Dialect()


class QuoteState(IntEnum):
    """The state before a byte of a CSV file.

    Ranges store 0 instead at the start and at the end of a file.
    """

    FIELD_START = 2
    UNQUOTED = 3
    QUOTED = 4
    ROW_START = 5
    COMMENT = 6
    ESCAPED = 7
    QUOTED_ESCAPED = 8


FIELD_START, UNQUOTED, QUOTED, ROW_START, COMMENT, ESCAPED, QUOTED_ESCAPED = QuoteState
# End states by start state: item i belongs to the i-th member of QuoteState.
TransitionMap = tuple[QuoteState, ...]

_IDENTITY: TransitionMap = tuple(QuoteState)
_TAIL_BYTES = 1 << 10
_MAX_PIECE_BYTES = 1 << 20


def is_open(state: QuoteState) -> bool:
    """Returns whether a quoted field is open."""
    return state in (QUOTED, QUOTED_ESCAPED)


def compose_maps(first: Sequence[QuoteState], second: TransitionMap) -> TransitionMap:
    """Returns the transition map of two consecutive blocks."""
    return tuple(second[end - FIELD_START] for end in first)


def pack_map(ends: TransitionMap) -> int:
    """Packs a transition map into one number, which is never 0.

    >>> hex(pack_map((UNQUOTED, UNQUOTED, QUOTED)))
    '0x433'
    """
    return sum(int(end) << 4 * index for index, end in enumerate(ends))


def unpack_map(number: int) -> TransitionMap:
    """Unpacks the transition map that `pack_map` packed."""
    shifts = range(0, number.bit_length(), 4)
    return tuple(QuoteState(number >> shift & 15) for shift in shifts)


def next_state(state: QuoteState, byte: bytes, dialect: Dialect) -> QuoteState:
    """Returns the state after a byte.

    A state that the dialect does not have is treated like the nearest state that it has.
    """
    is_row_end = byte in (b"\r", b"\n")
    if state is COMMENT and dialect.comment:
        return ROW_START if is_row_end else COMMENT
    if state is ESCAPED and dialect.escape:
        return UNQUOTED
    if is_open(state) and dialect.quote:
        if state is QUOTED_ESCAPED and dialect.escape:
            return QUOTED
        if byte == dialect.quote:
            return FIELD_START
        return QUOTED_ESCAPED if byte == dialect.escape else QUOTED
    if is_row_end:
        return ROW_START
    if state is ROW_START and byte == dialect.comment:
        return COMMENT
    if byte == dialect.quote:
        return QUOTED if state in (FIELD_START, ROW_START) else UNQUOTED
    if byte == dialect.delimiter:
        return FIELD_START
    return ESCAPED if byte == dialect.escape else UNQUOTED


class _Automaton:
    """A table of all transition maps that text of a dialect can have.

    Each byte is a function from states to states. These functions and their compositions
    are at most a few hundred different functions. So composing two of them is one table
    lookup, and n bytes are composed in about log2 n steps:

        bytes                  "     a     "     LF
        from QUOTED            F     U     U     R      composed in pairs: (" a), (" LF),
        from FIELD_START       Q     Q     F     R      then both: R from Q, R from F
    """

    def __init__(self, dialect: Dialect) -> None:
        marks = dialect.field_ends + dialect.quote + dialect.escape + dialect.comment
        by_byte = {
            byte: tuple(
                next_state(state, bytes([byte]), dialect) for state in QuoteState
            )
            for byte in marks + dialect.mask
        }
        generators = set(by_byte.values())
        numbers = {_IDENTITY: 0}
        self.maps = [_IDENTITY]
        for transition_map in self.maps:  # the loop appends to the list
            for generator in generators:
                longer = compose_maps(transition_map, generator)
                if longer not in numbers:
                    numbers[longer] = len(self.maps)
                    self.maps.append(longer)
        self._of_byte = np.full(256, numbers[by_byte[ord(dialect.mask)]], np.uint16)
        for byte, function in by_byte.items():
            self._of_byte[byte] = numbers[function]
        # Encode each function as one number, with a base-7 digit for each state.
        ends = np.array(self.maps, np.int64) - int(FIELD_START)
        keys = ends @ 7 ** np.arange(len(QuoteState))
        composed_keys = ends[:, ends] @ 7 ** np.arange(
            len(QuoteState)
        )  # [second, first]
        order = np.argsort(keys)
        self._composed: npt.NDArray[np.uint16] = order[
            np.searchsorted(keys[order], composed_keys)
        ].astype(np.uint16)

    def transition_map(self, text: npt.NDArray[np.uint8]) -> TransitionMap:
        """Returns the transition map of the bytes."""
        numbers = self._of_byte[text]
        while len(numbers) > 1:
            if len(numbers) % 2:
                numbers = np.append(numbers, np.uint16(0))
            numbers = self._composed[numbers[1::2], numbers[::2]]
        return self.maps[int(numbers[0])] if len(numbers) else _IDENTITY


_automaton = lru_cache(maxsize=8)(_Automaton)


def compute_transition_map(
    block: bytes, first: int = 0, stop: int | None = None, dialect: Dialect = RFC_4180
) -> TransitionMap:
    """Returns the transition map of a part of a block.

    >>> [state.name for state in compute_transition_map(b'5" pipe,"a')[:3]]
    ['QUOTED', 'QUOTED', 'QUOTED']
    >>> [state.name for state in compute_transition_map(b"pipe,a")[:3]]
    ['UNQUOTED', 'UNQUOTED', 'QUOTED']
    """
    automaton, quote = _automaton(dialect), dialect.quote
    stop, size = len(block) if stop is None else stop, _TAIL_BYTES
    ends = _IDENTITY
    # Read backwards from the end. Usually a few fields lead from all states to one state,
    # or from quoted states to one and from the others to another; then earlier bytes do
    # not matter.
    while stop > first and len(set(ends)) > 1:
        pairs = {(is_open(s), end) for s, end in zip(QuoteState, ends, strict=True)}
        if len(pairs) == 2 and quote and block.find(quote, first, stop) < 0:
            break
        start = max(first, stop - size)
        text = np.frombuffer(block, np.uint8, stop - start, start)
        ends = compose_maps(automaton.transition_map(text), ends)
        stop, size = start, min(4 * size, _MAX_PIECE_BYTES)
    return ends


def compute_end_state(
    block: bytes,
    start: QuoteState = ROW_START,
    dialect: Dialect = RFC_4180,
    stop: int | None = None,
) -> QuoteState:
    """Returns the state after a block, or after its part before `stop`."""
    return compute_transition_map(block, 0, stop, dialect)[start - FIELD_START]


@dataclass(frozen=True, slots=True)
class RowPatterns:
    """The regular expressions of one dialect."""

    row: re.Pattern[bytes]  # a row or a comment, with its line end as group 1
    # a cell, with three groups: the quoted part, the closing quote, the part after it
    cell: re.Pattern[bytes]
    cell_bytes: bytes  # a cell, as the text of a pattern
    # a doubled quote, or an escape with the byte after it as group 1
    quote_or_escape: re.Pattern[bytes]
    # consecutive comment lines as group 1, or consecutive rows with their line ends
    comments: re.Pattern[bytes]
    before_rows: re.Pattern[bytes]  # comments and blank lines


@lru_cache(maxsize=64)
def row_patterns(dialect: Dialect) -> RowPatterns:
    """Returns the regular expressions of a dialect."""
    delimiter_byte, quote_byte, escape_byte, comment_byte = dialect.marks
    delimiter, quote = re.escape(delimiter_byte), re.escape(quote_byte)
    # Possessive (*+): no backtracking, so a long field costs little time and memory.
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
        field, cell = plain, rb"(?:(\Z\A)(\Z\A))?+(%b)" % plain
    row = plain_row = rb"%b(?:%b%b)*+" % (field, delimiter, field)
    comment = rb"%b[^\r\n]*+" % re.escape(comment_byte)
    if comment_byte:
        row = rb"(?:%b|%b)" % (comment, row)
    end = rb"(?:\r\n|\r|\n)"
    some_rows = rb"(?:(?!%b)%b%b)++" % (re.escape(comment_byte), plain_row, end)
    return RowPatterns(
        row=re.compile(row + rb"(\r\n|\r|\n|\Z)"),
        cell=re.compile(cell),
        cell_bytes=field,
        quote_or_escape=re.compile(meaning),
        comments=re.compile(rb"((?:%b(?:%b|\Z))++)|%b" % (comment, end, some_rows)),
        before_rows=re.compile(rb"(?:%b%b|[\r\n]++)*+" % (comment, end)),
    )


BOM = b"\xef\xbb\xbf"
_READ_AHEAD = 1 << 16
_MAX_READ_AHEAD = 16 << 20

Reader = Callable[[int, int], bytes]  # (start, stop) -> bytes, fewer at the file's end


def find_row_start(
    read: Reader,
    offset: int,
    state: QuoteState,
    limit: int,
    dialect: Dialect = RFC_4180,
) -> int | None:
    r"""Returns the first row start at or after an offset.

    In b'1,"a\nb"\n2,c\n' rows start at 0 and 8. From offset 3, which is inside quotes,
    the first row start is 8.

    Args:
      read: Reader of the file.
      offset: Byte offset in the file.
      state: State before the byte at the offset.
      limit: Maximum number of bytes to search.
      dialect: Dialect of the file.

    Returns:
      The byte offset, the end of the file if no further row starts, or None if the
        limit is reached first.
    """
    if offset == 0:
        return 0
    begin, size = offset - 1, min(_READ_AHEAD, limit + 1)
    block = read(begin, begin + size)
    if state in (FIELD_START, ROW_START) and block[:1] in (b"\r", b"\n"):
        return offset + (block[:2] == b"\r\n")
    at, mask, quote = 1, dialect.mask, dialect.quote or dialect.mask
    starts = {  # bytes that lead from the start of a row to each state
        FIELD_START: dialect.delimiter,
        UNQUOTED: mask,
        QUOTED: quote,
        ROW_START: b"",
        COMMENT: dialect.comment or mask,
        ESCAPED: dialect.escape or mask,
        QUOTED_ESCAPED: quote + dialect.escape,
    }
    while True:
        prefix = starts[state]
        match = row_patterns(dialect).row.match(prefix + block[at:])
        if match and match[1]:
            end = begin + at + match.end() - len(prefix)
            cut = match[1] == b"\r" and end == begin + len(block)
            return end + (cut and read(end, end + 1) == b"\n")
        state = compute_end_state(block[at:], state, dialect)
        begin += len(block)
        if len(block) < size:
            return max(offset, begin)
        if begin - offset >= limit:
            return None
        size = min(2 * size, _MAX_READ_AHEAD, offset + limit - begin)
        block, at = read(begin, begin + size), 0


def find_row_spans(body: bytes, dialect: Dialect = RFC_4180) -> list[tuple[int, int]]:
    """Returns start and end of every row, without its newline.

    Blank lines and comments are skipped. This is slow: only for ranges with rejects.
    """
    mark = ord(dialect.comment or b"\n")  # no row begins with a newline
    return [
        (row.start(), row.start(1))
        for row in row_patterns(dialect).row.finditer(body)
        if row.start(1) > row.start() and body[row.start()] != mark
    ]


_COMMENTS = "comments"  # code of the row issue
_SHOWN_BYTES = 40  # maximum length of a comment in the issue


def remove_comments(
    body: bytes, dialect: Dialect
) -> tuple[bytes, tuple[RowIssue, ...]]:
    """Removes comment lines; returns the other rows and an issue with their number.

    The body must begin with a whole row; its last row may be incomplete.
    """
    mark = dialect.comment
    if not mark or not (
        body.startswith(mark) or b"\n" + mark in body or b"\r" + mark in body
    ):
        return body, ()
    rows, end, lines, example = [], 0, 0, b""
    for match in row_patterns(dialect).comments.finditer(body):
        if match.start() != end:  # a row without a line end follows
            break
        end = match.end()
        if match.start(1) < 0:
            rows.append(match[0])
        else:
            comment_lines = match[1].splitlines()
            lines, example = lines + len(comment_lines), example or comment_lines[0]
    if not lines:
        return body, ()
    rows.append(body[end:])
    shown_comment = example[:_SHOWN_BYTES].decode(errors="replace")
    return b"".join(rows), (RowIssue(_COMMENTS, "", lines, shown_comment),)


def report_comments(issues: tuple[RowIssue, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the fact about comment lines for the input report, or ()."""
    return tuple(
        ("comment lines", f"{issue.count:,} left out, such as {issue.example!r}")
        for issue in issues
        if issue.code == _COMMENTS
    )


MAX_ROW_BYTES = 256 << 20  # a longer row probably has an unbalanced quote
# A field that is open at the end of the file, and has at most this size, is rejected as a
# whole: the file may be truncated. A larger field probably has an unbalanced quote.
UNCLOSED_BYTES = 16 << 20
KEPT_BYTES = 1 << 16  # stored in the reject for a row of more than MAX_ROW_BYTES
_BLOCK_BYTES = 16 << 20
_NOTHING_ESCAPED = "the file ends after an escape character: it may be cut short"


@dataclass(frozen=True)
class RowBlock:
    """A sequence of whole rows of a file."""

    text: bytes  # bytes of the rows; a quote that is never closed is masked
    begin: int  # byte offset of the first row in the text of the file
    dialect: Dialect  # dialect of the file
    unclosed_quote: int = -1  # byte offset of the masked quote in the file, or -1
    is_whole: bool = True  # whether the last row ends at the end of the text

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Returns start and end of each row in the text."""
        return find_row_spans(self.text, self.dialect)

    def row_at(self, offset: int) -> int:
        """Returns the ordinal of the row that contains the byte at an offset."""
        return bisect_right(self.spans, offset, key=itemgetter(0)) - 1

    def row(self, ordinal: int) -> tuple[int, bytes]:
        """Returns byte offset in the file and bytes of a row, shortened if too long."""
        start, end = self.spans[ordinal]
        raw, quote = self.text[start:end], self.unclosed_quote - self.begin - start
        if 0 <= quote < len(raw):
            raw = raw[:quote] + self.dialect.quote + raw[quote + 1 :]
        if len(raw) > MAX_ROW_BYTES or (
            not self.is_whole and ordinal == len(self.spans) - 1
        ):
            raw = raw[:KEPT_BYTES]
        return self.begin + start, raw


def find_broken_rows(read: Reader, body: RowBlock) -> dict[int, str]:
    """Returns the rows whose end cannot be found, with the reasons to reject them.

    Args:
      read: Reader of the file, without masking.
      body: The rows, as they are split.
    """
    broken, quotes = {}, []
    text, dialect, begin = body.text, body.dialect, body.begin
    state = compute_end_state(text, dialect=dialect)
    if body.is_whole and is_open(state):
        quotes.append(
            find_unclosed_quote(create_memory_reader(text), len(text), dialect)
        )
    elif body.is_whole and state is ESCAPED:
        broken[len(body.spans) - 1] = _NOTHING_ESCAPED
    elif not body.is_whole or len(text) > MAX_ROW_BYTES:
        start, end = body.spans[-1]
        if not body.is_whole or end - start > MAX_ROW_BYTES:
            broken[len(body.spans) - 1] = (
                f"the row that begins at line {count_lines(read, begin + start)} has more "
                f"than {MAX_ROW_BYTES:,} bytes, of which the first {KEPT_BYTES:,} are "
                "kept: is a quoted field not closed?"
            )
    if 0 <= (at := body.unclosed_quote - begin) < len(text):
        quotes.append(at)
    for at in quotes:
        line = count_lines(read, begin + at)
        reason = f"a quoted field is never closed; it opens at line {line}"
        broken[body.row_at(at)] = reason
    return broken


def create_memory_reader(text: bytes) -> Reader:
    """Returns a reader of bytes in memory."""
    return lambda start, stop: text[start:stop]


def create_masked_reader(
    read: Reader, offset: int, dialect: Dialect = RFC_4180
) -> Reader:
    """Returns a reader that masks the quote at a byte offset; -1 masks none.

    A masked quote is replaced by an ordinary character.
    """
    if offset < 0:
        return read
    return lambda start, stop: mask_quote(read(start, stop), offset - start, dialect)


def mask_quote(text: bytes, at: int, dialect: Dialect) -> bytes:
    """Replaces the quote at an offset by an ordinary byte if the offset is inside."""
    if not 0 <= at < len(text):
        return text
    return b"".join((text[:at], dialect.mask, text[at + 1 :]))


def find_unclosed_quote(read: Reader, stop: int, dialect: Dialect = RFC_4180) -> int:
    """Returns the offset of the quote whose field is still open at the offset `stop`.

    Inside that field quotes occur in pairs, otherwise they would close it. So the quote
    is the first one of the last run of consecutive quotes whose number is odd:

        a,"b ""c"" d    ->    1 quote, 2 quotes, 2 quotes: the one before b
    """
    quote = dialect.quote
    if dialect.escape:
        read = _create_unescaped_reader(read, dialect)
    quotes = b""  # quotes at the start of the next block
    while stop > 0:
        start = max(0, stop - _BLOCK_BYTES)
        block = read(start, stop) + quotes
        offsets = np.flatnonzero(np.frombuffer(block, np.uint8) == ord(quote))
        run_starts = np.flatnonzero(
            np.diff(offsets, prepend=-2) > 1
        )  # start of each run
        lengths = np.diff(run_starts, append=len(offsets))
        quotes = b""
        if start and len(offsets) and offsets[0] == 0:
            quotes = quote * int(lengths[0])  # the run may start in the previous block
            run_starts, lengths = run_starts[1:], lengths[1:]
        odd_runs = run_starts[lengths % 2 == 1]
        if len(odd_runs):
            return start + int(offsets[odd_runs[-1]])
        stop = start
    raise ValueError("no quoted field is open there")


def _create_unescaped_reader(read: Reader, dialect: Dialect) -> Reader:
    """Returns a reader that replaces escapes and escaped bytes by ordinary bytes."""
    escape = dialect.escape
    pair = re.compile(re.escape(escape) + rb"[\s\S]")
    filler = dialect.mask * 2

    def read_masked(start: int, stop: int) -> bytes:
        preceding_bytes, size = b"", 64
        while start > len(preceding_bytes) and len(
            preceding_bytes
        ) == preceding_bytes.count(escape):
            preceding_bytes = read(max(0, start - size), start)
            size *= 2
        escapes = len(preceding_bytes) - len(preceding_bytes.rstrip(escape))
        # The last escape before `start` may escape the first byte.
        text = escape * (escapes % 2) + read(start, stop)
        return pair.sub(filler, text)[escapes % 2 :]

    return read_masked


def count_lines(read: Reader, offset: int) -> int:
    """Returns the line number, from 1, of a byte offset."""
    line, start = 1, 0
    while start < offset:
        block = read(start, min(start + _BLOCK_BYTES, offset))
        if not block:
            break
        start += len(block)
        line += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
        if block.endswith(b"\r") and read(start, start + 1) == b"\n":
            line -= 1  # the next block counts this line end
    return line
