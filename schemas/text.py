"""Formats and parses counts, sizes and JSON, and checks names of files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

_UNITS = ("kB", "MB", "GB", "TB", "PB")
_NOT_ASCII = re.compile("[^ -~]")
_MESSAGE_LINES = re.compile(r"\n(?=  |[A-Z])")


def count(number: int, noun: str) -> str:
    """Returns a number with its noun, like "2,000 classes"."""
    plural = f"{noun}es" if noun.endswith(("s", "x")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def a_or_an(noun: str) -> str:
    """Returns a noun with its article, by its first letter."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def first_names(names: Sequence[str], limit: int = 10) -> str:
    """Returns the first names in words, like "cat, dog and 1 more"."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")


def human_bytes(size: float) -> str:
    """Returns a size in decimal units, like "23.4 kB"."""
    if size < 1000:
        return f"{size:.0f} B"
    power = 0
    while size >= 999.95 and power < len(_UNITS):
        size /= 1000
        power += 1
    return f"{size:.1f} {_UNITS[power - 1]}"


def printable(text: str) -> str:
    r"""Returns text as one line that cannot steer a terminal, or hide what it holds.

    Escaped is what Python does not take for printable: control characters, ends of lines,
    characters without a width and those that turn the direction of writing (all of
    Unicode's Cc, Cf, Zl, Zp and Cs), blanks other than " ", and unassigned characters.

    >>> print(printable("a\x1b[2J\nwarning: \u202eb"))
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


def printable_lines(text: str) -> str:
    """Returns text of several lines, like code or YAML, with each line printable."""
    return "\n".join(map(printable, text.split("\n")))


def printable_message(text: str) -> str:
    r"""Returns a message of one or more lines, printable; lines after the first indented.

    A line of a message begins with two blanks, or is the way out and begins with a capital
    letter. Any other end of a line belongs to a name, so it is escaped.

    >>> print(printable_message("a\x07\nwarning: all is well:\n  one\nGo on"))
    a\x07\nwarning: all is well:
      one
      Go on
    """
    first, *following = _MESSAGE_LINES.split(text)
    lines = (printable(line) for line in following)
    indented = (line if line.startswith("  ") else f"  {line}" for line in lines)
    return "\n".join([printable(first), *indented])


def printable_json(text: str) -> str:
    r"""Returns JSON text with \uXXXX for the characters that `printable` escapes.

    >>> print(printable_json('{"name": "a\x7f\u202eb"}'))
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
    # json.dumps escapes half a pair by itself, and leaves DEL as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def escaped(text: str) -> str:
    r"""Returns text that is not UTF-8 with its odd bytes, or half characters, escaped.

    >>> print(escaped("a\udcff"), escaped("a\ud800"))
    a\xff a\ud800
    """
    try:
        data = os.fsencode(text)  # a file name: Python keeps its bytes in the text
    except UnicodeEncodeError:  # half a character, by an escape in JSON or YAML
        data = text.encode(errors="backslashreplace")
    return data.decode(errors="backslashreplace")


def is_utf8(text: str) -> bool:
    """Tells whether text can be written as UTF-8: half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# What Python raises where JSON from elsewhere is damaged, or holds other values than those
# that are expected there.
NOT_VALID = (
    *(ValueError, LookupError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)


def json_bytes(value: Any) -> bytes:
    """Returns indented UTF-8 JSON with a newline at its end; never NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    return f"{text}\n".encode()


_PREFIXES = ("", "K", "M", "G", "T")
# 64M is 64MiB; only a B without an i means thousands.
_SIZE = re.compile(
    r"(\d{0,15}\.?\d{1,15}) ?(?:([KMGT])(I)?)?(B)?", re.ASCII | re.IGNORECASE
)


def parse_size(text: str) -> int:
    """Returns the bytes that a size stands for; raises ValueError if it is none.

    >>> parse_size("1.5MiB")
    1572864
    """
    from fractions import Fraction  # with decimal, which commands need not wait for

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
    """Returns the bytes of memory that may be used, None for "auto"; raises ValueError.

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
