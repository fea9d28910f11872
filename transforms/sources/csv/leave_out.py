r"""Takes out of a text what Arrow does not know: comments, and nulls like \N."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from recordmill.schemas.ranges import OddRows
from recordmill.transforms.sources.csv.dialect import Dialect
from recordmill.transforms.sources.csv.row_patterns import row_patterns

_KIND = "comments"
_SHOWN = 40  # bytes of a comment


@dataclass(frozen=True, slots=True)
class Rest:
    """A text without its comments.

    Attributes:
      body: its rows.
      odd: how many lines of comments there were, with the first one; or ().
    """

    body: bytes
    odd: tuple[OddRows, ...] = ()


def without_comments(body: bytes, dialect: Dialect) -> Rest:
    """Returns a text without its comments.

    Args:
      body: rows from the start of one; only the last may be broken off.
      dialect: of the text.
    """
    mark = dialect.comment
    if not mark or not (
        body.startswith(mark) or b"\n" + mark in body or b"\r" + mark in body
    ):
        return Rest(body)
    rows, end, lines, example = [], 0, 0, b""
    for match in row_patterns(dialect).comments.finditer(body):
        if match.start() != end:  # the rest is a row without an end
            break
        end = match.end()
        if match.start(1) < 0:
            rows.append(match[0])
        else:
            found = match[1].splitlines()
            lines, example = lines + len(found), example or found[0]
    if not lines:
        return Rest(body)
    rows.append(body[end:])
    return Rest(b"".join(rows), comment_lines(lines, example))


def comment_lines(lines: int, example: bytes) -> tuple[OddRows, ...]:
    """Returns that there were so many comments, or () for none."""
    shown = example[:_SHOWN].decode(errors="replace")
    return (OddRows(_KIND, lines, shown),) if lines else ()


def comment_fact(odd: tuple[OddRows, ...]) -> tuple[tuple[str, str], ...]:
    """Returns what is told of comments: a fact or none."""
    return tuple(
        ("comment lines", f"{each.rows:,} left out, such as {each.example!r}")
        for each in odd
        if each.kind == _KIND
    )


def with_escaped_nulls(body: bytes, dialect: Dialect) -> tuple[bytes, bytes]:
    r"""Returns a text in which cells like \N are another text, and that text, or b"".

    Arrow takes an escape for what it escapes: \N and N would be the same.

    Args:
      body: rows from the start of one.
      dialect: of the text.
    """
    pattern = _null_pattern(dialect)
    if pattern is None or not any(null in body for null in escaped_nulls(dialect)):
        return body, b""
    # Not empty: a row of nothing else would be a blank line, which is no row.
    null = b"\0"
    while null in body:
        null += b"\0"
    return pattern.sub(lambda found: found[1] or null, body), null


def escaped_nulls(dialect: Dialect) -> list[bytes]:
    """Returns the spellings of a missing value that begin with the escape character."""
    known = set(unescaped_nulls(dialect))
    return [null.encode() for null in dialect.null_values if null not in known]


def unescaped_nulls(dialect: Dialect) -> list[str]:
    """Returns the other spellings of a missing value."""
    escape, nulls = dialect.escape.decode(), dialect.null_values
    return [null for null in nulls if not escape or not null.startswith(escape)]


@lru_cache(maxsize=8)
def _null_pattern(dialect: Dialect) -> re.Pattern[bytes] | None:
    """Returns a pattern of one such cell, or of other ones, which are group 1."""
    nulls = escaped_nulls(dialect)
    if not nulls:
        return None
    null = b"|".join(map(re.escape, nulls))
    ends = rb"[%b\r\n]" % re.escape(dialect.delimiter)
    cell = row_patterns(dialect).cell_bytes
    return re.compile(
        rb"((?:(?!(?:%b)(?:%b|\Z))%b%b)++)|(?:%b)(?=%b|\Z)"
        % (null, ends, cell, ends, null, ends)
    )
