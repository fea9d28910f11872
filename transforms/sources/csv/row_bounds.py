"""Where CSV rows begin and end: quotes, row ends and the spans of single rows.

RFC 4180: a field that begins with a quote ends with one, a quote inside it is doubled,
and it may hold commas and newlines. So before a row's end the quotes are even in
number, and the parity of a block's quotes tells how the next block begins. A row ends
with \\n, \\r\\n or \\r. A quote inside a field that does not begin with one is an
ordinary character.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from recordmill.schemas.errors import InputError

QUOTE = b'"'
BOM = b"\xef\xbb\xbf"
MAX_ROW_BYTES = 256 << 20  # of one row; beyond, a quote is missing or one too many
MAX_HEADER_BYTES = 16 << 20
_LOOK_AHEAD = 1 << 16
_MAX_LOOK_AHEAD = 16 << 20

Reader = Callable[[int, int], bytes]  # (start, stop) -> bytes, fewer at the end

# Possessive (*+): no way back, so a long field costs neither time nor memory.
_QUOTED = rb'"([^"]*+(?:""[^"]*+)*+)("?+)'
_CELL = re.compile(rb"(?:" + _QUOTED + rb")?+([^,\r\n]*+)")
_FIELD = rb'(?:"[^"]*+(?:""[^"]*+)*+"?+)?+[^,\r\n]*+'
_LAST_QUOTED = re.compile(
    rb"(?:" + _FIELD + rb",)*+(?:" + _QUOTED + rb")?+[^,\r\n]*+\Z"
)
_ROW = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*+(\r\n|\r|\n|\Z)")
_QUOTE_OR_END = re.compile(rb'["\r\n]')


def row_start(read: Reader, offset: int, quoted: bool, uri: str = "") -> int:
    """The first row start at or behind a byte offset.

    Args:
      read: reads bytes of the file.
      offset: where to begin to look.
      quoted: whether the quotes before `offset` are odd in number.
      uri: the file, for errors.

    Returns:
      A byte offset; the file's end if no row starts any more.

    Raises:
      InputError: no row ends within MAX_ROW_BYTES.
    """
    if offset == 0:
        return 0
    place, size = offset - 1, _LOOK_AHEAD
    at = 1  # the byte before the offset counts as a row's end, not as a quote
    block = read(place, place + size)
    if not quoted and block[:1] in (b"\r", b"\n"):
        at = 0
    while True:
        while at < len(block):
            if quoted:
                at = block.find(QUOTE, at)
                found = QUOTE if at >= 0 else b""
            else:
                match = _QUOTE_OR_END.search(block, at)
                at, found = (match.start(), match.group()) if match else (-1, b"")
            if not found:
                break
            at += 1
            if found == b"\r":
                following = block[at : at + 1] or read(place + at, place + at + 1)
                return place + at + (following == b"\n")
            if found == b"\n":
                return place + at
            quoted = not quoted
        place += len(block)
        if len(block) < size:
            return max(offset, place)
        if place - offset >= MAX_ROW_BYTES:
            raise InputError(
                f"{uri}: no row ends in the {MAX_ROW_BYTES:,} bytes from byte {offset} "
                "on; is a quoted field not closed, or does a quote stand in a field "
                "that is not quoted?"
            )
        size = min(2 * size, _MAX_LOOK_AHEAD, offset + MAX_ROW_BYTES - place)
        block, at = read(place, place + size), 0


def row_spans(body: bytes) -> list[tuple[int, int]]:
    """Start and end of every row that is not blank, without the row's newline.

    One regular expression: only for ranges that hold something to reject.
    """
    return [
        (row.start(), row.start(1))
        for row in _ROW.finditer(body)
        if row.start(1) > row.start()
    ]


def is_open(row: bytes) -> bool:
    """Whether a row, without its newline, ends inside a quoted field."""
    match = _LAST_QUOTED.match(row)
    assert match is not None  # as above
    return match.group(2) == b""


def read_header(read: Reader, uri: str) -> tuple[tuple[str, ...], int]:
    """Column names and the byte offset of the first row behind the header.

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
    names = tuple(name.strip() or f"column_{place}" for place, name in enumerate(cells))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(
            f"{uri}: the header names column {twice[0]!r} {names.count(twice[0])} times; "
            "features need names that differ"
        )
    return names, end


def _first_row(read: Reader, uri: str) -> tuple[bytes, int, int]:
    """The bytes of the first row without its newline, its start, the next one's."""
    size = _LOOK_AHEAD
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
                "quoted column name not closed, or is this no CSV file?"
            )
        size *= 4


def _cells(row: bytes, uri: str) -> list[str]:
    """The text of each cell of one row."""
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
