"""Splits CSV rows into cells, all as text; rows that cannot be split are rejected.

Arrow splits a whole range at once, or the native extension where nothing is odd about it. Only a
range with rows that Arrow cannot split is checked row by row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from recordmill.schemas.ranges import Reject, RowIssue
from recordmill.schemas.text import count
from recordmill.transforms import native
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.row_errors import utf8_reason
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    RFC_4180,
    Body,
    Dialect,
    row_patterns,
)

_COMMENTS = "comments"  # code of an issue
_SHOWN = 40  # bytes of a comment


def without_comments(
    body: bytes, dialect: Dialect
) -> tuple[bytes, tuple[RowIssue, ...]]:
    """Returns rows without comments, and how many lines of them there were.

    The first row is whole; the last may be broken off.
    """
    mark = dialect.comment
    if not mark or not (
        body.startswith(mark) or b"\n" + mark in body or b"\r" + mark in body
    ):
        return body, ()
    rows, end, lines, example = [], 0, 0, b""
    for match in row_patterns(dialect).comments.finditer(body):
        if match.start() != end:  # the rest is a row without an end
            break
        end = match.end()
        if match.start(1) < 0:
            rows.append(match[0])
        else:
            found = match[1].splitlines()
            lines, example = lines + len(found), example or found[0]
    if not lines:
        return body, ()
    rows.append(body[end:])
    shown = example[:_SHOWN].decode(errors="replace")
    return b"".join(rows), (RowIssue(_COMMENTS, "", lines, shown),)


def comment_fact(issues: tuple[RowIssue, ...]) -> tuple[tuple[str, str], ...]:
    """Returns a fact about comments, or none."""
    return tuple(
        ("comment lines", f"{each.count:,} left out, such as {each.example!r}")
        for each in issues
        if each.code == _COMMENTS
    )


def _with_escaped_nulls(body: bytes, dialect: Dialect) -> tuple[bytes, bytes]:
    r"""Returns a text in which cells like \N are another text, and that text, or b"".

    Arrow takes an escape for what it escapes: \N and N would be the same.
    """
    nulls = [null.encode() for null in _nulls(dialect, are_escaped=True)]
    if not any(null in body for null in nulls):
        return body, b""
    # Not empty: a row of nothing else would be a blank line, which is no row.
    null = b"\0"
    while null in body:
        null += b"\0"
    return _null_pattern(dialect).sub(lambda found: found[1] or null, body), null


def _nulls(dialect: Dialect, *, are_escaped: bool) -> list[str]:
    """Returns the spellings of a missing value that begin with an escape, or not."""
    escape, nulls = dialect.escape.decode(), dialect.null_values
    return [n for n in nulls if (escape != "" and n.startswith(escape)) == are_escaped]


@lru_cache(maxsize=8)
def _null_pattern(dialect: Dialect) -> re.Pattern[bytes]:
    """Returns a pattern of one such cell, or of other ones, which are group 1."""
    nulls = (null.encode() for null in _nulls(dialect, are_escaped=True))
    null = b"|".join(map(re.escape, nulls))
    ends = rb"[%b\r\n]" % re.escape(dialect.delimiter)
    cell = row_patterns(dialect).cell_bytes
    return re.compile(
        rb"((?:(?!(?:%b)(?:%b|\Z))%b%b)++)|(?:%b)(?=%b|\Z)"
        % (null, ends, cell, ends, null, ends)
    )


_MAX_BYTES = 1 << 30  # of a text; positions are int32
_MAX_OFFSETS = 2  # for each byte of a text
_LINE = 16  # int32 of a line of the processor's cache


def split_plain(
    body: bytes, names: Sequence[str], dialect: Dialect
) -> pa.RecordBatch | None:
    r"""Splits rows as `split_cells` does, or returns None: then that does it.

    Worked example, "1,a\n22,\n" of two columns: there are two bytes that may end a row, so
    each column has place for three rows (the last may have no end), and its offsets begin at
    a line of the cache.

        offsets      0 1 3 ...    0 1 1 ...
        facts        0 35         0 1          (starts, then empty cells)
        valid        -            0b01
        target       1 2 2 (32 bytes of slack) a
    """
    size, columns = len(body), len(names)
    if not size or size > _MAX_BYTES:
        return None
    if dialect.escape or dialect.null_values or not columns:
        return None
    # An odd number of lines: columns a power of two apart would share lines of the cache.
    lines = (native.loops.row_ends(body) + 1) // _LINE + 1
    max_rows = (lines | 1) * _LINE - 1
    if columns * max_rows > _MAX_OFFSETS * size + (1 << 16):
        return None  # nearly all lines are blank, or in quotes
    valid_bytes = (max_rows + 7) // 8
    offsets = pa.allocate_buffer(columns * (max_rows + 1) * 4)
    valid = pa.allocate_buffer(columns * valid_bytes)
    target = pa.allocate_buffer(size + columns * native.loops.CELL_SLACK)
    facts = np.empty((2, columns), np.int64)
    quote = ord(dialect.quote) if dialect.quote else native.loops.NO_QUOTE
    num_rows = native.loops.cells(
        body, ord(dialect.delimiter), quote, max_rows, offsets, valid, facts, target
    )
    if num_rows < 1:
        return None
    arrays = []
    for column, (start, empty) in enumerate(facts.T.tolist()):
        begin = column * (max_rows + 1) * 4
        buffers = [
            valid.slice(column * valid_bytes, valid_bytes) if empty else None,
            offsets.slice(begin, (num_rows + 1) * 4),
            target.slice(start),
        ]
        arrays.append(pa.Array.from_buffers(pa.string(), num_rows, buffers, empty))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


_BLANK = re.compile(rb"[\r\n]*")


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows that are split into cells."""

    batch: pa.RecordBatch  # the columns as text
    ordinals: I64  # of each row, among all of the body
    rejects: list[Reject]  # rows that could not be split
    body: Body  # the rows
    issues: tuple[RowIssue, ...] = ()  # lines that are comments

    @property
    def num_rows(self) -> int:
        """Returns the rows of the body, rejects included."""
        return int(self.batch.num_rows) + len(self.rejects)

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns byte offset in the file and bytes of a row of the batch."""
        return self.body.row(int(self.ordinals[row]))


def parse_rows(
    body: Body, names: Sequence[str], path: str, broken: Mapping[int, str]
) -> Parsed:
    """Splits rows into cells; rows that cannot be split as they should are rejects.

    Args:
      body: the rows.
      names: the columns, in the file's order.
      path: of the file, for rejects.
      broken: rows that are known to have no end of their own, with the reasons.
    """
    text, dialect = body.text, body.dialect
    rest, issues = without_comments(text, dialect)
    if broken or not is_utf8(rest):
        # Take out the rows that Arrow cannot split, and split the others.
        spans, reasons = body.spans, dict(broken)
        for row, (start, end) in enumerate(spans):
            if row not in reasons and (reason := utf8_reason(text[start:end], "row")):
                reasons[row] = reason
        kept = [row for row in range(len(spans)) if row not in reasons]
        rest = b"\n".join(text[slice(*spans[row])] for row in kept)
        batch, wrong = split_cells(rest, names, dialect)
        reasons |= {kept[row]: reason for row, reason in wrong.items()}
    else:
        batch, reasons = split_cells(rest, names, dialect)
    rejects = []
    for row in sorted(reasons):
        at, raw = body.row(row)
        rejects.append(Reject(path, at, reasons[row], raw))
    ordinals = np.arange(batch.num_rows + len(reasons), dtype=np.int64)
    if reasons:
        ordinals = np.delete(ordinals, sorted(reasons))
    return Parsed(batch, ordinals, rejects, body, issues)


def split_cells(
    body: bytes, names: Sequence[str], dialect: Dialect = RFC_4180
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Splits rows of UTF-8, no comments, in which every quoted field is closed.

    Returns all cells as text (empty: null), and the rows left out with the reason.
    """
    body, null = _with_escaped_nulls(body, dialect)
    if _BLANK.fullmatch(body):
        empty = pa.array([], pa.string())
        return pa.RecordBatch.from_arrays([empty] * len(names), names=list(names)), {}
    if (plain := split_plain(body, names, dialect)) is not None:
        return plain, {}
    if body.startswith(BOM):
        body = BOM + body  # Arrow strips one, but this one belongs to a cell
    wrong: dict[int, str] = {}

    def note(row: pa_csv.InvalidRow) -> str:
        wrong[row.number - 1] = (
            f"expected {count(row.expected_columns, 'column')}, found {row.actual_columns}"
        )
        return "skip"

    table = pa_csv.read_csv(
        pa.py_buffer(body),
        pa_csv.ReadOptions(
            use_threads=False,  # the job's workers are the threads
            block_size=len(body) + 16,
            column_names=list(names),
        ),
        pa_csv.ParseOptions(
            delimiter=dialect.delimiter.decode(),
            quote_char=dialect.quote.decode() or False,
            escape_char=dialect.escape.decode() or False,
            newlines_in_values=any(
                mark and mark in body for mark in (dialect.quote, dialect.escape)
            ),
            invalid_row_handler=note,
        ),
        pa_csv.ConvertOptions(
            check_utf8=False,
            column_types={name: pa.string() for name in names},
            strings_can_be_null=True,
            null_values=[
                "",
                *_nulls(dialect, are_escaped=False),
                *filter(None, [null.decode()]),
            ],
        ),
    )
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0], wrong
    return pa.RecordBatch.from_pylist([], schema=table.schema), wrong


def is_utf8(data: bytes) -> bool:
    """Tells whether bytes are UTF-8."""
    if data.isascii():
        return True
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
