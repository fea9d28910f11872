"""Finds odd cells: the few of a column that keep it from being of a narrower type.

A column of 2,000 prices and one `12.5o` would be text. A range that meets such a cell is
read once more with a wider type; then the cells of the column are counted by their class,
as issues with the first odd ones. At the end, columns with few of them are found:

    class       numbers 1,999      text 1, "t.csv line 17: '12.5o'"     of 2,000 cells

A column of 100 cells or more has few if they are 1 % at most, and 1,000 at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.ranges import RowIssue
from recordmill.schemas.text import count
from recordmill.transforms.encode.row_errors import Mask
from recordmill.transforms.sources.text_types import (
    NUMBERS,
    TypeFlag,
    column_dtype,
    flags_of_each,
)

ODD = "odd cells"  # code of the issues: a column's cells of one class
MAX_ODD = 1_000  # cells of a column that are few
_SHARE = 100  # one in so many is few
_WARNED_SHARE = 10  # one in so many is warned of
_NAMED = 3  # cells of a range that are named
_COUNTED_BYTES = 64 << 20  # of a file, whose lines are counted to name one
_WARNED_COLUMNS = 5
_SURE_SAMPLE = 20  # cells; fewer may be odd by chance
_CLASSES = {"number": NUMBERS, "boolean": int(TypeFlag.BOOLEAN)}


class OddColumn(NamedTuple):
    """A column with odd cells."""

    name: str
    kind: str  # what all others are: "number" or "boolean"
    odd: int  # how many
    cells: int  # of the column, but for missing ones
    examples: str  # the first ones

    @property
    def is_few(self) -> bool:
        """Tells whether they are so few that the column is not text because of them."""
        return self.odd <= min(MAX_ODD, self.cells // _SHARE)

    def types_of_others(self, flags: int) -> int:
        """Returns the type flags of the column with its odd cells rejected."""
        return flags & _CLASSES[self.kind] | int(TypeFlag.DECIDED)

    @property
    def described(self) -> str:
        """Returns the column, its odd cells and where the first are."""
        return (
            f"column {self.name!r}: {count(self.odd, 'cell')} of {self.cells:,} "
            f"{'is' if self.odd == 1 else 'are'} not a {self.kind}, as all others are: "
            f"{'first ' * (self.odd > 1)}{self.examples.partition(' ')[2]}"
        )


def place_of(path: str, offset: int, line: Callable[[], int] | None) -> str:
    """Returns where a row is, for people: the line, if it can be counted."""
    if line is None or offset > _COUNTED_BYTES:
        return f"{path} byte {offset:,}"
    return f"{path} line {line():,}"


def is_named(issues: Iterable[RowIssue], name: str) -> bool:
    """Tells whether the first odd cells of a column were named: lines take long to count."""
    return any(
        each.code == ODD and each.column == name and each.example for each in issues
    )


def first_example(position: int, text: str) -> str:
    """Returns an example that comes first, of several, if its position does."""
    return f"{position:020d} {text}"


def is_mixed(flags: int) -> bool:
    """Tells whether a column is text although some of its cells are of a narrower type."""
    return column_dtype(flags) == "string" and bool(
        flags & (NUMBERS | TypeFlag.BOOLEAN)
    )


def without_odd(flags: int, cells: pa.StringArray) -> int:
    """Returns the flags of a sample's cells without odd ones; TEXT if there are many."""
    if not is_mixed(flags):
        return flags
    found = flags_of_each(cells)
    for family in _CLASSES.values():
        own = found & family
        share, total = np.count_nonzero(own), np.count_nonzero(found)
        if share * 5 >= total * 4 or (total < _SURE_SAMPLE and share * 2 >= total):
            return int(np.bitwise_or.reduce(own)) | (flags & int(TypeFlag.MISSING))
    return int(TypeFlag.TEXT)


def count_classes(
    name: str, cells: pa.StringArray, named: Callable[[Sequence[int]], str]
) -> tuple[list[RowIssue], int, bool]:
    """Counts the cells of each class in a batch of a mixed column.

    `named` describes cells by their rows. Returns the issues, the type flags of all cells,
    and whether it is clear that those of no class are many.
    """
    found = flags_of_each(cells)
    masks: dict[str, Mask] = {
        kind: (found & family) != 0 for kind, family in _CLASSES.items()
    }
    masks["text"] = (found != 0) & ~np.logical_or.reduce([*masks.values()])
    most = max(_CLASSES, key=lambda kind: np.count_nonzero(masks[kind]))
    issues = []
    for kind, mask in masks.items():
        if len(rows := np.flatnonzero(mask)):
            example = "" if kind == most else named(rows[:_NAMED].tolist())
            issues.append(RowIssue(ODD, name, len(rows), example, (kind,)))
    odd, total = np.count_nonzero(masks["text"]), np.count_nonzero(found)
    is_text = bool(odd > MAX_ODD and odd * _WARNED_SHARE > total)
    return issues, int(np.bitwise_or.reduce(found, initial=0)), is_text


def odd_columns(
    issues: Iterable[RowIssue], cells: Mapping[str, int]
) -> list[OddColumn]:
    """Returns the columns with odd cells, by the issues of all ranges.

    `cells` are those of each column that are not missing.
    """
    classes: dict[str, dict[str, RowIssue]] = {}
    for each in issues:
        if each.code == ODD:
            classes.setdefault(each.column, {})[each.changes[0]] = each
    found = []
    for name, own in classes.items():
        kinds = [kind for kind in _CLASSES if kind in own]
        kind = max(kinds, key=lambda each: own[each].count, default="")
        others = [issue for each, issue in own.items() if each != kind]
        odd = sum(issue.count for issue in others)
        if kind and odd:
            examples = min(filter(None, (each.example for each in others)), default="")
            found.append(OddColumn(name, kind, odd, cells.get(name, 0), examples))
    return found


def odd_problem(found: Sequence[OddColumn]) -> str:
    """Returns why a run is refused that would make text of columns with few odd cells."""
    few = [column.described for column in found if column.is_few]
    if not few:
        return ""
    more = len(few) - _WARNED_COLUMNS
    lines = [f"  {each}" for each in few[:_WARNED_COLUMNS]]
    lines += [f"  and {count(more, 'more column')}"] * (more > 0)
    return (
        f"odd cells in {count(len(few), 'column')}:\n"
        + "\n".join(lines)
        + "\nCorrect them, or say what to do with them: `odd_cells=reject` rejects their "
        "rows (allow them with `max_rejects`), `odd_cells=widen` makes the column text"
    )


def odd_warnings(found: Sequence[OddColumn]) -> list[str]:
    """Returns a warning for each column that is text because of one cell in ten or less."""
    return [
        f"{column.described}. So the column is text; if they are mistakes, correct them, "
        "or name those that mean a missing value with `null_values`"
        for column in found
        if not column.is_few and column.odd * _WARNED_SHARE <= column.cells
    ][:_WARNED_COLUMNS]


def odd_fact(found: Sequence[OddColumn]) -> tuple[tuple[str, str], ...]:
    """Returns a fact on the few odd cells of columns that were made text of, or none."""
    few = [column.described for column in found if column.is_few]
    return (("odd cells", "; ".join(few[:_WARNED_COLUMNS])),) if few else ()
