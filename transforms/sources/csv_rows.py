"""Where CSV rows begin and end: quotes, row ends and the spans of single rows.

RFC 4180: a field that begins with a quote ends with one, a quote inside it is doubled,
and it may hold commas and newlines. So before a row's end the quotes are even in
number, and the parity of a block's quotes tells how the next block begins.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable

from schemas.errors import InputError

QUOTE = b'"'
BOM = b"\xef\xbb\xbf"
_LOOK_AHEAD = 1 << 16

Reader = Callable[[int, int], bytes]  # (start, stop) -> bytes, fewer at the end

_FIELD = rb'(?:"(?:[^"]|"")*(?:"[^,\r\n]*|\Z)|[^",\r\n][^,\r\n]*|)'
_ROW = re.compile(_FIELD + rb"(?:," + _FIELD + rb")*(?:\r\n|\r|\n|\Z)")


def row_start(read: Reader, offset: int, quoted: bool) -> int:
    """The first row start at or behind a byte offset.

    Args:
      read: reads bytes of the file.
      offset: where to begin to look; above 0.
      quoted: whether the quotes before `offset` are odd in number.

    Returns:
      A byte offset; the file's end if no row starts any more.
    """
    if not quoted and read(offset - 1, offset) == b"\n":
        return offset
    place = offset
    size = _LOOK_AHEAD
    while True:
        block = read(place, place + size)
        at = 0
        while at < len(block):
            quote = block.find(QUOTE, at)
            if not quoted:
                newline = block.find(b"\n", at, quote if quote >= 0 else len(block))
                if newline >= 0:
                    return place + newline + 1
            if quote < 0:
                break
            quoted = not quoted
            at = quote + 1
        place += len(block)
        if len(block) < size:
            return place
        size *= 2


def row_spans(body: bytes) -> list[tuple[int, int]]:
    """Start and end of every row that is not blank, without the row's newline.

    One regular expression, 50 MB/s: only for ranges that hold something to reject.
    """
    spans = []
    place = 0
    while place < len(body):
        match = _ROW.match(body, place)
        assert match is not None  # the pattern matches everything, if only ""
        end = match.end()
        text = match.group()
        content = len(text.rstrip(b"\r\n")) if text.endswith((b"\n", b"\r")) else len(text)
        if content:
            spans.append((place, place + content))
        place = end if end > place else place + 1
    return spans


def read_header(read: Reader, uri: str) -> tuple[tuple[str, ...], int]:
    """Column names and the byte offset of the first row behind the header.

    Raises:
      InputError: no header, or one that cannot name features.
    """
    start = len(BOM) if read(0, len(BOM)) == BOM else 0
    end = row_start(read, start, False) if start else _first_row_end(read)
    raw = read(start, end)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{uri}: the header is not UTF-8 at byte {start + error.start}: "
            f"{raw[error.start : error.start + 8]!r}; convert the file to UTF-8"
        ) from error
    rows = list(csv.reader(io.StringIO(text, newline="")))
    if not rows or not any(rows[0]):
        raise InputError(f"{uri}: no header; expected column names in the first row")
    names = tuple(
        name.strip() or f"column_{place}" for place, name in enumerate(rows[0])
    )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(
            f"{uri}: the header names column {twice[0]!r} {names.count(twice[0])} times; "
            "features need names that differ"
        )
    return names, end


def _first_row_end(read: Reader) -> int:
    # row_start looks at the byte before its offset; there is none before 0.
    return row_start(lambda a, b: b"," if a < 0 else read(a, b), 0, False)
