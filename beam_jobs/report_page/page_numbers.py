"""Writes numbers for people: short on axes, whole in tables."""

from __future__ import annotations

import math

_SUFFIXES = ("", "k", "M", "G", "T", "P")


def number_text(number: float | None) -> str:
    """Returns a number with up to six digits; whole ones with all of theirs.

    >>> number_text(1234567), number_text(0.1 + 0.2), number_text(1e-9), number_text(None)
    ('1,234,567', '0.3', '1e-09', '–')
    """
    if number is None:
        return "–"
    if isinstance(number, int):
        return f"{number:,}"
    if math.isfinite(number) and number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.6g}"


def short_number(number: float) -> str:
    """Returns a number for an axis: three digits and a suffix.

    >>> short_number(1500), short_number(2_000_000), short_number(0.125), short_number(1e30)
    ('1.5k', '2M', '0.125', '1e+30')
    """
    size = abs(number)
    if size and not 1e-4 <= size < 1e18:
        return f"{number:.3g}"
    power = 0
    while size >= 999.5:
        size /= 1000
        power += 1
    return f"{'-' if number < 0 else ''}{size:.3g}{_SUFFIXES[power]}"


def percent(part: float, whole: float) -> str:
    """Returns a share; the smallest ones and those just below all are not rounded away.

    >>> percent(1, 3), percent(0, 5), percent(1, 10**6), percent(999_999, 10**6)
    ('33.3 %', '0 %', '< 0.1 %', '> 99.9 %')
    """
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    if part == whole:
        return "100 %"
    if share < 0.1:
        return "< 0.1 %"
    if share > 99.9:
        return "> 99.9 %"
    return f"{share:.1f} %"
