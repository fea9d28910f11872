"""Splits CSV rows into cells, all as text; rows that cannot be split are rejected.

Arrow splits a whole range at once, or a compiled loop where nothing is odd about it. Only a
range with rows that Arrow cannot split is checked row by row.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from recordmill.schemas.ranges import OddRows, Reject
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.value_limits import utf8_reason
from recordmill.transforms.sources.csv.broken_rows import BrokenRow
from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.leave_out import (
    unescaped_nulls,
    with_escaped_nulls,
    without_comments,
)
from recordmill.transforms.sources.csv.plain_cells import split_plain
from recordmill.transforms.sources.csv.row_bounds import BOM, row_spans

_BLANK = re.compile(rb"[\r\n]*")


@dataclass(frozen=True)
class Parsed:
    """The rows of a range as text columns, and its rejects."""

    table: pa.Table
    ordinals: I64  # of each row in the table, among all rows of the range
    num_rows: int  # rejects included
    rejects: list[Reject]
    body: bytes
    begin: int  # byte offset of the body in the file
    dialect: Dialect
    odd: tuple[OddRows, ...] = ()  # lines that are comments

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Finds start and end of all rows in the body, rejects included."""
        return row_spans(self.body, self.dialect)

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns byte offset in the file and bytes of a row of the table."""
        start, end = self.spans[int(self.ordinals[row])]
        return self.begin + start, self.body[start:end]


def parse_rows(
    body: bytes,
    names: Sequence[str],
    path: str,
    begin: int,
    broken: Sequence[BrokenRow] = (),
    dialect: Dialect = RFC_4180,
) -> Parsed:
    """Splits rows into cells; rows that cannot be split as they should are rejects.

    Args:
      body: whole rows; only the last one may be broken off.
      names: the columns, in the file's order.
      path: of the file, for rejects.
      begin: byte offset of the body in the file.
      broken: rows that are known to have no end of their own.
      dialect: of the file.
    """
    rest = without_comments(body, dialect)
    spans: Sequence[tuple[int, int]] = ()
    raws: dict[int, bytes] = {}
    reasons: dict[int, str] = {}
    if broken or not is_utf8(rest.body):
        # Take out the rows that Arrow cannot split, and split the others.
        spans = row_spans(body, dialect)
        for each in broken:
            row = bisect_right(spans, each.at, key=itemgetter(0)) - 1
            reasons[row], raws[row] = each.reason, each.raw(body, *spans[row])
        for row, (start, end) in enumerate(spans):
            if row not in reasons and (reason := utf8_reason(body[start:end], "row")):
                reasons[row] = reason
        kept = [row for row in range(len(spans)) if row not in reasons]
        text = b"\n".join(body[slice(*spans[row])] for row in kept)
        table, wrong = split_cells(text, names, dialect)
        reasons |= {kept[row]: reason for row, reason in wrong.items()}
    else:
        table, reasons = split_cells(rest.body, names, dialect)
        if reasons:
            spans = row_spans(body, dialect)
    rejects = [
        Reject(
            path,
            begin + spans[row][0],
            reasons[row],
            raws.get(row, body[slice(*spans[row])]),
        )
        for row in sorted(reasons)
    ]
    num_rows = table.num_rows + len(reasons)
    ordinals = np.arange(num_rows, dtype=np.int64)
    if reasons:
        ordinals = np.delete(ordinals, sorted(reasons))
    return Parsed(table, ordinals, num_rows, rejects, body, begin, dialect, rest.odd)


def split_cells(
    body: bytes, names: Sequence[str], dialect: Dialect = RFC_4180
) -> tuple[pa.Table, dict[int, str]]:
    """Splits rows of UTF-8, no comments, in which every quoted field is closed.

    Returns:
      All cells as text (empty: null), and the rows left out with the reason.
    """
    body, null = with_escaped_nulls(body, dialect)
    if _BLANK.fullmatch(body):
        empty = pa.chunked_array([], pa.string())
        return pa.table([empty] * len(names), names=list(names)), {}
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
            null_values=["", *unescaped_nulls(dialect), *filter(None, [null.decode()])],
        ),
    )
    return table, wrong


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


def columns_of(table: pa.Table, names: Sequence[str]) -> list[pa.StringArray]:
    """Returns some columns, each as one array."""
    if table.column_names != list(names):
        table = table.select(list(names))
    batches = table.to_batches()
    if len(batches) > 1:
        batches = table.combine_chunks().to_batches()
    if not batches:  # no row
        return [pa.array([], pa.string())] * len(names)
    return list(batches[0].columns)


def cells_of(table: pa.Table, name: str) -> pa.StringArray:
    """Returns a column as one array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
