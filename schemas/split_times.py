"""Parses the option that divides rows by their time.

    date=train,2026-01-01,val,2026-03-01,test

is: by the column `date`, before the first of January train, from then on val, and from the
first of March on test. Boundaries are times in ISO 8601, or numbers; without a zone they are
UTC.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from recordmill.schemas.job import MAX_SPLITS, SPLIT_PATTERN

EXAMPLE = "date=train,2026-01-01,test"
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)

Bound = int | float | datetime


@dataclass(frozen=True)
class SplitTimes:
    """Splits by the value of a column."""

    column: str  # of times or numbers
    names: tuple[str, ...]  # of the splits, the earliest first
    # where each but the first begins, rising: all datetimes in UTC, or numbers
    bounds: tuple[Bound, ...]

    @property
    def are_times(self) -> bool:
        """Tells whether the boundaries are times."""
        return isinstance(self.bounds[0], datetime)


def parse_split_times(text: str) -> SplitTimes:
    """Parses a text like EXAMPLE; raises ValueError if it is not one."""
    column, equals, rest = text.rpartition("=")
    parts = [part.strip() for part in rest.split(",")]
    names, texts = parts[::2], parts[1::2]
    if not column or not equals or len(names) < 2 or len(names) == len(texts):
        raise ValueError(
            f"expected a column, and splits with the times between them, like {EXAMPLE}; "
            f"found {text!r}"
        )
    for name in names:
        if not SPLIT_PATTERN.fullmatch(name):
            raise ValueError(
                "expected a split name of letters, digits, '_' and '-', found "
                f"{name!r}; the whole is like {EXAMPLE}"
            )
    if len(set(names)) != len(names) or len(names) > MAX_SPLITS:
        raise ValueError(
            f"expected at most {MAX_SPLITS} different splits, found {', '.join(names)}"
        )
    if shares := [each for each in texts if each.endswith("%")]:
        raise ValueError(
            f"expected times or numbers, found the share {shares[0]}. Write the time at "
            f"which the next split begins, like {EXAMPLE}; or give shares of all rows, "
            "whatever their times, as `splits`"
        )
    bounds = [parse_bound(each) for each in texts]
    if len({isinstance(each, datetime) for each in bounds}) > 1:
        raise ValueError(f"expected all times or all numbers, found {', '.join(texts)}")
    for (one, first), (other, second) in pairwise(zip(texts, bounds, strict=True)):
        if not first < second:  # type: ignore[operator]
            raise ValueError(f"expected times that rise, found {one} before {other}")
    return SplitTimes(column.strip(), tuple(names), tuple(bounds))


def parse_bound(text: str) -> Bound:
    """Parses a number, or a time in ISO 8601, which without a zone is UTC."""
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            "expected a number, or a time like 2026-01-01 or 2026-01-01T12:00:00, found "
            f"{text!r}"
        ) from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
