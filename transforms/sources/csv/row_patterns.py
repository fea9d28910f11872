r"""Makes the regular expressions that find the rows and cells of a dialect.

RFC 4180: a field that begins with a quote ends with one, a quote inside it is doubled,
and it may hold delimiters and newlines. A row ends with \n, \r\n or \r. A quote inside
a field that does not begin with one is an ordinary character (see quote_states).
Behind an escape character any byte is ordinary, and a row that begins with the mark of
comments is none (see marked_states).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

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
)


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
