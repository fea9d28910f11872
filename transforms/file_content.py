"""Combines the checksums of parts of files, and says what a file's content is.

The content of a file is a short text, the same wherever and whenever the file is read:

    crc32c:e3069283       of all of its bytes
    crc32c:e3069283/64    of the first 64 bytes, and no others were read
    ""                    nothing was read of it: what it holds does not matter
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.file_checksums import FileChecksum

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed
_ONE = 1 << 31  # the polynomial 1, its bits reversed
_PREFIX = "crc32c:"
_CONTENT = re.compile(_PREFIX + "[0-9a-f]{8}(?:/([0-9]{1,18}))?")


def combine(first: int, second: int, second_bytes: int) -> int:
    """Returns the CRC-32C of some bytes and others behind them, from those of both.

    A CRC is a polynomial over GF(2). Bytes behind shift it: it is multiplied by
    x^(8 * second_bytes), modulo the CRC's own polynomial.
    """
    if not first:  # as of no bytes
        return second
    return _product(_power_of_x(8 * second_bytes), first) ^ second


def _product(a: int, b: int) -> int:
    """Computes the product of two polynomials modulo the CRC's; the highest bit is x^0."""
    total, bit = 0, _ONE
    while bit:
        if a & bit:
            total ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return total


@lru_cache(maxsize=256)  # most parts have one of a few lengths
def _power_of_x(exponent: int) -> int:
    """Returns x^exponent modulo the CRC's polynomial, by repeated squaring."""
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = _product(square, power)
        square = _product(square, square)
        exponent >>= 1
    return power


def contents(parts: Iterable[FileChecksum], sizes: dict[str, int]) -> dict[str, str]:
    """Returns the content of each file of which something was read.

    Where parts begin and end does not matter, as long as they join.

    Args:
      parts: of any files, in any order; a part may be there several times.
      sizes: of the files that matter, by path.

    Raises:
      ChangedInputError: a part was read several times, and was not the same.
    """
    whole: dict[str, FileChecksum] = {}  # most files are read at once
    others: dict[str, set[FileChecksum]] = {}
    for part in parts:
        path, start, stop, _ = part
        if (
            start == 0
            and stop == sizes.get(path)
            and whole.setdefault(path, part) == part
        ):
            continue
        if path in sizes:
            others.setdefault(path, set()).add(part)
    found = {path: f"{_PREFIX}{part.crc32c:08x}" for path, part in whole.items()}
    for path, own in others.items():
        if path in whole:
            own.add(whole[path])
        found[path] = _content(path, sorted(own), sizes[path])
    return found


def _content(path: str, parts: list[FileChecksum], size: int) -> str:
    """Returns the content of a file from its parts, sorted by start and stop."""
    for before, part in pairwise(parts):
        if before[1:3] == part[1:3]:
            raise ChangedInputError(
                f"{path}: bytes {part.start} to {part.stop} were read twice and were "
                "not the same. Run the job again, and do not write to its inputs "
                "meanwhile"
            )
    crcs = {0: 0}  # of all bytes up to here
    for part in parts:
        if part.start in crcs and part.stop not in crcs:
            length = part.stop - part.start
            crcs[part.stop] = combine(crcs[part.start], part.crc32c, length)
    stop = max(crcs)
    if stop == size:
        return f"{_PREFIX}{crcs[stop]:08x}"
    return f"{_PREFIX}{crcs[stop]:08x}/{stop}" if stop else ""


def bytes_of_content(content: str, size: int) -> int | None:
    """Returns how many bytes of a file its content speaks of; None if it is no content.

    Args:
      content: as `contents` gives it, or a version.
      size: of the file.

    >>> bytes_of_content("crc32c:e3069283", 9), bytes_of_content("crc32c:00000000/4", 9)
    (9, 4)
    >>> bytes_of_content("", 9), bytes_of_content("1700000000000000000", 9)
    (0, None)
    """
    if not content:
        return 0
    found = _CONTENT.fullmatch(content)
    if not found:
        return None
    if not found[1]:
        return size
    head = int(found[1])
    return head if 0 < head < size else None
