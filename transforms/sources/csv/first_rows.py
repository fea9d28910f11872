"""Tells what a CSV input is taken for, and what looks wrong in its first rows.

The look is cheap: at the first file, some KiB of it. Whether the columns are as they
should be only a person can tell, so what is odd is a warning; a table of one column that
is named like several is never meant, so that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from recordmill.schemas.text import printable
from recordmill.schemas.understood import Understood
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.sources.csv.split_cells import columns_of
from recordmill.transforms.sources.text_types import TypeFlag, classify, kinds_of
from recordmill.transforms.sources.wide_columns import classify_columns

LOOKED_AT = 100  # rows
_SAME_SHARE = 0.9  # of the rows that have as many delimiters as the header
_SHOWN_COLUMNS = 10
_SHOWN_NAME = 40  # characters
_DELIMITERS = {b";": "';'", b"\t": "tabs", b"|": "'|'"}
_QUOTED = re.compile(rb'"[^"]*"')
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_NUMBERS = TypeFlag.INTEGER | TypeFlag.DECIMAL | TypeFlag.HUGE


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of an input.

    Attributes:
      uri: of the first file.
      header: its first line, raw.
      names: the columns.
      rows: the first rows, raw.
      cells: those that could be split, as text.
    """

    uri: str
    header: bytes
    names: tuple[str, ...]
    rows: Sequence[bytes]
    cells: pa.Table

    @property
    def flags(self) -> tuple[int, ...]:
        """Returns the type flags of the columns in these rows."""
        return tuple(map(int, classify_columns(self._columns())))

    def other_delimiter(self) -> bytes:
        """Returns what seems to stand between the cells of the one column, or b""."""
        if len(self.names) > 1 or not self.rows:
            return b""
        for delimiter in _DELIMITERS:
            expected = _count(self.header, delimiter)
            same = sum(_count(row, delimiter) == expected for row in self.rows)
            if expected and same >= _SAME_SHARE * len(self.rows):
                return delimiter
        return b""

    def one_column(self, *, is_declared: bool) -> str:
        """Returns what is wrong with a single column that looks like several, or "".

        Args:
          is_declared: whether a person said what the columns are.
        """
        delimiter = self.other_delimiter()
        if not delimiter:
            return ""
        name = self.names[0]
        found = (
            f"{self.uri}: the header is the single column {shown(name)}, and the rows "
            f"have as many {_DELIMITERS[delimiter]} as it: this looks like a table with "
            f"{_DELIMITERS[delimiter]} between its cells"
        )
        if is_declared:
            return found
        mark = r"\t" if delimiter == b"\t" else delimiter.decode()
        return (
            f"{found}. Expected commas. Convert the file: python3 -c "
            f'"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, '
            f"delimiter='{mark}'))\" < in.csv > out.csv. If it is one column, declare it "
            f"with `schema`: {{features: {{line: {{column: {name!r}, dtype: string}}}}}}"
        )

    def headerless(self) -> str:
        """Returns why the header looks like a row, or "".

        Each of its cells is of the sort that is below it, and not all are text. Years
        and dates in a row (2001, 2002, 2003) are the names of columns.
        """
        sorts = _sorts_of(self.names)
        if not {*sorts} - {"text"} or _is_series(self.names):
            return ""
        for expected, cells in zip(sorts, self._columns(), strict=True):
            if _sort(cells.drop_null().to_pylist()) != expected:
                return ""
        line = self.header.decode(errors="replace")
        return (
            f"{self.uri}: line 1 is taken for the header, but it looks like a row: "
            f"{shown(line)}. It becomes no record. If the table has no header, put a line "
            "with the names of its columns before it"
        )

    def _columns(self) -> list[pa.StringArray]:
        return columns_of(self.cells.slice(0, LOOKED_AT), self.names)


def huge_warnings(names: Sequence[str]) -> list[str]:
    """Returns a warning for columns that are text because of their large numbers."""
    return [
        f"column {name!r} is text, because it holds numbers beyond float32 (at most "
        "3.4e38). To store numbers, declare it {dtype: float64, stored: tensor} in a "
        "schema file (`schema`)"
        for name in names[:_SHOWN_COLUMNS]
    ]


def describe(
    names: Sequence[str], dtypes: Sequence[str], basis: str, warnings: Sequence[str]
) -> Understood:
    """Returns what an input is taken for.

    Args:
      names: the columns.
      dtypes: their types, in the same order; () if they are declared.
      basis: what the types come from, in words.
      warnings: what looks wrong.
    """
    columns = [
        " ".join((_short(name), *dtypes[at : at + 1]))
        for at, name in enumerate(names[:_SHOWN_COLUMNS])
    ]
    if more := len(names) - len(columns):
        columns.append(f"{more:,} more")
    unnamed = [name for at, name in enumerate(names) if name == f"column_{at}"]
    facts = [
        ("delimiter", "comma"),
        ("header", "line 1"),
        ("columns", f"{len(names):,} ({', '.join(columns)})"),
        ("types", basis),
    ]
    if unnamed:
        named = ", ".join(unnamed[:_SHOWN_COLUMNS])
        facts.append(("columns without a name", f"{len(unnamed):,}, named {named}"))
    return Understood(tuple(facts), tuple(warnings))


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _SHOWN_NAME else f"{text[: _SHOWN_NAME - 3]}..."


def _count(line: bytes, delimiter: bytes) -> int:
    """Counts the delimiters of a line, but not those inside quotes."""
    return _QUOTED.sub(b"", line).count(delimiter)


def _sort(texts: Sequence[str]) -> str:
    """Returns what all of some cells are: numbers, booleans, dates or text; or ""."""
    if not texts:
        return ""
    return _sort_by(classify(pa.array(texts, pa.string())), texts)


def _sorts_of(texts: Sequence[str]) -> list[str]:
    """Returns the sort of each text by itself."""
    flags = np.zeros(len(texts), np.int64)
    if len(texts):
        for flag, found in kinds_of(pa.array(texts, pa.string())).items():
            flags[found] |= int(flag)
    flags[flags == 0] = int(TypeFlag.TEXT)
    return [
        _sort_by(TypeFlag(flag), [text])
        for flag, text in zip(flags.tolist(), texts, strict=True)
    ]


def _sort_by(flags: TypeFlag, texts: Sequence[str]) -> str:
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
