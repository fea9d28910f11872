"""Counts the decimals of a column that lost digits as float32, and tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recordmill.schemas.text import count

MAX_COLUMNS = 1000  # that one range reports, so that its result stays small
_TOLD = 5  # columns with a warning of their own


@dataclass(frozen=True, slots=True)
class Rounded:
    """A column whose decimals lost digits as float32.

    Attributes:
      column: its name.
      values: how many did.
      written: the first of them, as the cell has it.
      stored: what became of it.
    """

    column: str
    values: int
    written: str
    stored: str

    def __str__(self) -> str:
        return (
            f"column {self.column!r}: {count(self.values, 'value')}, such as "
            f"{self.written} (stored as {self.stored})"
        )


def merge_rounded(found: Iterable[Rounded]) -> tuple[Rounded, ...]:
    """Merges the counts of parts of the input; the example is that of the first part."""
    merged: dict[str, Rounded] = {}
    for each in found:
        before = merged.get(each.column)
        merged[each.column] = (
            replace(before, values=before.values + each.values) if before else each
        )
    return tuple(merged.values())


def rounded_warnings(found: Sequence[Rounded]) -> list[str]:
    """Returns a warning for each of the first columns, and one for all others."""
    warnings = [
        f"float32 loses digits of {each}. To keep them, declare the column "
        "{dtype: float64, stored: tensor} or string in a schema file (`schema`)"
        for each in found[:_TOLD]
    ]
    if others := found[_TOLD:]:
        names = ", ".join(repr(each.column) for each in others[:_TOLD])
        more = ", ..." if len(others) > _TOLD else ""
        warnings.append(
            f"float32 loses digits of {count(len(others), 'more column')}: {names}{more}"
        )
    return warnings


def exact_error(found: Sequence[Rounded]) -> str:
    """Returns the message of a run that may lose no digit, but would."""
    lines = [f"  {each}" for each in found[:_TOLD]]
    if more := len(found) - len(lines):
        lines.append(f"  and {count(more, 'more column')}")
    return (
        f"float32 would lose digits of {count(len(found), 'column')}, and `exact` allows "
        "none:\n" + "\n".join(lines) + "\nDeclare these columns {dtype: float64, "
        "stored: tensor} or string in a schema file (`schema`), or leave out `exact`"
    )
