"""Detects the delimiter of tables, and whether their first row is a header.

The first rows are the evidence. Each cell has a sort (`sort_of`): number, boolean, text,
or a pattern such as $9.9 and 9-9-9. A delimiter is possible if it splits the rows into
several columns and nearly all rows have the same number of cells. The comma is preferred;
if another delimiter is about as likely, an error requests a decision. The first row is
data if its cells have the sorts of the columns below them. It is the header if its cells
are text above numbers. Blank columns, missing values and single odd cells do not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, takewhile

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputReport, InputWarning, WarningCode
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import escape_unprintable, format_count
from recordmill.transforms.cast.text_values import MISSING_WORDS, shorten
from recordmill.transforms.sources.csv.header import (
    MAX_HEADER_BYTES,
    find_header,
    format_delimiter,
    number_unnamed_columns,
    read_header,
    split_row,
)
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    RFC_4180,
    Dialect,
    Reader,
    find_row_spans,
)
from recordmill.transforms.sources.csv.rows import RangeRows
from recordmill.transforms.sources.other_format import (
    BINARY,
    HEAD_BYTES,
    recognize_content,
)
from recordmill.transforms.sources.partitions import Partitions
from recordmill.transforms.sources.plain_types import describe_column_differences
from recordmill.transforms.sources.text_columns import (
    TypeFlag,
    classify_columns,
    marked_numbers,
    with_decimal_points,
)
from recordmill.transforms.storage.input_stream import (
    MARK_BYTES,
    Packing,
    RequestedPacking,
    compression_mismatch_message,
    compression_of,
    encoding_of,
)
from recordmill.transforms.storage.reading import open_stream, read_range

CANDIDATE_DELIMITERS = (b",", b";", b"\t", b"|")
# Rare delimiters, which are never chosen without `delimiter`; they lead to an error that
# proposes the option.
_RARE_DELIMITERS = (b":", b" ", b"^", b"~", b"\x01", b"\x02", b"\x1f")
SAMPLE_BYTES = 1 << 16
SAMPLED_ROWS = 100
TYPED_BYTES = 1 << 16
MIN_SAME_SHARE = 0.9  # minimum share of rows with the same number of cells as the first
_MIN_SCORE_DIFFERENCE = 0.2  # minimum difference between two scores
# maximum number of lines that look alike before the header
_MAX_LINES_BEFORE_HEADER = 10
_MAX_FOOTER_LINES = 3  # maximum number of last lines with another number of cells
_SHOWN_COLUMNS = 10
_SHOWN_CHARACTERS = 40  # maximum length of a column name in the report
# maximum number of columns that decide whether there is a header
_MAX_WEIGHED_COLUMNS = 200

_NUMBER = re.compile(
    r"[-+]?(?:[0-9][0-9.,']*|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:inf|nan)",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_YEAR = re.compile(r"[12]\d{3}")
_BLANK_CELLS = (
    "",
    "-",
    "--",
    "?",
    ".",
    "n.a.",
    "n/d",
    "nan",
    *map(str.lower, MISSING_WORDS),
)
_DIGITS, _LETTERS = re.compile(r"[0-9]+"), re.compile(r"[^\W\d_]+")
TEXT = "text"
_PLAIN_SORTS = NUMBER, BOOLEAN, DATE = "number", "boolean", "date"


def sort_of(cell: str) -> str:
    """Returns the sort of a cell, or "" for a missing value.

    >>> [*map(sort_of, ("1.5", "n.a.", "Jane Doe", "2026-01-31", "$5.00", "A-17", "7%"))]
    ['number', '', 'text', 'date', '$9.9', 'a-9', '9%']
    """
    cell = cell.strip()
    if cell.lower() in _BLANK_CELLS:
        return ""
    if _NUMBER.fullmatch(cell):
        return NUMBER
    if cell.lower() in ("true", "false"):
        return BOOLEAN
    if _DATE.fullmatch(cell):
        return DATE
    if not (pattern := _DIGITS.sub("9", cell[:64])).isascii() or "9" not in pattern:
        return TEXT
    return _LETTERS.sub("a", pattern)


def _is_typed(sort: str) -> bool:
    """Returns whether column names never have this sort."""
    return sort not in ("", TEXT) and (
        sort in (NUMBER, BOOLEAN, DATE) or sort[0] != "a"
    )


def _most_common_sort(cells: Iterable[str]) -> tuple[str, float]:
    """Returns the most common sort of cells, and its share, without missing values."""
    sorts = Counter(sort for cell in cells if (sort := sort_of(cell)))
    [(sort, number)] = sorts.most_common(1) or [("", 1)]
    return sort, number / max(1, sorts.total())


def parse_sep_line(read: Reader) -> bytes:
    r"""Returns the delimiter that a first line like Excel's sep=; states, or b"".

    >>> parse_sep_line(lambda start, stop: b"sep=;\r\nid;name\r\n"[start:stop])
    b';'
    """
    line = read(0, 16).removeprefix(BOM).lower()
    match = re.match(rb'"?sep=([\x01-\x08\t\x0b\x1f-\x7f])"?[\r\n]', line)
    return match[1] if match else b""


def describe_other_content(start: bytes) -> str:
    """Returns the reason why a file is no text table and how to fix it, or ""."""
    format_name, _ = recognize_content(start)
    if format_name not in ("", "text with delimiters", BINARY):
        # `report_other_format` adds how to fix it.
        return f"is {format_name}, not a table of text"
    zeros = [byte == 0 for byte in start[:4]]
    if zeros not in ([False, True] * 2, [True, False] * 2):
        return ""
    codec = "utf-16-be" if zeros[0] else "utf-16-le"
    return (
        "it seems to be UTF-16 without a byte order mark. If it is, use "
        f"`encoding={codec}`"
    )


@dataclass(frozen=True)
class _SplitSample:
    """The first rows of a file, split at one delimiter."""

    rows: list[list[str]]
    is_whole: bool  # whether these are all rows of the file

    @cached_property
    def width(self) -> int:
        """Returns the number of cells of nearly all rows, or 0 if there is none."""
        width, *other_widths = [len(row) for row in self.rows]
        number = other_widths.count(width)
        [(common, times)] = Counter(other_widths).most_common(1) or [(0, 0)]
        # The lines path, /a|b, /c|d can be a single column, so a few lines do not count.
        if (
            common > 1
            and number < min(times, _MAX_LINES_BEFORE_HEADER)
            and common + times > 4
        ):
            width, number = common, times
            other_widths = other_widths[other_widths.index(width) :]
        while other_widths and self.is_whole and other_widths[-1] != width:
            if len(other_widths) - number > _MAX_FOOTER_LINES or 2 * number < len(
                other_widths
            ):
                break
            other_widths.pop()
        fits = 0 < MIN_SAME_SHARE * len(other_widths) <= number
        return width if fits and width > 1 else 0

    @cached_property
    def score(self) -> float:
        """Returns the share of cells that are numbers, booleans, dates, % or missing."""
        cells = [
            cell for row in self.rows[1:] if len(row) == self.width for cell in row
        ]
        typed = sum(sort in (*_PLAIN_SORTS, "9%", "") for sort in map(sort_of, cells))
        return typed / max(1, len(cells))


def find_delimiter(
    read: Reader,
    uri: str,
    requested_dialect: Dialect,
    requested_columns: Sequence[str] = (),
) -> bytes:
    """Returns the requested delimiter of a file, or detects it.

    A delimiter whose header contains all requested columns is preferred.

    Raises:
      InputError: two delimiters are about equally likely, or only a rare one is.
    """
    if requested_dialect.delimiter:
        return requested_dialect.delimiter
    comma, *other_candidates = [
        candidate
        for candidate in CANDIDATE_DELIMITERS
        if candidate not in requested_dialect.marks
    ]
    sample, is_whole = _read_sample(
        read, uri, replace(requested_dialect, delimiter=comma)
    )
    readings = {
        candidate: _split_rows(
            sample, replace(requested_dialect, delimiter=candidate), is_whole
        )
        for candidate in (comma, *other_candidates)
        if candidate == comma or candidate in sample
    }
    if requested_columns and requested_dialect.has_header:
        for delimiter, reading in readings.items():
            if {*requested_columns} <= {*number_unnamed_columns(reading.rows[0])}:
                return delimiter
    possible_readings = {
        candidate: reading for candidate, reading in readings.items() if reading.width
    }
    # Prefer delimiters with the same number of cells in the first row as in the others.
    complete_readings = {
        e: f for e, f in possible_readings.items() if len(f.rows[0]) == f.width
    }
    possible_readings = complete_readings or possible_readings
    if not possible_readings:
        if not requested_columns and (
            problem := _describe_rare_delimiter(
                sample, uri, requested_dialect, is_whole
            )
        ):
            raise InputError(problem)
        return comma
    top = max(
        possible_readings, key=lambda candidate: possible_readings[candidate].score
    )
    best = comma if comma in possible_readings else top
    if (
        possible_readings[top].score
        > possible_readings[best].score + _MIN_SCORE_DIFFERENCE
    ):
        best = top
    min_score = possible_readings[best].score - _MIN_SCORE_DIFFERENCE
    rivals = [
        e
        for e in possible_readings
        if e != best and possible_readings[e].score > min_score
    ]
    if not rivals:
        return best
    interpretations = " and ".join(
        f"{format_count(len(readings[candidate].rows[0]), 'column')} with {format_delimiter(candidate)}"
        for candidate in (best, rivals[0])
    )
    raise InputError(
        f"{uri}: the delimiter is ambiguous: the first rows have {interpretations}. Set "
        f"`delimiter={format_delimiter(best)}` or `delimiter={format_delimiter(rivals[0])}`"
    )


# Separators of several characters, at which recordmill cannot split rows: bytes that must
# occur, the pattern, a description, and a sed script that writes tabs instead.
_LONG_SEPARATORS = (
    (b"  ", rb" {2,}", "runs of spaces", r"s/^ *//; s/   */\t/g"),
    (b"  ", rb" +", "runs of spaces", r"s/^ *//; s/  */\t/g"),
    (b"::", rb"::", "'::'", r"s/::/\t/g"),
)
# Cells that contain such characters although they are one value.
_SINGLE_VALUE = re.compile(
    r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?|[-+]?\d{1,3}( \d{3})+|\w+://.*"
)


def _describe_rare_delimiter(
    sample: bytes, uri: str, requested_dialect: Dialect, is_whole: bool
) -> str:
    """Returns the message for a single column that seems to be several, or ""."""
    lines = _split_rows(
        sample, replace(requested_dialect, delimiter=b"\0"), is_whole
    ).rows
    cells = [line[0].strip() for line in lines[1:] if line]
    single_values = [
        cell for cell in cells if _SINGLE_VALUE.fullmatch(cell) or _DATE.fullmatch(cell)
    ]
    if len(lines) < 2 or len(single_values) * 2 > len(cells):
        return ""
    keep_advice = "To keep it as one column, use `delimiter=comma`"
    runs = []
    for needed, pattern, separator, script in _LONG_SEPARATORS:
        if needed in sample:
            text = re.sub(pattern, b"\x1d", re.sub(rb"(?m)^ +", b"", sample))
            reading = _split_rows(
                text, replace(requested_dialect, delimiter=b"\x1d"), is_whole
            )
            same = [len(row) for row in reading.rows].count(reading.width)
            runs += [(same, reading.width, separator, script)] * (reading.width > 1)
    if runs:
        _, width, separator, script = max(runs, key=lambda run: run[0])
        return (
            f"{uri}: a single column, but the rows have {separator} between "
            f"{format_count(width, 'cell')}; expected one character. Replace them by tabs, "
            f"for example with sed '{script}'. {keep_advice}"
        )
    for mark in _RARE_DELIMITERS:
        reading = _split_rows(
            sample, replace(requested_dialect, delimiter=mark), is_whole
        )
        is_header = len(reading.rows[0]) == reading.width
        if not reading.width or (
            not is_header and reading.width < 3 and mark in b": "  # ratio, 16:9, 4:3
        ):
            continue
        # Spaces also separate the words of a text.
        if (
            mark != b" "
            or (reading.width > 2 and is_header)
            or _has_typed_columns(reading)
        ):
            name = format_delimiter(mark)
            return (
                f"{uri}: a single column, but the rows have {name} between "
                f"{format_count(reading.width, 'cell')}. Use `delimiter={name}`. {keep_advice}"
            )
    return ""


def _has_typed_columns(reading: _SplitSample) -> bool:
    """Returns whether a cell contains a space, or most cells of a column are typed."""
    if any(" " in cell for row in reading.rows for cell in row):
        return True
    rows = [row for row in reading.rows[1:] if len(row) == reading.width]
    sorts = [_most_common_sort(cells) for cells in zip(*rows, strict=True)]
    return any(_is_typed(sort) and share >= 0.8 for sort, share in sorts)


def _read_sample(read: Reader, uri: str, dialect: Dialect) -> tuple[bytes, bool]:
    """Returns the text of the first rows of a file, and whether it is the whole file."""
    start = find_header(read, uri, dialect)
    size = SAMPLE_BYTES
    while True:
        sample = read(start, start + size)
        is_whole = len(sample) < size
        # At least two whole rows are needed, so more is read from a wide table.
        if (
            is_whole
            or size >= MAX_HEADER_BYTES
            or len(find_row_spans(sample, dialect)) > 2
        ):
            return sample, is_whole
        size *= 4


def _split_rows(sample: bytes, dialect: Dialect, is_whole: bool) -> _SplitSample:
    spans = find_row_spans(sample, dialect)
    if not is_whole and len(spans) > 1:
        spans = spans[:-1]  # the last row is incomplete
    rows = [sample[slice(*span)] for span in spans[: SAMPLED_ROWS + 1]]
    split = [split_row(row, dialect) for row in rows]
    if split and split[-1] is None:  # a quote that is not closed in the sample
        split.pop()
    is_whole = is_whole and len(spans) <= SAMPLED_ROWS + 1
    return _SplitSample([cells or [] for cells in split] or [[]], is_whole)


@dataclass(frozen=True, slots=True)
class FirstRows:
    """The first rows of an input."""

    uri: str  # URI of the first file
    dialect: Dialect  # dialect of the input
    header: bytes  # raw line of the header, or b"" if there is none
    names: tuple[str, ...]  # names of the columns
    text: bytes  # the file from its start to the end of the last of these rows
    spans: Sequence[tuple[int, int]]  # start and end of each row in `text`
    cells: pa.RecordBatch  # the rows that could be split, as text columns

    @property
    def rows(self) -> list[bytes]:
        """Returns the raw bytes of the first rows."""
        return [self.text[slice(*span)] for span in self.spans]

    @property
    def line(self) -> str:
        """Returns the location of the first line after `skip_rows`."""
        return f"{self.uri}: line {self.dialect.skip_rows + 1}"


def find_header_doubts(first: FirstRows) -> tuple[str, str]:
    """Returns the problem and the doubt with the first row as header; "" for none.

    Consecutive years and dates (2001, 2002, 2003) are accepted as names. So are the
    numbers from 0 that pandas writes for columns without names. Other series (1, 2, 3)
    raise a doubt.
    """
    header_cells = split_row(first.header, first.dialect)
    if not first.dialect.has_header or not header_cells or not first.cells.num_rows:
        return "", ""
    matching_names, num_codes, num_different, num_recurring, num_odd = [], 0, 0, 0, 0
    columns = first.cells.select(first.names).columns
    for name, column in zip(header_cells[:_MAX_WEIGHED_COLUMNS], columns, strict=False):
        cells = column[:SAMPLED_ROWS].drop_null().to_pylist()
        name_sort, (sort, share) = sort_of(name), _most_common_sort(cells)
        if not name_sort or not sort:
            continue
        if name_sort == sort and share >= 0.5:
            matching_names += [name.strip()] * _is_typed(sort)
            num_codes += not _is_typed(sort) and sort != TEXT
            num_recurring += sort == TEXT and name in cells
        elif share >= 0.8 and sort != TEXT:
            num_odd += _is_typed(name_sort)
            num_different += not _is_typed(name_sort)
    line = first.line
    row = (
        f"{_shown(first.header)}. If the table has no header, use `header=none`, and "
        "name its columns with `columns`. If it is the header, use `header=first`"
    )
    doubt = f"{line} is used as the header, but looks like a row: {row}"
    names = [name.strip() for name in header_cells]
    if names == [*map(str, range(len(names)))] and len(names) > 1:
        return "", ""
    if not matching_names:
        is_odd = (
            0 < num_odd < 3
        )  # three or more are a series: 2026-01, 2026-02, 2026-03
        return "", doubt if (
            num_codes or num_recurring or is_odd
        ) and not num_different else ""
    numbers = [
        float(name)
        for name in matching_names
        if _YEAR.fullmatch(name) or _is_number(name)
    ]
    is_alike = len(numbers) == len(matching_names) or all(
        map(_DATE.fullmatch, matching_names)
    )
    are_years = is_alike and all(map(_YEAR.fullmatch, matching_names))
    if _is_series(matching_names, numbers) or (num_different and are_years):
        return "", "" if num_different or are_years else doubt
    if num_different and (is_alike or len(matching_names) < num_different):
        return "", doubt
    return f"{line} should be the header, but it looks like a row: {row}", ""


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def _is_series(names: Sequence[str], numbers: Sequence[float]) -> bool:
    """Returns whether three or more names form a series, as in a pivot table."""
    dates = [name for name in names if _DATE.fullmatch(name)]
    steps = {
        round(next_number - number, 9) for number, next_number in pairwise(numbers)
    }
    return len(dates) > 2 or (len(numbers) > 2 and len(steps) == 1 and steps != {0})


def describe_repeated_header(first: FirstRows) -> str:
    """Returns the problem if the first row repeats the names of `columns`, or ""."""
    cells = split_row(first.rows[0], first.dialect) if first.rows else None
    names = tuple(cell.strip() for cell in cells or ())
    if not names or names != first.dialect.columns:
        return ""
    return (
        f"{first.uri}: the first row has exactly the names in `columns`, so it is a "
        "header. Leave out `columns`"
    )


_COMMENT_MARKS = (b"#", b"%", b";", b"!")  # usual first bytes of comments
_UNSAFE_CHARACTERS = re.compile(
    r"[\s`,\"]"
)  # characters that a suggested `columns` cannot contain


def _shown(row: bytes) -> str:
    return shorten(row.decode(errors="replace"))


def describe_width_mismatch(first: FirstRows) -> str:
    """Returns the problem if the header does not fit the rows below it, or "".

    R writes no name above the column of row names. Programs that write reports put lines
    before the header.
    """
    widths = [
        len(split_row(row, first.dialect) or ()) for row in (first.header, *first.rows)
    ]
    expected, mark = widths[0], first.header[:1]
    num_alike = 1  # number of first lines with the same comment mark as the header
    if mark in _COMMENT_MARKS:
        num_alike += sum(1 for _ in takewhile(lambda row: row[:1] == mark, first.rows))
    data_widths = widths[num_alike:]
    if not data_widths or not first.dialect.has_header:
        return ""
    width, rows = Counter(data_widths).most_common(1)[0]
    at = num_alike + data_widths.index(width)
    if width <= expected or expected in widths[at:]:
        return ""
    if rows < MIN_SAME_SHARE * len(widths[at:]):
        return ""
    mismatch = (
        f"{first.uri}: the header has {format_count(expected, 'name')}, but the rows below it "
        f"have {format_count(width, 'cell')}"
    )
    if at == 1 and width == expected + 1 > 2:
        names = ",".join(["row", *first.names])
        columns_option = (
            "`columns`" if _UNSAFE_CHARACTERS.search(names.replace(",", "")) else ""
        )
        return (
            f"{mismatch}, as in files of R with row names. Name all columns, and skip "
            f"this header: {columns_option or f'`columns={names}`'} and "
            f"`skip_rows={first.dialect.skip_rows + 1}`"
        )
    if at == num_alike > 1:
        return f"{mismatch}. If it is a comment, use `comment={mark.decode()}`"
    lines_before = len(first.text[: first.spans[at - 1][0]].splitlines())
    return (
        f"{mismatch}. If the header is {_shown(first.rows[at - 1])}, skip the lines "
        f"before it: `skip_rows={lines_before}`"
    )


def describe_commented_header(first: FirstRows) -> str:
    """Returns a warning if the header may be a comment, or ""."""
    dialect, lines = first.dialect, [first.header, *first.rows]
    if dialect.comment or not dialect.has_header or len(lines) < 2:
        return ""
    if lines[0][:1] != b"#" or (len(first.names) > 1 and lines[1][:1] != b"#"):
        return ""
    first_row = next((line for line in lines if line[:1] != b"#"), b"")
    if len(first.names) == 1 and not any(
        mark in first_row for mark in CANDIDATE_DELIMITERS
    ):
        return ""
    return (
        f"{first.line}, the header, begins with a '#': {_shown(lines[0])}. If lines like "
        "it are comments, use `comment=#`"
    )


def describe_escaped_quotes(first: FirstRows) -> str:
    r"""Returns a warning if quotes may be escaped as \", as Spark writes them, or ""."""
    dialect = first.dialect
    quote, ends = map(re.escape, (dialect.quote, dialect.field_ends + dialect.quote))
    cell = rb"(?:^|[%b])(%b[^%b\r\n]*\\%b[^%b])" % (ends, quote, quote, quote, ends)
    if (
        dialect.escape
        or not dialect.quote
        or not (match := re.search(cell, first.text))
    ):
        return ""
    return (
        f"{first.uri}: in the cell that begins with {_shown(match[1])} a quote follows "
        "a backslash. If that quote does not end the cell, as in files of Spark, use "
        "`escape=backslash`"
    )


def create_input_report(
    rows: RangeRows,
    requested_dialect: Dialect,
    dtypes: Sequence[str],
    basis: str,
    warnings: Sequence[InputWarning],
) -> InputReport:
    """Returns the input report of a table.

    Args:
      rows: The rows, with columns and dialect.
      requested_dialect: The dialect that the options request.
      dtypes: Type of each column; empty if the types are declared.
      basis: Description of the rows that the types are based on.
      warnings: Warnings for the report.
    """
    names, dialect = rows.names, rows.dialect
    columns = []
    for at, name in enumerate(names[:_SHOWN_COLUMNS]):
        text = escape_unprintable(name)
        if len(text) > _SHOWN_CHARACTERS:
            text = f"{text[: _SHOWN_CHARACTERS - 3]}..."
        columns.append(" ".join((text, *dtypes[at : at + 1])))
    if num_more := len(names) - len(columns):
        columns.append(f"{num_more:,} more")
    unnamed = [name for at, name in enumerate(names) if name == f"column_{at}"]
    is_detected = (
        dialect.delimiter != CANDIDATE_DELIMITERS[0] and not requested_dialect.delimiter
    )
    header = "none, the columns are named by the job" if dialect.columns else "none"
    if dialect.has_header:
        suffix = ", comments not counted" if dialect.comment else ""
        header = f"line {dialect.skip_rows + 1}{suffix}"
    comment = dialect.comment.decode()
    quote = dialect.quote.decode() or "none"
    unnamed_text = ", ".join(unnamed[:_SHOWN_COLUMNS])
    facts = {
        "file": "" if rows.packing.is_plain else rows.packing.description,
        "delimiter": format_delimiter(dialect.delimiter)
        + (", found in the first rows" if is_detected else ""),
        "comments": comment and f"lines that begin with {comment}",
        "escape": dialect.escape.decode(),
        "quote": quote if dialect.quote != RFC_4180.quote else "",
        "header": header,
        "columns": f"{len(names):,} ({', '.join(columns)})",
        "types": basis,
        "decimals": "with a comma" if dialect.decimal == "," else "",
        "null values": ", ".join(map(shorten, dialect.null_values)),
        "columns without a name": f"{len(unnamed):,}, named {unnamed_text}"
        if unnamed and dialect.has_header
        else "",
    }
    return InputReport(
        tuple((name, text) for name, text in facts.items() if text), tuple(warnings)
    )


@dataclass(frozen=True, slots=True)
class FirstRowFindings:
    """The types and warnings that the first rows of an input lead to."""

    num_rows: int = 0  # number of rows examined
    types: TypeFlags = ()  # type flags of the columns in these rows
    warnings: tuple[InputWarning, ...] = ()
    has_quotes: bool = False
    # text columns that look like numbers with thousands separators or decimal commas
    marked_issues: tuple[RowIssue, ...] = ()


def inspect_first_rows(
    rows: RangeRows, file: InputFile, *, is_guessed: bool, infers_types: bool
) -> tuple[FirstRowFindings, str]:
    """Checks the first rows of a file; returns types, warnings, and a problem or "".

    Args:
      rows: The rows, with columns and dialect.
      file: The first file.
      is_guessed: Whether the header was detected, not requested.
      infers_types: Whether types are inferred from cells.
    """
    first = _read_first_rows(rows, file)
    quote, decimal = rows.dialect.quote, rows.dialect.decimal
    cells = first.cells[:SAMPLED_ROWS]
    flags = map(int, classify_columns(with_decimal_points(cells.columns, decimal)))
    types = dict(zip(cells.schema.names, flags, strict=True))
    texts = [
        name for name in rows.names if infers_types and types[name] & TypeFlag.TEXT
    ]
    marked = (marked_numbers(name, cells.column(name), decimal) for name in texts)
    problem, doubt = find_header_doubts(first) if is_guessed else ("", "")
    has_escapes = describe_escaped_quotes(first)
    warning_texts: dict[WarningCode, str] = {
        "escaped-quotes": has_escapes,
        "other-widths": "" if has_escapes else describe_width_mismatch(first),
        "comment-header": describe_commented_header(first),
        "doubtful-header": doubt if infers_types else "",
    }
    if first.header and first.rows and len(first.names) == 1:
        if other := _find_better_delimiter(rows, file):
            warning_texts["single-column"] = (
                f"{file.uri}: the header is the single column {shorten(first.names[0])}, but "
                f"this looks like a table with `delimiter={other}`"
            )
    return FirstRowFindings(
        num_rows=cells.num_rows,
        types=tuple(types[name] for name in rows.names),
        warnings=tuple(
            InputWarning(*coded_text)
            for coded_text in warning_texts.items()
            if coded_text[1]
        ),
        has_quotes=bool(quote) and quote in first.text,
        marked_issues=tuple(chain.from_iterable(marked))[:_SHOWN_COLUMNS],
    ), describe_repeated_header(first) or problem


def detect_rows(
    files: Sequence[InputFile],
    requested_dialect: Dialect,
    requested_packing: RequestedPacking,
    requested_columns: Sequence[str],
    storage: StorageOptions,
    *,
    leaves_out: bool = False,
    partitions: Partitions,
) -> tuple[RangeRows, list[str], set[str]]:
    """Detects compression, encoding, dialect and columns of files that are not empty.

    Returns:
      The rows of the files, the paths of uncompressed files that have only a header,
        and the names of columns that are ignored: they are neither requested nor,
        without requested columns, in the first file.

    Raises:
      InputError: they cannot be detected, or differ between files.
    """
    if not files:
        raise InputError(
            "every input file is empty; expected a header and rows of values"
        )
    first = files[0]
    compression, encoding = requested_packing
    start = RangeRows((), storage).start_reader(first)(0, MARK_BYTES)
    if compression is None:
        compression = compression_of(start)
    if encoding is None:
        if compression:
            start = open_stream(first, storage, compression=compression).read_block()
        encoding = encoding_of(start)
    rows = RangeRows((), storage, packing=Packing(compression, encoding))
    if problem := describe_other_content(rows.start_reader(first)(0, HEAD_BYTES)):
        raise InputError(f"{first.uri}: {problem}")
    stated_delimiter = (
        b"" if requested_dialect.skip_rows else parse_sep_line(rows.start_reader(first))
    )
    if stated_delimiter:
        requested_dialect = replace(
            requested_dialect,
            delimiter=requested_dialect.delimiter or stated_delimiter,
            skip_rows=1,
        )
    delimiter = find_delimiter(
        rows.start_reader(first), first.uri, requested_dialect, requested_columns
    )
    dialect = replace(requested_dialect, delimiter=delimiter)
    rows = replace(rows, dialect=dialect, ignores_extra_columns=leaves_out)
    names: tuple[str, ...] = ()  # columns of the first file; all files have the same
    known_columns, file_columns = {*requested_columns}, set[str]()
    without_rows = []
    for file in files:
        if not rows.packing.is_plain:
            start = read_range(file.uri, 0, MARK_BYTES, storage, file.stat)
            if (packed := compression_of(start)) != compression:
                raise InputError(
                    compression_mismatch_message(file.uri, packed, compression)
                )
        read = rows.start_reader(file)
        if stated_delimiter and parse_sep_line(read) != stated_delimiter:
            raise InputError(
                f"{file.uri}: the first line is not {shorten('sep=' + stated_delimiter.decode())}, "
                "as in the first file; expected the same in all files: convert such "
                "files separately"
            )
        header_names, begin = read_header(read, file.uri, rows.dialect)
        partitions.require_apart(file.uri, header_names)
        if rows.packing.is_plain and begin >= file.size:
            without_rows.append(file.path)
        if not names:
            chosen = tuple(name for name in header_names if name in known_columns)
            names = chosen if chosen and leaves_out else header_names
            known_columns = {*(chosen or header_names)}
        file_columns.update(header_names)
        differ = describe_column_differences(
            *(file, header_names, names, requested_columns),
            first=first,
            leaves_out=leaves_out,
        )
        if differ:
            if other := _find_better_delimiter(rows, file, names):
                mark = format_delimiter(rows.dialect.delimiter)
                differ += f". It seems to have {other} between its cells, not {mark}"
            elif (
                len(header_names) == len(names)
                and _is_like_row(header_names)
                and _is_like_row(names)
            ):
                differ += (
                    ". If the first lines are rows, use `header=none`, and name the "
                    "columns with `columns`"
                )
            raise InputError(differ)
    return replace(rows, names=names), without_rows, file_columns - known_columns


def _is_like_row(names: Sequence[str]) -> bool:
    """Returns whether a first row may be data: it has a number or a sentence."""
    return any(
        sort_of(name) not in ("", TEXT) or len(name.split()) > 3 for name in names
    )


def _find_better_delimiter(
    rows: RangeRows, file: InputFile, names: Sequence[str] = ()
) -> str:
    """Returns the name of another delimiter that fits a file better, or ""."""
    free, read = replace(rows.dialect, delimiter=b""), rows.start_reader(file)
    try:
        delimiter = find_delimiter(read, file.uri, free, names)
        columns, _ = read_header(read, file.uri, replace(free, delimiter=delimiter))
    except InputError:  # no delimiter can be detected
        return ""
    # `find_delimiter` returns the comma if no delimiter is possible.
    is_other = delimiter != rows.dialect.delimiter and len(columns) > 1
    return format_delimiter(delimiter) if is_other else ""


def _read_first_rows(rows: RangeRows, file: InputFile) -> FirstRows:
    size = file.size
    whole = InputRange(0, file.path, file.uri, 0, size, 0, size, stat=file.stat)
    read, dialect = rows.start_reader(file), rows.dialect
    names, begin = read_header(read, file.uri, dialect)
    head, header = read(0, begin), b""
    if dialect.has_header:
        header = head[find_header(read, file.uri, dialect) :].strip(b"\r\n")
    parsed = rows.sample_rows(whole, TYPED_BYTES)
    if parsed is None:
        empty_batch = pa.record_batch(
            {name: pa.array([], pa.string()) for name in names}
        )
        return FirstRows(file.uri, dialect, header, names, head, (), empty_batch)
    body = parsed.body
    spans = [(begin + start, begin + end) for start, end in body.spans[:SAMPLED_ROWS]]
    text = head + body.text
    return FirstRows(file.uri, dialect, header, names, text, spans, parsed.batch)
