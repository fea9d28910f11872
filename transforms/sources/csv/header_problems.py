"""Finds headers that are none, or do not fit the rows below them, and says what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, takewhile

import numpy as np
import pyarrow as pa

from recordmill.schemas.text import count
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.sources.csv.first_rows import FirstRows
from recordmill.transforms.sources.csv.header_row import split_row
from recordmill.transforms.sources.csv.sniff import CANDIDATES, SAME_SHARE
from recordmill.transforms.sources.text_types import classify, kinds_of
from recordmill.transforms.sources.type_flags import TypeFlag

_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_YEAR = re.compile(r"[12]\d{3}")
_MARKS = (b"#", b"%", b";", b"!")  # of comments
_NUMBERS = TypeFlag.INTEGER | TypeFlag.DECIMAL | TypeFlag.HUGE
_UNSAFE = re.compile(r"[\s`,\"]")  # in a name that a message shows as part of a value


def header_doubts(first: FirstRows, *, is_guessed: bool) -> tuple[str, ...]:
    """Returns what looks wrong about a header, and stops no run.

    Args:
      first: the first rows.
      is_guessed: whether nobody said that there is one.
    """
    found = [first.one_column(), misfit(first), commented(first)]
    if is_guessed:
        found.append(counted_header(first))
    return tuple(filter(None, found))


def headerless(first: FirstRows) -> str:
    """Returns why the header looks like a row, or "".

    Years and dates in a row (2001, 2002, 2003) are the names of columns.
    """
    if _is_series(first.names) or not _is_like_rows(first):
        return ""
    return (
        f"{_line(first)} should be the header, but it looks like a row: {_shown(first)}. "
        "If the table has no header, use `header=none`, and give the names of its columns "
        "with `columns`. If it is the header, use `header=first`"
    )


def counted_header(first: FirstRows) -> str:
    """Returns why a header of numbers in a row (1, 2, 3) may be a row, or "".

    Not of years, nor of the numbers that pandas writes for columns without names.
    """
    if not _is_series(first.names) or not _is_like_rows(first):
        return ""
    if [*first.names] == [*map(str, range(len(first.names)))]:
        return ""
    sorts = zip(first.names, _sorts_of(first.names), strict=True)
    if all(_YEAR.fullmatch(name) for name, sort in sorts if sort == "number"):
        return ""
    return (
        f"{_line(first)} is taken for the header, though it looks like a row: "
        f"{_shown(first)}. If the table has no header, use `header=none`, else this "
        "row is missing. If it is the header, `header=first` says so"
    )


def _is_like_rows(first: FirstRows) -> bool:
    """Tells whether each name is of the sort that is below it, and not all are text."""
    if not first.dialect.has_header:
        return False
    names = pa.array(first.names, pa.string())
    if first.dialect.decimal == ",":
        names = swap_points(names)
    sorts = _sorts_of(names.to_pylist())
    return bool({*sorts} - {"text"}) and all(
        _sort(cells.drop_null().to_pylist()) == expected
        for expected, cells in zip(sorts, first.columns(), strict=True)
    )


def _line(first: FirstRows) -> str:
    return f"{first.uri}: line {first.dialect.skip_rows + 1}"


def _shown(first: FirstRows) -> str:
    return shown(first.header.decode(errors="replace"))


def misfit(first: FirstRows) -> str:
    """Returns why the header cannot be that of the rows below it, or "".

    R writes no name above the names of rows. Programs that write reports put lines
    before the header.
    """
    widths = [
        len(split_row(row, first.dialect) or ()) for row in (first.header, *first.rows)
    ]
    expected, mark = widths[0], first.header[:1]
    alike = 1  # lines that begin with a mark of comments, as the header does
    if mark in _MARKS:
        alike += sum(1 for _ in takewhile(lambda row: row[:1] == mark, first.rows))
    behind = widths[alike:]
    if not behind or not first.dialect.has_header or expected in behind:
        return ""
    width, rows = Counter(behind).most_common(1)[0]
    at = alike + behind.index(width)
    if width < expected or rows < SAME_SHARE * len(widths[at:]):
        return ""
    found = (
        f"{first.uri}: the header has {count(expected, 'name')}, but the rows below it "
        f"have {count(width, 'cell')}"
    )
    if at == 1 and width == expected + 1 > 2:
        names = ",".join(["row", *first.names])
        named = "`columns`" if _UNSAFE.search(names.replace(",", "")) else ""
        return (
            f"{found}, as R writes the names of rows. Name all columns, and skip this "
            f"header: {named or f'`columns={names}`'} and `skip_rows={first.dialect.skip_rows + 1}`"
        )
    if at == alike > 1:
        return f"{found}. If it is a comment, say so: `comment={mark.decode()}`"
    return (
        f"{found}. If the header is {shown(first.rows[at - 1].decode(errors='replace'))}, "
        f"skip what is before it: `skip_rows={first.lines_before(at - 1)}`"
    )


def commented(first: FirstRows) -> str:
    """Returns why the header may be a comment, or "".

    Two lines that begin with a # are, and one alone above rows of several cells.
    """
    dialect, lines = first.dialect, [first.header, *first.rows]
    if dialect.comment or not dialect.has_header or len(lines) < 2:
        return ""
    if lines[0][:1] != b"#" or (len(first.names) > 1 and lines[1][:1] != b"#"):
        return ""
    behind = next((line for line in lines if line[:1] != b"#"), b"")
    if len(first.names) == 1 and not any(mark in behind for mark in CANDIDATES):
        return ""
    return (
        f"{first.uri}: line {dialect.skip_rows + 1}, the header, begins with a '#': "
        f"{shown(lines[0].decode(errors='replace'))}. If lines like it are comments, use "
        "`comment=#`"
    )


def given_twice(first: FirstRows) -> str:
    """Returns why the columns that were given should not have been, or ""."""
    dialect = first.dialect
    if not dialect.columns or not first.rows:
        return ""
    cells = [cell.strip() for cell in split_row(first.rows[0], dialect) or ()]
    if cells != [*dialect.columns]:
        return ""
    return (
        f"{first.uri}: the first row has just the names that `columns` gives, so it is a "
        "header. Leave out `columns`"
    )


def _sort(texts: Sequence[str]) -> str:
    """Returns what all of some cells are: numbers, booleans, dates or text; or ""."""
    if not texts:
        return ""
    return _sort_by(classify(pa.array(texts, pa.string())), texts)


def _sorts_of(texts: Sequence[str]) -> list[str]:
    """Returns the sort of each text by itself."""
    flags = np.zeros(len(texts), np.int64)
    if len(texts):
        for flag, found in kinds_of(pa.array([*map(str.strip, texts)])).items():
            flags[found] |= int(flag)
    flags[flags == 0] = int(TypeFlag.TEXT)
    return [
        _sort_by(TypeFlag(flag), [text])
        for flag, text in zip(flags.tolist(), texts, strict=True)
    ]


def _sort_by(flags: TypeFlag, texts: Sequence[str]) -> str:
    flags &= ~TypeFlag.MISSING
    if not flags:
        return ""
    if not flags & ~_NUMBERS:
        return "number"
    if flags is TypeFlag.BOOLEAN:
        return "boolean"
    return "date" if all(map(_DATE.fullmatch, texts)) else "text"


def _is_series(names: Sequence[str]) -> bool:
    """Tells whether three names or more count up, as columns of a pivot table do."""
    dates = [name for name in names if _DATE.fullmatch(name)]
    sorts = zip(names, _sorts_of(names), strict=True)
    numbers = [float(name) for name, sort in sorts if sort == "number"]
    steps = {round(after - before, 9) for before, after in pairwise(numbers)}
    return len(dates) > 2 or (len(numbers) > 2 and len(steps) == 1 and steps != {0})
