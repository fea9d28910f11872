"""CSV rows split into cells, all as text; what cannot be split is rejected.

Arrow splits a whole range at once. Only a range with rows that it cannot split is
looked at row by row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.arrow import I64
from recordmill.transforms.sources.csv.row_bounds import (
    QUOTE,
    Reader,
    is_open,
    row_spans,
)

_BLANK = re.compile(rb"[\r\n]*")
_LAST_CELL = b"x"  # of a row that is added to see whether the last quote is closed


@dataclass(frozen=True)
class Parsed:
    """A range's rows as text columns, and what else stood there."""

    table: pa.Table
    ordinals: I64  # of each row in the table, among all rows of the range
    num_rows: int  # rejects included
    rejects: list[Reject]
    body: bytes
    begin: int  # byte offset of the body in the file

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        return row_spans(self.body)

    def raw(self, row: int) -> tuple[int, bytes]:
        start, end = self.spans[int(self.ordinals[row])]
        return self.begin + start, self.body[start:end]


def parse_rows(
    body: bytes, names: Sequence[str], input_range: InputRange, begin: int, read: Reader
) -> Parsed:
    """Splits rows into cells; rows that cannot be split as they should are rejects.

    Args:
      body: whole rows.
      names: the columns, in the file's order.
      input_range: the range.
      begin: byte offset of the body in the file.
      read: reads bytes of the file.
    """
    table, closed = None, False
    wrong: dict[int, str] = {}
    if _is_utf8(body):
        table, wrong, closed = _split_cells(body, names)
    spans = [] if closed and not wrong else row_spans(body)
    reasons: dict[int, str] = {}
    if table is None or not closed:
        # Take out the rows that Arrow cannot split, and split the others.
        reasons = _unusable(body, spans, input_range, begin, read)
        kept = [row for row in range(len(spans)) if row not in reasons]
        text = b"\n".join(body[slice(*spans[row])] for row in kept)
        table, wrong, _ = _split_cells(text, names)
        wrong = {kept[row]: reason for row, reason in wrong.items()}
    reasons |= wrong
    rejects = [
        Reject(
            input_range.path, begin + spans[row][0], reason, body[slice(*spans[row])]
        )
        for row, reason in sorted(reasons.items())
    ]
    num_rows = table.num_rows + len(reasons)
    ordinals = np.arange(num_rows, dtype=np.int64)
    if reasons:
        ordinals = np.delete(ordinals, sorted(reasons))
    return Parsed(table, ordinals, num_rows, rejects, body, begin)


def _split_cells(
    body: bytes, names: Sequence[str]
) -> tuple[pa.Table, dict[int, str], bool]:
    """Splits rows of UTF-8.

    Returns:
      All cells as text (empty: null), the rows left out with the reason, and whether
      the last quoted field is closed; if not, the other two are not to be used.
    """
    if _BLANK.fullmatch(body):
        empty = [pa.chunked_array([], pa.string()) for _ in names]
        return pa.table(empty, names=list(names)), {}, True
    quoted = QUOTE in body
    if quoted:
        # Arrow takes the end of its input for a quote's end. One more row tells: an
        # open quote swallows it.
        newline = b"" if body.endswith((b"\r", b"\n")) else b"\n"
        body = b"".join((body, newline, b"," * (len(names) - 1), _LAST_CELL))
    wrong: dict[int, str] = {}

    def note(row: pa_csv.InvalidRow) -> str:
        wrong[row.number - 1] = (
            f"{row.actual_columns} columns, expected {row.expected_columns}"
        )
        return "skip"

    table = pa_csv.read_csv(
        pa.py_buffer(body),
        pa_csv.ReadOptions(
            use_threads=False,  # the job's workers are the threads
            block_size=len(body) + 16,
            column_names=list(names),
        ),
        pa_csv.ParseOptions(newlines_in_values=quoted, invalid_row_handler=note),
        pa_csv.ConvertOptions(
            check_utf8=False,
            column_types={name: pa.string() for name in names},
            strings_can_be_null=True,
            null_values=[""],
        ),
    )
    if not quoted:
        return table, wrong, True
    last = table.num_rows - 1
    closed = (
        last + len(wrong) not in wrong
        and table.column(names[-1])[last].as_py() == _LAST_CELL.decode()
    )
    return table.slice(0, max(last, 0)), wrong, closed


def _unusable(
    body: bytes,
    spans: Sequence[tuple[int, int]],
    input_range: InputRange,
    begin: int,
    read: Reader,
) -> dict[int, str]:
    """Rows that are not UTF-8 or hold a quoted field that is never closed.

    Raises:
      InputError: a quoted field goes on behind the body.
    """
    reasons = {}
    for row, (start, end) in enumerate(spans):
        if reason := _not_utf8(body[start:end]):
            reasons[row] = reason
    start, end = spans[-1]
    if is_open(body[start:end]):
        if read(begin + len(body), begin + len(body) + 1):
            raise InputError(
                f"{input_range.uri}: the quoted field in the row at byte {begin + start} is "
                f"open at byte {begin + len(body)}, where the number of quotes says "
                "that a row ends: before it, a quote stands in a field that is not "
                "quoted. Quote such fields and double the quotes inside"
            )
        reasons[len(spans) - 1] = "a quoted field is never closed"
    return reasons


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    offsets = pa.py_buffer(np.array([0, len(data)], np.int32))
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(data)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _not_utf8(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        found = raw[error.start : error.start + 4]
        return f"not UTF-8: {found!r} at byte {error.start} of the row"
    return ""


def cells_of(table: pa.Table, name: str) -> pa.StringArray:
    """A column in one piece."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
