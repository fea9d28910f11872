r"""Finds where CSV rows begin and end: row ends and the spans of single rows."""

from __future__ import annotations

from collections.abc import Callable

from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.quote_states import (
    end_state,
)
from recordmill.transforms.sources.csv.row_patterns import row_patterns
from recordmill.transforms.sources.csv.states import (
    FIELD_START,
    ROW_START,
    QuoteState,
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
