"""Where rows begin and end, against Python's csv module."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.csv import quotes as row_bounds
from recordmill.transforms.sources.csv.header import read_header
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    FIELD_START,
    UNQUOTED,
    Reader,
    end_state,
    row_spans,
    row_start,
)

# Bytes that matter to the format, and one that does not.
CSV_BYTES = st.lists(st.sampled_from([*b'",\r\na']), max_size=40).map(bytes)


def reader(body: bytes, calls: list[tuple[int, int]] | None = None) -> Reader:
    def read(start: int, stop: int) -> bytes:
        assert 0 <= start <= stop
        if calls is not None:
            calls.append((start, stop))
        return body[start:stop]

    return read


def python_rows(body: bytes) -> list[list[str]]:
    rows = csv.reader(io.StringIO(body.decode(), newline=""))
    return [row for row in rows if row]


def test_row_spans_of_a_zoo() -> None:
    body = b'a,b\r\n\n"x\n""y",2\r3,4\n\r\n"open, \n5'
    assert [body[a:b] for a, b in row_spans(body)] == [
        b"a,b",
        b'"x\n""y",2',
        b"3,4",
        b'"open, \n5',
    ]


@given(CSV_BYTES)
def test_row_spans_are_the_rows_of_python(body: bytes) -> None:
    spans = row_spans(body)
    parsed = [row for a, b in spans for row in python_rows(body[a:b])]
    assert parsed == python_rows(body)
    assert len(spans) == len(parsed)


@given(CSV_BYTES)
def test_row_spans_leave_out_row_ends_alone(body: bytes) -> None:
    at = 0
    for start, end in row_spans(body):
        assert start < end
        assert not body[at:start].strip(b"\r\n")
        at = end
    assert not body[at:].strip(b"\r\n")


def test_row_spans_of_a_long_quoted_field() -> None:
    body = b'"' + b'""x' * 500_000 + b'",1\n2,3\n'
    assert [b - a for a, b in row_spans(body)] == [1_500_004, 3]


@pytest.mark.parametrize(
    ("body", "offset", "expected"),
    [
        (b"ab\ncd\n", 3, 3),  # stands at a row start
        (b"ab\ncd\n", 2, 3),  # the row end itself
        (b"ab\ncd\n", 4, 6),  # the last row end: the file's end
        (b"ab\ncd", 4, 5),  # no newline at the end
        (b"ab\r\ncd", 3, 4),  # between \r and \n
        (b"ab\rcd\ref", 3, 3),  # \r alone ends a row
        (b"ab\rcd\ref", 4, 6),
        (b'"a\nb"\nc', 3, 6),  # a newline in quotes is none
        (b'"a\nb"\nc', 1, 6),
        (b'"a""\n"\nc', 4, 7),  # between doubled quotes and the newline
        (b'"a""\n"\nc', 3, 7),  # between the two of a doubled quote
        (b'"a\n', 1, 3),  # never closed: the file's end
        (b'5" x,"\n"\nc', 1, 9),  # a stray quote opens nothing
        (b'5" x,"\n"\nc', 6, 9),
        (b'"a"b",1\nc', 4, 8),  # behind a quoted field's end neither
    ],
)
def test_row_start(body: bytes, offset: int, expected: int) -> None:
    assert row_start(reader(body), offset, end_state(body[:offset]), 99) == expected


def test_row_start_at_the_ends_of_a_file() -> None:
    assert row_start(reader(b"a\nb"), 0, FIELD_START, 1) == 0
    assert row_start(reader(b"ab\n"), 9, UNQUOTED, 1) == 9  # behind its end


@pytest.mark.parametrize("look_ahead", [1, 2, 3, 1 << 16])
@given(body=CSV_BYTES, data=st.data())
def test_row_start_is_the_next_row_of_row_spans(
    look_ahead: int, body: bytes, data: st.DataObject
) -> None:
    body += b"\nend"
    offset = data.draw(st.integers(0, len(body)))
    ends = [end for _, end in row_spans(body) if end + 1 >= offset > 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_bounds, "_READ_AHEAD", look_ahead)
        found = row_start(reader(body), offset, end_state(body[:offset]), 99)
    assert found is not None
    assert found >= offset
    starts = {start for start, _ in row_spans(body)}
    assert not [start for start in starts if offset <= start < found]
    # It ends a row, or is a blank line's end.
    assert found in (0, len(body)) or body[found - 1] in b"\r\n"
    assert not ends or found <= ends[0] + 2


def test_row_start_reads_a_long_row_in_few_reads_and_each_byte_once() -> None:
    body = b"x" * 20_000_000 + b"\n1"
    calls: list[tuple[int, int]] = []
    assert row_start(reader(body, calls), 5, UNQUOTED, 1 << 28) == 20_000_001
    assert len(calls) < 15
    assert sum(min(b, len(body)) - a for a, b in calls) < len(body) + 10


def test_row_start_looks_no_further_than_its_limit() -> None:
    calls: list[tuple[int, int]] = []
    read = reader(b"x" * 100 + b"\n1", calls)
    assert row_start(read, 77, UNQUOTED, 23) is None
    assert max(stop for _, stop in calls) == 100
    assert row_start(read, 77, UNQUOTED, 24) == 101


@pytest.mark.parametrize(
    ("body", "names", "end"),
    [
        (b"a,b\n1,2\n", ("a", "b"), 4),
        (b"a,b\r\n1,2\r\n", ("a", "b"), 5),
        (b"a,b\r1,2\r", ("a", "b"), 4),  # \r alone ends a row
        (b"a,b\r1,2\n", ("a", "b"), 4),
        (b"a,b", ("a", "b"), 3),  # header only
        (BOM + b"a,b\n", ("a", "b"), 7),
        (BOM + b'"a",b\n', ("a", "b"), 9),  # a BOM before a quote
        (b'"a\nb",c\n1,2\n', ("a\nb", "c"), 8),  # a newline in a name
        (b'" a ""b""",c\n', ('a "b"', "c"), 13),
        (b'size 5",b\n1,2\n', ('size 5"', "b"), 10),  # a quote in a bare name
        (b"a,,c\n", ("a", "column_1", "c"), 5),  # no name
        ("größe,数\n".encode(), ("größe", "数"), 12),
        (b"x" * 300_000 + b",b\n1", ("x" * 300_000, "b"), 300_003),  # a long one
    ],
)
def test_header(body: bytes, names: tuple[str, ...], end: int) -> None:
    assert read_header(reader(body), "in.csv") == (names, end)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\n1,2\n", "in.csv: no header; expected column names in the first row"),
        (b",,\n", "in.csv: no header"),
        (BOM, "in.csv: no header"),
        (b"a,b,a\n", "in.csv: the header has column 'a' 2 times"),
        (b"a,a ,a\n", "in.csv: the header has column 'a' 3 times"),
        (b",column_0\n", "the header has column 'column_0' 2 times"),
        (b"a,\xe9t\xe9\n", r"in.csv: the header is not UTF-8 at byte 2: b'\\xe9t\\xe9"),
        (BOM + b"a,\xff\n", r"in.csv: the header is not UTF-8 at byte 5: b'\\xff"),
        (b'"a,b\n1,2\n', "in.csv: a quoted column name is never closed"),
    ],
)
def test_header_that_cannot_name_columns(body: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_header(reader(body), "in.csv")


@given(CSV_BYTES)
def test_header_ends_where_the_first_row_of_python_ends(body: bytes) -> None:
    try:
        _, end = read_header(reader(body), "in.csv")
    except InputError:
        return
    rows = python_rows(body)
    assert python_rows(body[:end]) == rows[:1]
    assert python_rows(body[end:]) == rows[1:]


def test_header_is_read_at_once() -> None:
    calls: list[tuple[int, int]] = []
    check: Callable[[], object] = lambda: read_header(reader(b"a,b\n1", calls), "x")  # noqa: E731
    check()
    assert len(calls) == 1
