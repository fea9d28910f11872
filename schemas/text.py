"""Formats and parses counts, sizes, JSON and text for terminals."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

_UNITS = ("kB", "MB", "GB", "TB", "PB")
_NOT_ASCII = re.compile("[^ -~]")
_MESSAGE_LINES = re.compile(r"\n(?=  |[A-Z])")


def format_count(number: int, noun: str) -> str:
    """Returns a number with its noun, like "2,000 classes"."""
    plural = f"{noun}es" if noun.endswith(("s", "x")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def a_or_an(noun: str) -> str:
    """Returns a noun with its article, by its first letter."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def format_names(names: Sequence[str], limit: int = 10) -> str:
    """Returns the first names as text, like "cat, dog and 1 more"."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")


def format_bytes(size: float) -> str:
    """Returns a size in decimal units, like "23.4 kB"."""
    if size < 1000:
        return f"{size:.0f} B"
    power = 0
    while size >= 999.95 and power < len(_UNITS):
        size /= 1000
        power += 1
    return f"{size:.1f} {_UNITS[power - 1]}"


def escape_unprintable(text: str) -> str:
    r"""Escapes text to one line that can neither control a terminal nor hide text.

    All characters that are not printable in Python are escaped: control characters, line
    ends, characters without a width, characters that change the direction of writing (all
    of Unicode's Cc, Cf, Zl, Zp and Cs), blanks other than " ", and unassigned characters.

    >>> print(escape_unprintable("a\x1b[2J\nwarning: \u202eb"))
    a\x1b[2J\nwarning: \u202eb
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in text
    )


def escape_lines(text: str) -> str:
    """Escapes each line of a text of several lines, like code or YAML."""
    return "\n".join(map(escape_unprintable, text.split("\n")))


def escape_message(text: str) -> str:
    r"""Escapes a message of one or more lines, and indents the lines after the first.

    A further line of a message begins with two blanks, or with a capital letter if it
    explains how to fix the problem. Any other line end belongs to a name and is escaped.

    >>> print(escape_message("a\x07\nwarning: all is well:\n  one\nGo on"))
    a\x07\nwarning: all is well:
      one
      Go on
    """
    first, *following = _MESSAGE_LINES.split(text)
    lines = (escape_unprintable(line) for line in following)
    indented = (line if line.startswith("  ") else f"  {line}" for line in lines)
    return "\n".join([escape_unprintable(first), *indented])


def escape_json(text: str) -> str:
    r"""Escapes the characters of JSON text that are not printable as \uXXXX.

    >>> print(escape_json('{"name": "a\x7f\u202eb"}'))
    {"name": "a\u007f\u202eb"}
    """
    return "\n".join(
        line if line.isprintable() else _NOT_ASCII.sub(_json_escape, line)
        for line in text.split("\n")
    )


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    # json.dumps escapes each half of a surrogate pair, but not DEL.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def escape_surrogates(text: str) -> str:
    r"""Escapes bytes that are not UTF-8, and halves of surrogate pairs, in a text.

    >>> print(escape_surrogates("a\udcff"), escape_surrogates("a\ud800"))
    a\xff a\ud800
    """
    try:
        encoded_text = os.fsencode(text)  # Python keeps undecodable bytes of file names
    except UnicodeEncodeError:  # half a surrogate pair, from an escape in JSON or YAML
        encoded_text = text.encode(errors="backslashreplace")
    return encoded_text.decode(errors="backslashreplace")


def is_utf8(text: str) -> bool:
    """Returns whether text can be encoded as UTF-8; half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Exceptions that Python raises for foreign JSON that is damaged or has unexpected values.
INVALID_JSON_ERRORS = (
    *(ValueError, LookupError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)


def format_json(document: Any) -> bytes:
    """Returns indented UTF-8 JSON with a newline at its end; rejects NaN."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2)
    return f"{text}\n".encode()


_PREFIXES = ("", "K", "M", "G", "T")
# 64M is 64MiB; units are powers of 1000 only in forms like 64MB.
_SIZE = re.compile(
    r"(\d{0,15}\.?\d{1,15}) ?(?:([KMGT])(I)?)?(B)?", re.ASCII | re.IGNORECASE
)


def parse_size(text: str) -> int:
    """Parses a size to a number of bytes; raises ValueError if it is invalid.

    >>> parse_size("1.5MiB")
    1572864
    """
    from fractions import Fraction  # slow: it imports decimal

    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a size like 128MiB or 100MB, found {text!r}")
    number, unit, binary, is_bytes = match.groups(default="")
    thousand = 1000 if is_bytes and not binary else 1024
    size = int(Fraction(number) * thousand ** _PREFIXES.index(unit.upper()))
    if size < 1:
        raise ValueError("a shard has at least one byte")
    return size


def parse_memory(text: str) -> int | None:
    """Parses a memory limit in bytes, None for "auto"; raises ValueError.

    >>> parse_memory("0"), parse_memory("512MiB")
    (0, 536870912)
    """
    if text == "auto":
        return None
    if text == "0":
        return 0
    try:
        return parse_size(text)
    except ValueError:
        raise ValueError(
            f"expected auto, 0 or a size like 512MiB, found {text!r}"
        ) from None
