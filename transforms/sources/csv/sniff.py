"""Finds the delimiter of a CSV file in its first rows, or says that it cannot be told.

The rows are split with each delimiter that is common. A reading is possible if it has
several columns and nearly all rows have as many cells as the first one. Comma comes first: it
is given up only if it is not possible. Where another reading is about as good, nothing
is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from recordmill.schemas.errors import InputError
from recordmill.schemas.text import count
from recordmill.transforms.sources.csv.dialect import (
    AskedDialect,
    Dialect,
    name_of,
)
from recordmill.transforms.sources.csv.header_row import (
    MAX_HEADER_BYTES,
    header_start,
    numbered,
    split_row,
)
from recordmill.transforms.sources.csv.row_bounds import Reader, row_spans

CANDIDATES = (b",", b";", b"\t", b"|")
SAMPLE_BYTES = 1 << 16
SAMPLED_ROWS = 100
SAME_SHARE = 0.9  # of the rows that have as many cells as the first
_CLEARLY = 0.2  # by which one score is above another
# Numbers with any mark of thousands and decimals, dates, booleans, nothing.
_TYPED = re.compile(
    r"|[-+]?[0-9.,']*[0-9][0-9.,']*([eE][-+]?[0-9]+)?%?|(?i:true|false)"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T][\d:.]+.*)?"
)


@dataclass(frozen=True, slots=True)
class DelimiterReading:
    """The first rows of a file, split with one delimiter.

    Attributes:
      delimiter: the byte.
      first: cells of the first row.
      others: those of the other rows.
    """

    delimiter: bytes
    first: Sequence[str]
    others: Sequence[Sequence[str]]

    @property
    def is_possible(self) -> bool:
        """Tells whether this looks like a table of several columns."""
        rows = len(self.others)
        return len(self.first) > 1 and 0 < SAME_SHARE * rows <= len(self._same)

    @property
    def score(self) -> float:
        """Returns how many of the cells are numbers, dates or booleans, as a share."""
        cells = [cell.strip() for row in self._same for cell in row]
        return sum(_TYPED.fullmatch(cell) is not None for cell in cells) / len(cells)

    @property
    def _same(self) -> list[Sequence[str]]:
        return [row for row in self.others if len(row) == len(self.first)]


def read_with(sample: bytes, dialect: Dialect, *, is_whole: bool) -> DelimiterReading:
    """Returns the reading of the first rows with a delimiter.

    Args:
      sample: the file's first bytes, from the header on.
      dialect: with that delimiter.
      is_whole: whether the sample ends where the file does.
    """
    spans = row_spans(sample, dialect)
    if not is_whole and len(spans) > 1:
        spans = spans[:-1]  # the last one is cut
    rows = [sample[slice(*span)] for span in spans[: SAMPLED_ROWS + 1]]
    split = [split_row(row, dialect) for row in rows]
    if split and split[-1] is None:  # a quote that is never closed, or not yet
        split.pop()
    first, *others = [cells or [] for cells in split] or [[]]
    return DelimiterReading(dialect.delimiter, first, others)


def find_delimiter(
    read: Reader, uri: str, asked: AskedDialect, wanted: Sequence[str] = ()
) -> bytes:
    """Returns the delimiter of a file.

    Args:
      read: reads bytes of the file.
      uri: of the file.
      asked: what is known of its dialect.
      wanted: columns that it should have, if they are known.

    Raises:
      InputError: two delimiters are about as likely.
    """
    if asked.delimiter:
        return asked.delimiter
    candidates = [each for each in CANDIDATES if each not in asked.marks]
    comma = candidates[0]
    sample, is_whole = _sample(read, uri, asked.with_delimiter(comma))
    readings = [
        read_with(sample, asked.with_delimiter(delimiter), is_whole=is_whole)
        for delimiter in candidates
        if delimiter == comma or delimiter in sample
    ]
    if wanted and asked.has_header:
        for reading in readings:
            if {*wanted} <= {*numbered([*reading.first])}:
                return reading.delimiter
    return choose(uri, [each for each in readings if each.is_possible], comma)


def _sample(read: Reader, uri: str, dialect: Dialect) -> tuple[bytes, bool]:
    """Returns the first rows of a file, and whether that is all of it."""
    start = header_start(read, uri, dialect)
    size = SAMPLE_BYTES
    while True:
        sample = read(start, start + size)
        is_whole = len(sample) < size
        # Half a row tells nothing: of a wide table, more is read.
        if is_whole or size >= MAX_HEADER_BYTES or len(row_spans(sample, dialect)) > 2:
            return sample, is_whole
        size *= 4


def choose(uri: str, possible: Sequence[DelimiterReading], usual: bytes) -> bytes:
    """Returns the delimiter of the best reading; the usual one if none is possible.

    Raises:
      InputError: two are about as good.
    """
    if not possible:
        return usual
    best = max(possible, key=lambda reading: reading.score)
    if possible[0].delimiter == usual:
        best = possible[0]
    rivals = [
        reading
        for reading in possible
        if reading is not best and reading.score > best.score - _CLEARLY
    ]
    if not rivals:
        return best.delimiter
    both = (best, rivals[0])
    found = " and ".join(
        f"{count(len(each.first), 'column')} with {name_of(each.delimiter)}"
        for each in both
    )
    ways = " or ".join(f"`delimiter={name_of(each.delimiter)}`" for each in both)
    raise InputError(
        f"{uri}: the first rows have {found} between the cells; expected one that is "
        f"clearly better. Say which it is: {ways}"
    )
