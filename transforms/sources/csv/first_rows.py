"""Tells what a CSV input is taken for, and what looks wrong in its first rows.

The look is cheap: at the first file, some KiB of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.sources.csv.dialect import (
    Dialect,
    name_of,
)
from recordmill.transforms.sources.csv.sniff import CANDIDATES, SAME_SHARE
from recordmill.transforms.sources.csv.split_cells import columns_of
from recordmill.transforms.sources.wide_columns import classify_columns

LOOKED_AT = 100  # rows
_SHOWN_COLUMNS = 10
_SHOWN_NAME = 40  # characters
_QUOTED = re.compile(rb'"[^"]*"')


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of an input.

    Attributes:
      uri: of the first file.
      dialect: of the input.
      header: its line, raw; b"" if there is none.
      names: the columns.
      text: the file up to the last of the rows.
      spans: of the first rows in it.
      cells: those that could be split, as text.
    """

    uri: str
    dialect: Dialect
    header: bytes
    names: tuple[str, ...]
    text: bytes
    spans: Sequence[tuple[int, int]]
    cells: pa.Table

    @property
    def flags(self) -> tuple[int, ...]:
        """Returns the type flags of the columns in these rows."""
        return tuple(map(int, classify_columns(self.columns())))

    @property
    def rows(self) -> list[bytes]:
        """Returns the first rows, raw."""
        return [self.text[slice(*span)] for span in self.spans]

    def lines_before(self, row: int) -> int:
        """Returns the number of lines before a row."""
        return len(self.text[: self.spans[row][0]].splitlines())

    def other_delimiter(self) -> bytes:
        """Returns what seems to stand between the cells of the one column, or b""."""
        if len(self.names) > 1 or not self.rows:
            return b""
        for delimiter in CANDIDATES:
            expected = _count(self.header, delimiter)
            same = sum(_count(row, delimiter) == expected for row in self.rows)
            if expected and same >= SAME_SHARE * len(self.rows):
                return delimiter
        return b""

    def one_column(self) -> str:
        """Returns what is odd about a single column that looks like several, or ""."""
        delimiter = self.other_delimiter()
        if not delimiter:
            return ""
        mark = name_of(delimiter)
        return (
            f"{self.uri}: the header is the single column {shown(self.names[0])}, and the "
            f"rows have {mark} as often as it: this looks like a table with "
            f"`delimiter={mark}`"
        )

    def columns(self) -> list[pa.StringArray]:
        """Returns the cells of each column, numbers with a point."""
        columns = columns_of(self.cells.slice(0, LOOKED_AT), self.names)
        if self.dialect.decimal == ",":
            return [swap_points(column) for column in columns]
        return columns


def huge_warnings(names: Sequence[str]) -> list[str]:
    """Returns a warning for columns that are text because of their large numbers."""
    return [
        f"column {name!r} is text, because it holds numbers beyond float32 (at most "
        "3.4e38). To store numbers, declare it {dtype: float64, stored: tensor} in a "
        "schema file (`schema`)"
        for name in names[:_SHOWN_COLUMNS]
    ]


def _count(line: bytes, delimiter: bytes) -> int:
    """Counts the delimiters of a line, but not those inside quotes."""
    return _QUOTED.sub(b"", line).count(delimiter)
