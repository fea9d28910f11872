"""Reads the header of a CSV file: the names of its columns, and where its rows begin."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import OddRows
from recordmill.schemas.text import count
from recordmill.transforms.sources.csv.dialect import RFC_4180, ROW_ENDS, Dialect
from recordmill.transforms.sources.csv.leave_out import without_comments
from recordmill.transforms.sources.csv.row_bounds import BOM, Reader
from recordmill.transforms.sources.csv.row_patterns import row_patterns
from recordmill.transforms.sources.packing import MARK_BYTES, compression_of

MAX_HEADER_BYTES = 16 << 20
_READ_AHEAD = 1 << 16
_LINE = re.compile(rb"[^\r\n]*+(?:\r\n|\r|\n)")


def read_header(
    read: Reader, uri: str, dialect: Dialect = RFC_4180
) -> tuple[tuple[str, ...], int]:
    """Returns the column names and the byte offset of the first row behind them.

    Raises:
      InputError: no header, or one that cannot name features.
    """
    if not dialect.has_header:
        return _names_without_header(read, uri, dialect)
    raw, start, end = _first_row(read, uri, dialect)
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        packed = compression_of(read(0, MARK_BYTES))
        raise InputError(
            f"{uri}: the header is not UTF-8 at byte {start + error.start}: "
            f"{raw[error.start : error.start + 8]!r}. "
            + (
                f"It is {packed} compressed, but the first file is not: convert such "
                "files by themselves, or make them alike"
                if packed
                else "Say which encoding it is, for example `encoding=cp1252`"
            )
        ) from error
    cells = split_row(raw, dialect)
    if cells is None:
        raise InputError(f"{uri}: a quoted column name is never closed")
    if not any(cells):
        raise InputError(f"{uri}: no header; expected column names in the first row")
    names = numbered(cells)
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"{uri}: the header has column {name!r} {times} times; "
            f"expected column names that differ. {_way_out(name, dialect)}"
        )
    return names, end


def header_start(read: Reader, uri: str, dialect: Dialect) -> int:
    """Returns the byte offset of the header, or of the first row if there is none."""
    return _first_row(read, uri, dialect)[1]


def header_comments(head: bytes, dialect: Dialect) -> tuple[OddRows, ...]:
    """Returns the comments before a header.

    Args:
      head: a file's bytes before its first row.
      dialect: of the file.
    """
    start = _behind_lines(head + b"\n", dialect.skip_rows) or 0
    return without_comments(head[start:], dialect).odd


def numbered(cells: list[str]) -> tuple[str, ...]:
    """Returns the names of columns; one without a name gets its number."""
    return tuple(name.strip() or f"column_{index}" for index, name in enumerate(cells))


def split_row(row: bytes, dialect: Dialect = RFC_4180) -> list[str] | None:
    """Returns the text of each cell of one row, or None if a quote is never closed."""
    quote = dialect.quote
    patterns = row_patterns(dialect)
    is_marked = dialect.escape and dialect.escape in row
    if not is_marked and (not quote or quote not in row):
        return row.decode(errors="replace").split(dialect.delimiter.decode())
    cells = []
    at = 0
    while at <= len(row):
        match = patterns.cell.match(row, at)
        assert match is not None  # the pattern matches everything, if only ""
        quoted, closing, rest = match.groups()
        if quoted is not None and not closing:
            return None
        text = (quoted or b"").replace(quote * 2, quote) + rest
        if is_marked:
            text = patterns.meaning.sub(lambda found: found[1] or quote, quoted or b"")
            text += patterns.meaning.sub(lambda found: found[1] or found[0], rest)
        cells.append(text.decode(errors="replace"))
        at = match.end() + 1
    return cells


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file, or of one before it, which most files repeat.

    Attributes:
      names: of the columns.
      end: byte offset of the first row behind it.
      raw: the file's bytes before that.
    """

    names: tuple[str, ...] = ()
    end: int = 0
    raw: bytes = b""

    def of_file(self, data: bytes, uri: str, dialect: Dialect = RFC_4180) -> Header:
        r"""Returns the header of the next file, given all its bytes.

        Raises:
          InputError: as `read_header`.
        """
        # Behind \r a \n might follow.
        if self.raw.endswith(b"\n") and data.startswith(self.raw):
            return self
        names, end = read_header(lambda start, stop: data[start:stop], uri, dialect)
        return Header(names, end, data[:end])


def _names_without_header(
    read: Reader, uri: str, dialect: Dialect
) -> tuple[tuple[str, ...], int]:
    raw, start, _ = _first_row(read, uri, dialect)
    if dialect.columns:
        return dialect.columns, start
    cells = split_row(raw, dialect)
    if cells is None:
        raise InputError(
            f"{uri}: a quoted field of the first row is never closed, so its columns "
            "cannot be counted; name them with `columns`"
        )
    return numbered([""] * len(cells)), start


def _way_out(name: str, dialect: Dialect) -> str:
    """Returns what to do about a name that is there twice."""
    if any(character.isdigit() for character in name):
        return "If the table has no header, say so: `header=none`"
    lines = count(dialect.skip_rows + 1, "line")
    return (
        f"Name the columns yourself, and skip {lines}: `header=none`, "
        f"`skip_rows={dialect.skip_rows + 1}` and `columns`, for example a,b,c"
    )


def _first_row(read: Reader, uri: str, dialect: Dialect) -> tuple[bytes, int, int]:
    """Returns the bytes of the first row without its newline, its start, the next's."""
    size = _READ_AHEAD
    pattern = row_patterns(dialect).row
    while True:
        text = read(0, size)
        is_all = len(text) < size
        start = _behind_lines(text, dialect.skip_rows)
        if start is None and is_all:
            raise InputError(
                f"{uri}: `skip_rows` is {dialect.skip_rows}, but the file has no more "
                "lines than that; expected a header or rows behind them"
            )
        if start is not None:
            if dialect.comment:
                match = row_patterns(dialect).before_rows.match(text, start)
                start = match.end() if match else start
            elif not dialect.has_header:  # blank lines before the first row are no rows
                rest = text[start:]
                start += len(rest) - len(rest.lstrip(ROW_ENDS))
            match = pattern.match(text, start)
            assert match is not None  # as above
            # A row that ends with the text might go on behind it.
            if match.end() < len(text) or is_all:
                if dialect.comment and text[start : start + 1] == dialect.comment:
                    start = match.end()  # the last line of all
                return text[start : match.start(1)], start, match.end()
        if size >= MAX_HEADER_BYTES:
            raise InputError(
                f"{uri}: the header does not end in the first {size:,} bytes; is a "
                "quoted column name not closed, or is this not a CSV file?"
            )
        size *= 4


def _behind_lines(text: bytes, lines: int) -> int | None:
    """Returns the offset behind the BOM and some lines, or None if it is not there.

    A line that ends with the text may go on behind it, or end with one more byte.
    """
    at = len(BOM) if text.startswith(BOM) else 0
    for _ in range(lines):
        match = _LINE.match(text, at)
        if match is None or match.end() == len(text):
            return None
        at = match.end()
    return at
