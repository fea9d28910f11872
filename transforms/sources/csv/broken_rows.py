"""Finds quotes that open a field which never closes, and the rows that they break."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.quote_states import (
    end_state,
)
from recordmill.transforms.sources.csv.row_bounds import Reader, row_spans
from recordmill.transforms.sources.csv.states import (
    ESCAPED,
    is_open,
)

MAX_ROW_BYTES = 256 << 20  # of one row; beyond, a quote is missing or one too many
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
