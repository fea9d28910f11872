r"""Makes the regular expressions that find the rows and cells of a dialect.

RFC 4180: a field that begins with a quote ends with one, a quote inside it is doubled,
and it may hold delimiters and newlines. A row ends with \n, \r\n or \r. A quote inside
a field that does not begin with one is an ordinary character (see quote_states).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from recordmill.transforms.sources.csv.dialect import Dialect
from recordmill.transforms.sources.csv.quote_states import (
    FIELD_START,
    QUOTED,
    UNQUOTED,
    QuoteState,
)


@dataclass(frozen=True, slots=True)
class RowPatterns:
    """The patterns of one dialect.

    Attributes:
      row: a row with its end, which is group 1.
      cell: a cell: what is quoted, the closing quote, what is behind it.
      rest_of_row: what is behind a state of the quotes, with the row's end as group 1.
    """

    row: re.Pattern[bytes]
    cell: re.Pattern[bytes]
    rest_of_row: dict[QuoteState, re.Pattern[bytes]]


def row_patterns(dialect: Dialect) -> RowPatterns:
    """Returns the patterns of a dialect."""
    return _patterns(dialect.delimiter, dialect.quote)


@lru_cache(maxsize=64)
def _patterns(delimiter_byte: bytes, quote_byte: bytes) -> RowPatterns:
    delimiter, quote = re.escape(delimiter_byte), re.escape(quote_byte)
    # Possessive (*+): no way back, so a long field costs neither time nor memory.
    plain = rb"[^%b\r\n]*+" % delimiter
    inside = rb"[^%b]*+(?:%b%b[^%b]*+)*+" % (quote, quote, quote, quote)
    field = rb"(?:%b%b%b?+)?+%b" % (quote, inside, quote, plain)
    cell = rb"(?:%b(%b)(%b?+))?+(%b)" % (quote, inside, quote, plain)
    if not quote:
        field, inside, cell = plain, b"", rb"(?:(\Z\A)(\Z\A))?+(%b)" % plain
    more = rb"(?:%b%b)*+" % (delimiter, field)
    rest = more + rb"(\r\n|\r|\n)"
    quoted = rb"%b%b?+%b" % (inside, quote, plain) if quote else plain
    return RowPatterns(
        row=re.compile(field + more + rb"(\r\n|\r|\n|\Z)"),
        cell=re.compile(cell),
        rest_of_row={
            FIELD_START: re.compile(field + rest),
            UNQUOTED: re.compile(plain + rest),
            QUOTED: re.compile(quoted + rest),
        },
    )
