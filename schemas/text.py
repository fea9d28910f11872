"""Formats counts, sizes and JSON; the one place for plurals and units."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from json.encoder import encode_basestring
from typing import Any

_UNITS = ("kB", "MB", "GB", "TB", "PB")


def count(number: int, noun: str) -> str:
    """Returns a number with its noun, singular or plural.

    >>> count(2_000, "class")
    '2,000 classes'
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def first_names(names: Sequence[str], limit: int = 10) -> str:
    """Returns the first names in words, and how many more there are.

    >>> first_names(["cat", "dog", "emu"], 2)
    'cat, dog and 1 more'
    """
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")


def human_bytes(size: float) -> str:
    """Returns a size in decimal units.

    >>> human_bytes(23_400)
    '23.4 kB'
    """
    if size < 1000:
        return f"{size:.0f} B"
    power = 0
    while size >= 999.95 and power < len(_UNITS):
        size /= 1000
        power += 1
    return f"{size:.1f} {_UNITS[power - 1]}"


def printable(text: str) -> str:
    """Escapes control characters, so that it cannot steer a terminal."""
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode()
        for character in text
    )


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


def json_bytes(value: Any) -> bytes:
    """Returns indented UTF-8 JSON with a newline at its end; never NaN."""
    return f"{_indented(value, chr(10))}\n".encode()


def _indented(value: Any, line: str) -> str:
    """Returns what json.dumps does with indent=2, for which it has no fast code.

    Args:
      value: any JSON value.
      line: the line break and the indent before what closes the value.
    """
    inside = f"{line}  "
    if isinstance(value, dict) and value:
        parts = [
            f"{_key(key)}: "
            f"{_scalar(item) if type(item) in _SCALARS else _indented(item, inside)}"
            for key, item in value.items()
        ]
        return f"{{{inside}{f',{inside}'.join(parts)}{line}}}"
    if isinstance(value, list | tuple) and value:
        parts = [_indented(item, inside) for item in value]
        return f"[{inside}{f',{inside}'.join(parts)}{line}]"
    return _scalar(value)


_SCALARS = frozenset({str, int, float, bool, type(None)})
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _scalar(value: Any) -> str:
    if type(value) is str:
        return encode_basestring(value)
    if type(value) is int:
        return repr(value)
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    return _encode(value)


def _key(key: Any) -> str:
    return encode_basestring(key) if type(key) is str else _encode({key: 0})[1:-4]
