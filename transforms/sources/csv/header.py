"""Reads the header of CSV files, and converts options to a dialect."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.ranges import RowIssue
from recordmill.schemas.text import format_count
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    RFC_4180,
    ROW_ENDS,
    Dialect,
    Reader,
    remove_comments,
    row_patterns,
)
from recordmill.transforms.sources.registry import DELIMITERS, CsvOptions
from recordmill.transforms.storage.input_stream import (
    MARK_BYTES,
    RequestedPacking,
    compression_of,
)

MAX_HEADER_BYTES = 16 << 20
_READ_AHEAD = 1 << 16
_LINE = re.compile(rb"[^\r\n]*+(?:\r\n|\r|\n)")


def read_header(
    read: Reader, uri: str, dialect: Dialect = RFC_4180
) -> tuple[tuple[str, ...], int]:
    """Returns the column names and the byte offset of the first row after the header.

    Raises:
      InputError: there is no header, or its names cannot be names of features.
    """
    raw, start, end = _find_first_row(read, uri, dialect)
    if dialect.columns:
        return dialect.columns, start
    if not dialect.has_header:
        cells = split_row(raw, dialect)
        if cells is None:
            raise InputError(
                f"{uri}: a quoted field of the first row is never closed, so its columns "
                "cannot be counted; name them with `columns`"
            )
        return number_unnamed_columns([""] * len(cells)), start
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        hint = "Set the encoding, for example `encoding=cp1252`"
        if packed := compression_of(read(0, MARK_BYTES)):
            alone = "convert such files separately, or make them consistent"
            hint = f"It is {packed} compressed, but the first file is not: {alone}"
        raise InputError(
            f"{uri}: the header is not UTF-8 at byte {start + error.start}: "
            f"{raw[error.start : error.start + 8]!r}. {hint}"
        ) from error
    cells = split_row(raw, dialect)
    if cells is None:
        raise InputError(f"{uri}: a quoted column name is never closed")
    if not any(cells):
        raise InputError(f"{uri}: no header; expected column names in the first row")
    names = number_unnamed_columns(cells)
    name, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"{uri}: the header has column {name!r} {times} times; "
            f"expected column names that differ. {_header_hint(name, dialect)}"
        )
    return names, end


def find_header(read: Reader, uri: str, dialect: Dialect) -> int:
    """Returns the byte offset of the header, or of the first row if there is none."""
    return _find_first_row(read, uri, dialect)[1]


def header_comments(head: bytes, dialect: Dialect) -> tuple[RowIssue, ...]:
    """Returns an issue for the comment lines before the first row of a file, if any."""
    start = _skip_lines(head + b"\n", dialect.skip_rows) or 0
    return remove_comments(head[start:], dialect)[1]


def number_unnamed_columns(cells: list[str]) -> tuple[str, ...]:
    """Returns column names; a column without a name becomes column_ and its number."""
    return tuple(name.strip() or f"column_{index}" for index, name in enumerate(cells))


def split_row(row: bytes, dialect: Dialect = RFC_4180) -> list[str] | None:
    """Splits a row into the text of its cells, or returns None for an open quote."""
    quote = dialect.quote
    patterns = row_patterns(dialect)
    if not any(mark and mark in row for mark in (quote, dialect.escape)):
        return row.decode(errors="replace").split(dialect.delimiter.decode())
    cells, at = [], 0
    while at <= len(row):
        match = patterns.cell.match(row, at)
        assert match is not None  # the pattern matches everything, if only ""
        quoted, closing, unquoted_bytes = match.groups()
        if quoted is not None and not closing:
            return None
        text = patterns.quote_or_escape.sub(
            lambda escape_match: escape_match[1] or quote, quoted or b""
        )
        text += patterns.quote_or_escape.sub(
            lambda escape_match: escape_match[1] or escape_match[0], unquoted_bytes
        )
        cells.append(text.decode(errors="replace"))
        at = match.end() + 1
    return cells


def _header_hint(name: str, dialect: Dialect) -> str:
    if any(character.isdigit() for character in name):
        return "If the table has no header, use `header=none`"
    lines = dialect.skip_rows + 1
    return (
        f"Name the columns explicitly, and skip {format_count(lines, 'line')}: `header=none`, "
        f"`skip_rows={lines}` and `columns`, for example a,b,c"
    )


def _find_first_row(read: Reader, uri: str, dialect: Dialect) -> tuple[bytes, int, int]:
    """Returns the first row without its line end, its offset and the next offset."""
    size = _READ_AHEAD
    pattern = row_patterns(dialect).row
    while True:
        text = read(0, size)
        is_all = len(text) < size
        start = _skip_lines(text, dialect.skip_rows)
        if start is None and is_all:
            raise InputError(
                f"{uri}: `skip_rows` is {dialect.skip_rows}, but the file has no more "
                "lines than that; expected a header or rows after them"
            )
        if start is not None:
            if dialect.comment:
                match = row_patterns(dialect).before_rows.match(text, start)
                start = match.end() if match else start
            elif not dialect.has_header:  # skip blank lines before the first row
                remaining_bytes = text[start:]
                start += len(remaining_bytes) - len(remaining_bytes.lstrip(ROW_ENDS))
            match = pattern.match(text, start)
            assert match is not None  # the pattern matches everything, as above
            # A row that ends with the bytes read so far may continue after them.
            if match.end() < len(text) or is_all:
                if dialect.comment and text[start : start + 1] == dialect.comment:
                    start = match.end()  # the comment is the last line of the file
                return text[start : match.start(1)], start, match.end()
        if size >= MAX_HEADER_BYTES:
            raise InputError(
                f"{uri}: the header does not end in the first {size:,} bytes; is a "
                "quoted column name not closed, or is this not a CSV file?"
            )
        size *= 4


def _skip_lines(text: bytes, lines: int) -> int | None:
    """Returns the offset after the BOM and `lines` lines, or None if the text is shorter.

    A line end at the end of the text may be the first half of a longer line end, so that
    line does not count.
    """
    at = len(BOM) if text.startswith(BOM) else 0
    for _ in range(lines):
        match = _LINE.match(text, at)
        if match is None or match.end() == len(text):
            return None
        at = match.end()
    return at


def format_delimiter(delimiter: bytes) -> str:
    """Returns the name of a delimiter, like "semicolon", or its repr, like "'#'"."""
    mark = delimiter.decode()
    names = (name for name, character in DELIMITERS.items() if character == mark)
    return next(names, repr(mark))


PRESETS: dict[str, dict[str, str]] = {
    "auto": {},
    **{name: {"delimiter": ","} for name in ("excel", "unix", "rfc4180")},
    "excel-tab": {"delimiter": "\t"},
    "mysql": {
        "delimiter": "\t",
        "quote": "none",
        "escape": "\\",
        "header": "none",
        "null_values": "\\N",
    },
}


def parse_dialect(options: CsvOptions) -> Dialect:
    """Converts options to a dialect; an unset delimiter stays empty.

    Raises:
      UsageError: options cannot be combined, or column names are not distinct.
    """
    explicit_options = options.model_dump(exclude_defaults=True)
    options = CsvOptions.model_validate(PRESETS[options.dialect] | explicit_options)
    marks = {"delimiter": "" if options.delimiter == "auto" else options.delimiter}
    for name in ("quote", "escape", "comment"):
        mark = getattr(options, name)
        marks[name] = "" if mark == "none" else mark
    for (option, mark), (other_option, other_mark) in combinations(marks.items(), 2):
        if mark and mark == other_mark:
            raise UsageError(
                f"`{option}` and `{other_option}` are both {mark!r}; expected two characters, or "
                f"`{other_option}=none`"
            )
    delimiter, quote, escape, comment = (mark.encode() for mark in marks.values())
    if options.decimal == "comma" and delimiter == b"," and not quote:
        raise UsageError(
            "`delimiter` and `decimal` are both a comma; expected another `delimiter`, or "
            "a `quote` around the numbers"
        )
    columns = _parse_names(options.columns)
    nulls = split_row(options.null_values.encode(), RFC_4180)
    if nulls is None:
        raise UsageError(
            f"`null_values`: a quote is not closed in {options.null_values}"
        )
    if columns and options.header == "first":
        raise UsageError(
            "`columns` and `header=first` cannot be combined: `columns` is for tables "
            "without a header. To replace a header, use `skip_rows=1` and leave out "
            "`header`"
        )
    return Dialect(
        delimiter=delimiter,
        quote=quote,
        skip_rows=options.skip_rows,
        header=options.header,
        columns=columns,
        null_values=tuple(filter(None, nulls)),
        escape=escape,
        comment=comment,
        decimal="," if options.decimal == "comma" else ".",
    )


def parse_packing(options: CsvOptions) -> RequestedPacking:
    """Returns the requested compression and encoding; None for automatic detection."""
    compression = {"auto": None, "none": ""}
    return RequestedPacking(
        compression.get(options.input_compression, options.input_compression),
        None if options.encoding == "auto" else options.encoding,
    )


def _parse_names(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    names = tuple(name.strip() for name in split_row(text.encode()) or ())
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(
            f"`columns`: expected comma-separated names that differ, found {text!r}"
        )
    return names
