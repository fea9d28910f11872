"""CSV files with a header: cut at true row ends, typed as their whole content asks.

A file is cut into blocks of constant size. The quotes of each block are counted first
(`survey`), so every range knows whether its block begins inside a quoted field; a
range then runs from the first row that starts in its block to the first that starts
in the next. Types are guessed from a sample, verified while converting, and what was
guessed too narrowly is redone (see csv_types).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from schemas.errors import InputError
from schemas.features import FeatureSpec, Schema
from schemas.ranges import InputFile, InputRange, Reject
from transforms.keys import origins_in
from transforms.sources.base import (
    BATCH_BYTES,
    RANGE_BYTES,
    Rows,
    Source,
    number_ranges,
)
from transforms.sources.csv_rows import (
    QUOTE,
    Reader,
    is_open,
    read_header,
    row_spans,
    row_start,
)
from transforms.sources.csv_types import Holds, cell_type, classify, convert
from transforms.storage import read_range
from transforms.wire import I64

SAMPLE_BYTES = 1 << 16
_LAST_CELL = b"x"
ENTRY_BYTES = 24  # what a feature's map entry costs beside its name and value


@dataclass(frozen=True)
class CsvSource(Source):
    """Comma-separated values; `columns` are those of the first file's header."""

    columns: tuple[str, ...] = ()
    range_bytes: int = RANGE_BYTES

    def prepare(self, files: Sequence[InputFile]) -> Self:
        columns: tuple[str, ...] = ()
        for file in _filled(files):
            names, _ = read_header(partial(read_range, file.uri), file.uri)
            columns = columns or names
            if set(names) != set(columns):
                raise InputError(_other_columns(file.uri, names, columns))
        if not columns:
            raise InputError(
                "every input file is empty; expected a header and rows of values"
            )
        return replace(self, columns=columns)

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return number_ranges(
            [
                (file, start, min(start + self.range_bytes, file.size), "")
                for file in _filled(files)
                for start in range(0, file.size, self.range_bytes)
            ]
        )

    @property
    def needs_survey(self) -> bool:
        return True

    def survey(self, spot: InputRange) -> int:
        """The number of quotes in a block."""
        return read_range(spot.uri, spot.start, spot.stop).count(QUOTE)

    def settle(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """Notes with every range whether it begins and ends inside quotes."""
        settled = []
        quotes = 0
        for spot, count in zip(ranges, surveys, strict=True):
            before = quotes if spot.start else 0
            quotes = before + count
            settled.append(replace(spot, quoted=(before % 2 == 1, quotes % 2 == 1)))
        return settled

    def sample(self, spot: InputRange) -> tuple[int, ...]:
        begin, names = self._begin(spot)
        read = partial(read_range, spot.uri)
        text = read(begin, begin + SAMPLE_BYTES)
        if len(text) == SAMPLE_BYTES:
            # Only whole rows: half a cell might be of another type. A row longer than
            # the sample tells nothing.
            spans = row_spans(text)
            text = text[: spans[-1][0]] if spans else b""
        table = _parse(text, names, spot, begin, read).table
        return tuple(int(classify(_cells(table, name))) for name in self.columns)

    def schema(
        self, observed: tuple[int, ...] = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        observed = observed or (int(Holds.NOTHING),) * len(self.columns)
        nulls = nulls or (0,) * len(self.columns)
        features = []
        for name, holds, missing in zip(self.columns, observed, nulls, strict=True):
            cells = cell_type(holds)
            features.append(
                FeatureSpec(name, cells.kind, dtype=cells.dtype, optional=missing > 0)
            )
        return Schema(tuple(features))

    def touched(
        self, observed: tuple[int, ...], used: tuple[int, ...], final: tuple[int, ...]
    ) -> bool:
        # A column without a value in this range has put nothing into its records.
        return any(
            seen and cell_type(taken) is not cell_type(wanted)
            for seen, taken, wanted in zip(observed, used, final, strict=True)
        )

    def read(self, spot: InputRange, expected: tuple[int, ...]) -> Iterator[Rows]:
        begin, names = self._begin(spot)
        read = partial(read_range, spot.uri)
        end = row_start(read, spot.stop, spot.quoted[1], spot.uri)
        if begin >= end:
            return  # no row starts in this block
        body = read(begin, end)
        if begin + len(body) < end:
            raise InputError(
                f"{spot.uri}: ends at byte {begin + len(body)}, but had {spot.stop} "
                "bytes when the run began: did it change meanwhile?"
            )
        parsed = _parse(body, names, spot, begin, read)
        expected = expected or (int(Holds.NOTHING),) * len(self.columns)
        columns, observed, nulls = {}, [], []
        for name, holds in zip(self.columns, expected, strict=True):
            cells = _cells(parsed.table, name)
            columns[name], seen = convert(cells, holds)
            observed.append(int(seen))
            nulls.append(cells.null_count)
        batch = pa.RecordBatch.from_pydict(columns)
        num_rows = parsed.num_rows
        # Unique, as no row is shorter than a byte; stray quotes (see csv_rows) can
        # bring rows of later blocks: then some share a place, still in order.
        places = parsed.ordinals * spot.num_positions // max(1, num_rows)
        origins = origins_in(spot.path, spot.start, parsed.ordinals)
        step = self._rows_per_batch(len(body), max(1, batch.num_rows))
        for start in range(0, max(1, batch.num_rows), step):
            part = slice(start, start + step)
            yield Rows(
                batch=batch.slice(start, step),
                origins=origins[part],
                places=places[part],
                raw=lambda row, start=start: parsed.raw(start + row),  # type: ignore[misc]
                rejects=parsed.rejects if start == 0 else [],
                observed=tuple(observed),
                nulls=tuple(nulls) if start == 0 else (0,) * len(nulls),
            )

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # A short cell ("1,") becomes an entry with the column's name.
        names = sum(len(name.encode()) + ENTRY_BYTES for name in self.columns)
        growth = 1 + names // (4 * len(self.columns))
        return sum(file.size for file in files) * min(growth, 16)

    def _begin(self, spot: InputRange) -> tuple[int, tuple[str, ...]]:
        """Byte offset of a range's first row, and the file's columns in its order."""
        read = partial(read_range, spot.uri)
        names, header_end = read_header(read, spot.uri)
        if set(names) != set(self.columns):
            raise InputError(_other_columns(spot.uri, names, self.columns))
        if spot.start == 0:
            return header_end, names
        start = row_start(read, spot.start, spot.quoted[0], spot.uri)
        return max(header_end, start), names

    def _rows_per_batch(self, num_bytes: int, num_rows: int) -> int:
        entries = sum(len(name.encode()) + ENTRY_BYTES for name in self.columns)
        return max(1, BATCH_BYTES // (entries + num_bytes // num_rows))


@dataclass(frozen=True)
class _Parsed:
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


def _parse(
    body: bytes, names: Sequence[str], spot: InputRange, begin: int, read: Reader
) -> _Parsed:
    """Splits rows into cells; rows that cannot be split as they should are rejects.

    Args:
      body: whole rows.
      names: the columns, in the file's order.
      spot: the range.
      begin: byte offset of the body in the file.
      read: reads bytes of the file.
    """
    table, wrong, closed = None, {}, False
    if _is_utf8(body):
        table, wrong, closed = _split_cells(body, names)
    spans = [] if closed and not wrong else row_spans(body)
    reasons: dict[int, str] = {}
    if table is None or not closed:
        # Take out the rows that Arrow cannot split, and split the others.
        reasons = _unusable(body, spans, spot, begin, read)
        kept = [row for row in range(len(spans)) if row not in reasons]
        text = b"\n".join(body[slice(*spans[row])] for row in kept)
        table, wrong, _ = _split_cells(text, names)
        wrong = {kept[row]: reason for row, reason in wrong.items()}
    reasons |= wrong
    rejects = [
        Reject(spot.path, begin + spans[row][0], reason, body[slice(*spans[row])])
        for row, reason in sorted(reasons.items())
    ]
    num_rows = table.num_rows + len(reasons)
    ordinals = np.arange(num_rows, dtype=np.int64)
    if reasons:
        ordinals = np.delete(ordinals, sorted(reasons))
    return _Parsed(table, ordinals, num_rows, rejects, body, begin)


def _split_cells(
    body: bytes, names: Sequence[str]
) -> tuple[pa.Table, dict[int, str], bool]:
    """Splits rows of UTF-8.

    Returns:
      All cells as text (empty: null), the rows left out with the reason, and whether
      the last quoted field is closed; if not, the other two are not to be used.
    """
    if not body.strip(b"\r\n"):
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
    spot: InputRange,
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
                f"{spot.uri}: the quoted field in the row at byte {begin + start} is "
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


def _cells(table: pa.Table, name: str) -> pa.StringArray:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _other_columns(uri: str, names: Sequence[str], columns: Sequence[str]) -> str:
    missing = sorted(set(columns) - set(names))
    extra = sorted(set(names) - set(columns))
    found = [f"lacks {', '.join(missing)}"] if missing else []
    found += [f"has also {', '.join(extra)}"] if extra else []
    return (
        f"{uri}: other columns than the first file: it {' and '.join(found)}; files "
        "of one data set need the same columns"
    )


def _filled(files: Sequence[InputFile]) -> list[InputFile]:
    return [file for file in files if file.size]
