"""Tells of columns of text that look like numbers with commas or marks of thousands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.ranges import OddRows
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.text_values import matches, without_missing
from recordmill.transforms.sources.csv.first_rows import LOOKED_AT, FirstRows
from recordmill.transforms.sources.csv.split_cells import cells_of
from recordmill.transforms.sources.type_flags import TypeFlag

_COMMA, _THOUSANDS = "decimal comma:", "thousands:"  # and the name of the column
_BLANKS = r"[ \t]*"
_GROUPS = r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"
_OTHER_GROUPS = (
    r"[+-]?[0-9]{1,3}(?:(?:\.[0-9]{3})+(?:,[0-9]+)?|(?:[' ][0-9]{3})+(?:[.,][0-9]+)?)"
)
_PATTERNS = {
    "plain": r"[+-]?[0-9]+",
    "point": r"[+-]?[0-9]*\.[0-9]+",
    "comma": r"[+-]?[0-9]*,[0-9]+",
    "groups": f"(?:{_GROUPS}|{_OTHER_GROUPS})",
}
_SHOWN_COLUMNS = 10


def marked_columns(first: FirstRows) -> tuple[OddRows, ...]:
    """Returns the columns of text that look like such numbers in the first rows.

    A column whose only marks are commas before three digits (1,234) is taken for one
    with marks of thousands.
    """
    found: list[OddRows] = []
    table = first.cells.slice(0, LOOKED_AT)
    for name, flags in zip(first.names, first.flags, strict=True):
        if not flags & TypeFlag.TEXT:
            continue
        cells = without_missing(cells_of(table, name))
        kinds = {kind: _like(cells, _PATTERNS[kind]) for kind in _PATTERNS}
        is_number = np.logical_or.reduce([*kinds.values()])
        if not is_number[cells.is_valid().to_numpy(zero_copy_only=False)].all():
            continue
        grouped = kinds["groups"]
        if first.dialect.decimal == ".":
            grouped = grouped & ~kinds["point"]
        commas = kinds["comma"] & ~grouped
        if first.dialect.decimal == "," or not commas.any() or kinds["point"].any():
            if grouped.any():
                found += _counted(_THOUSANDS, name, cells, grouped)
        else:
            found += _counted(_COMMA, name, cells, kinds["comma"])
    return tuple(found[:_SHOWN_COLUMNS])


def count_marked(
    table: pa.Table, marked: Sequence[OddRows], decimal: str
) -> tuple[OddRows, ...]:
    """Returns how many cells of these columns look like such numbers.

    Args:
      table: the cells as text.
      marked: the columns, as `marked_columns` gives them.
      decimal: as in `Dialect`.
    """
    found = []
    for each in marked:
        kind, _, name = each.kind.partition(":")
        cells = cells_of(table, name)
        pattern = _PATTERNS["comma" if f"{kind}:" == _COMMA else "groups"]
        like = _like(cells, pattern)
        if f"{kind}:" == _THOUSANDS and decimal == ".":
            like &= ~_like(cells, _PATTERNS["point"])
        found += _counted(f"{kind}:", name, cells, like)
    return tuple(found)


def marked_warnings(odd: Sequence[OddRows], decimal: str) -> list[str]:
    """Returns what is told of such columns.

    The same before the run, by the first rows, and at its end: it is told once.

    Args:
      odd: as `marked_columns` or `count_marked` gives them.
      decimal: as in `Dialect`.
    """
    warnings = []
    for each in odd:
        for kind in (_COMMA, _THOUSANDS):
            name = each.kind.removeprefix(kind)
            cells = f"cells like {shown(each.example)}"
            if name == each.kind:
                continue
            if kind == _COMMA:
                warnings.append(
                    f"column {name} is text, but looks like numbers with a decimal comma: "
                    f"{cells}. If it is, use `decimal=comma`"
                )
            else:
                other = "; if it is a decimal comma, use `decimal=comma`"
                warnings.append(
                    f"column {name} is text, but looks like numbers with marks of "
                    f"thousands: {cells}. To store numbers, write them without"
                    + (other if decimal == "." else "")
                )
    return warnings


def _like(
    cells: pa.StringArray, pattern: str
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return matches(cells, f"^{_BLANKS}{pattern}{_BLANKS}$")


def _counted(
    kind: str,
    name: str,
    cells: pa.StringArray,
    like: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> list[OddRows]:
    rows = np.flatnonzero(like)
    if not len(rows):
        return []
    return [OddRows(f"{kind}{name}", len(rows), cells[int(rows[0])].as_py())]
