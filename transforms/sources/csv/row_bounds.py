r"""Finds where CSV rows begin and end: row ends and the spans of single rows.

RFC 4180: a field that begins with a quote ends with one, a quote inside it is doubled,
and it may hold commas and newlines. A row ends with \n, \r\n or \r. A quote inside
a field that does not begin with one is an ordinary character (see quote_states).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.csv.quote_states import (
    FIELD_START,
    QUOTED,
    UNQUOTED,
    QuoteState,
    end_state,
)

QUOTE = b'"'
BOM = b"\xef\xbb\xbf"
MAX_HEADER_BYTES = 16 << 20
_READ_AHEAD = 1 << 16
_MAX_READ_AHEAD = 16 << 20

Reader = Callable[[int, int], bytes]  # (start, stop) -> bytes, fewer at the end

# Possessive (*+): no way back, so a long field costs neither time nor memory.
_QUOTED = rb'"([^"]*+(?:""[^"]*+)*+)("?+)'
_CELL = re.compile(rb"(?:" + _QUOTED + rb")?+([^,\r\n]*+)")
_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"?+)?+[^,\r\n]*+'
_ROW = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+(\r\n|\r|\n|\Z)")
_REST = rb"(?:," + _FIELD + rb")*+(\r\n|\r|\n)"  # of a row, behind a field
_REST_OF_ROW = {
    FIELD_START: re.compile(_FIELD + _REST),
    UNQUOTED: re.compile(rb"[^,\r\n]*+" + _REST),
    QUOTED: re.compile(rb'[^"]*+(?:""[^"]*+)*+"?+[^,\r\n]*+' + _REST),
}


def row_start(read: Reader, offset: int, state: QuoteState, limit: int) -> int | None:
    r"""Returns the first row start at or behind a byte offset.

    In b'1,"a\nb"\n2,c\n' rows start at 0 and 8; from offset 3, which is inside quotes,
    the first row start is 8.

    Args:
      read: reads bytes of the file.
      offset: where to begin to look.
      state: of the quotes at `offset`.
      limit: how many bytes to search.

    Returns:
      A byte offset; the file's end if no row starts any more. None if neither comes
      within the limit.
    """
    if offset == 0:
        return 0
    begin, size = offset - 1, min(_READ_AHEAD, limit + 1)
    block = read(begin, begin + size)
    if state is FIELD_START and block[:1] in (b"\r", b"\n"):
        return offset + (block[:2] == b"\r\n")
    at = 1
    while True:
        if match := _REST_OF_ROW[state].match(block, at):
            end = begin + match.end()
            cut = match.group(1) == b"\r" and match.end() == len(block)
            return end + (cut and read(end, end + 1) == b"\n")
        state = end_state(block[at:], state)
        begin += len(block)
        if len(block) < size:
            return max(offset, begin)
        if begin - offset >= limit:
            return None
        size = min(2 * size, _MAX_READ_AHEAD, offset + limit - begin)
        block, at = read(begin, begin + size), 0


def row_spans(body: bytes) -> list[tuple[int, int]]:
    """Returns start and end of every row that is not blank, without its newline.

    One regular expression: only for ranges that hold something to reject.
    """
    return [
        (row.start(), row.start(1))
        for row in _ROW.finditer(body)
        if row.start(1) > row.start()
    ]


def read_header(read: Reader, uri: str) -> tuple[tuple[str, ...], int]:
    """Returns the column names and the byte offset of the first row behind them.

    Raises:
      InputError: no header, or one that cannot name features.
    """
    raw, start, end = _first_row(read, uri)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{uri}: the header is not UTF-8 at byte {start + error.start}: "
            f"{raw[error.start : error.start + 8]!r}; convert the file to UTF-8"
        ) from error
    cells = _cells(raw, uri)
    if not any(cells):
        raise InputError(f"{uri}: no header; expected column names in the first row")
    names = tuple(name.strip() or f"column_{index}" for index, name in enumerate(cells))
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"{uri}: the header has column {name!r} {times} times; "
            f"expected column names that differ{_hint(name)}"
        )
    return names, end


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file, or of one before it, which most files repeat.

    Attributes:
      names: of the columns.
      end: byte offset of the first row behind it.
      raw: the file's bytes before that.
    """

    names: tuple[str, ...] = ()
    end: int = 0
    raw: bytes = b""

    def of_file(self, data: bytes, uri: str) -> Header:
        r"""Returns the header of the next file, given all its bytes.

        Raises:
          InputError: as `read_header`.
        """
        # Behind \r a \n might follow.
        if self.raw.endswith(b"\n") and data.startswith(self.raw):
            return self
        names, end = read_header(lambda start, stop: data[start:stop], uri)
        return Header(names, end, data[:end])


def _hint(name: str) -> str:
    """Returns what to do if the name looks like a cell."""
    if not any(character.isdigit() for character in name):
        return ""
    return ". If the table has no header, put a line with column names before it"


def _first_row(read: Reader, uri: str) -> tuple[bytes, int, int]:
    """Returns the bytes of the first row without its newline, its start, the next's."""
    size = _READ_AHEAD
    while True:
        text = read(0, size)
        start = len(BOM) if text.startswith(BOM) else 0
        match = _ROW.match(text, start)
        assert match is not None  # the pattern matches everything, if only ""
        # A row that ends with the text might go on behind it.
        if match.end() < len(text) or len(text) < size:
            return text[start : match.start(1)], start, match.end()
        if size >= MAX_HEADER_BYTES:
            raise InputError(
                f"{uri}: the header does not end in the first {size:,} bytes; is a "
                "quoted column name not closed, or is this not a CSV file?"
            )
        size *= 4


def _cells(row: bytes, uri: str) -> list[str]:
    """Returns the text of each cell of one row."""
    if QUOTE not in row:
        return row.decode().split(",")
    cells = []
    at = 0
    while at <= len(row):
        match = _CELL.match(row, at)
        assert match is not None  # as above
        quoted, closing, rest = match.groups()
        if quoted is not None and not closing:
            raise InputError(f"{uri}: a quoted column name is never closed")
        text = (quoted or b"").replace(b'""', b'"') + rest
        cells.append(text.decode())
        at = match.end() + 1
    return cells
