"""Sizes as people write them: 128MiB, 64M, 1G or a plain number of bytes."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = ("", "K", "M", "G", "T")
# 64M is 64MiB; only a B without an i means thousands.
_SIZE = re.compile(
    r"(\d{0,15}\.?\d{1,15}) ?(?:([KMGT])(I)?)?(B)?", re.ASCII | re.IGNORECASE
)


def parse_size(text: str) -> int:
    """Returns the bytes that a size stands for.

    >>> parse_size("1.5MiB")
    1572864

    Raises:
      ValueError: no size, or less than one byte.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a size like 128MiB or 100MB, found {text!r}")
    number, unit, binary, is_bytes = match.groups(default="")
    thousand = 1000 if is_bytes and not binary else 1024
    size = int(Fraction(number) * thousand ** _UNITS.index(unit.upper()))
    if size < 1:
        raise ValueError("a shard has at least one byte")
    return size


def parse_memory(text: str) -> int | None:
    """Returns the bytes of memory that may be used; None for "auto".

    >>> parse_memory("0"), parse_memory("512MiB")
    (0, 536870912)

    Raises:
      ValueError: neither auto, 0 nor a size.
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
