"""Where rows begin and end, against Python's csv module."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.csv.row_bounds import (
    BOM,
    MAX_ROW_BYTES,
    Reader,
    read_header,
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
    ("body", "offset", "quoted", "expected"),
    [
        (b"ab\ncd\n", 3, False, 3),  # stands at a row start
        (b"ab\ncd\n", 2, False, 3),  # the row end itself
        (b"ab\ncd\n", 4, False, 6),  # the last row end: the file's end
        (b"ab\ncd", 4, False, 5),  # no newline at the end
        (b"ab\r\ncd", 3, False, 4),  # between \r and \n
        (b"ab\rcd\ref", 3, False, 3),  # \r alone ends a row
        (b"ab\rcd\ref", 4, False, 6),
        (b'"a\nb"\nc', 3, True, 6),  # a newline in quotes is none
        (b'"a\nb"\nc', 1, True, 6),
        (b'"a""\n"\nc', 4, True, 7),  # between doubled quotes and the newline
        (b'"a""\n"\nc', 3, False, 7),  # between the two of a doubled quote
        (b'"a\n', 1, True, 3),  # never closed: the file's end
        (b"ab\n", 9, False, 9),  # behind the file's end
    ],
)
def test_row_start(body: bytes, offset: int, quoted: bool, expected: int) -> None:
    assert row_start(reader(body), offset, quoted) == expected


def test_row_start_at_the_start_of_a_file() -> None:
    assert row_start(reader(b"a\nb"), 0, False) == 0


@given(st.lists(CSV_BYTES.filter(lambda b: b'"' not in b), max_size=8), st.data())
def test_row_start_is_the_next_row_of_row_spans(
    cells: list[bytes], data: st.DataObject
) -> None:
    body = b"".join(b'"' + cell + b'"\n' for cell in cells) + b"end"
    offset = data.draw(st.integers(0, len(body)))
    quoted = body[:offset].count(b'"') % 2 == 1
    starts = [start for start, _ in row_spans(body) if start >= offset]
    assert row_start(reader(body), offset, quoted) == min([*starts, len(body)])


def test_row_start_reads_a_long_row_in_few_reads_and_each_byte_once() -> None:
    body = b"x" * 20_000_000 + b"\n1"
    calls: list[tuple[int, int]] = []
    assert row_start(reader(body, calls), 5, False) == 20_000_001
    assert len(calls) < 15
    assert sum(min(b, len(body)) - a for a, b in calls) < len(body) + 10


def test_a_row_without_end_is_an_error_that_names_its_place() -> None:
    def read(start: int, stop: int) -> bytes:
        return b"x" * (stop - start)

    with pytest.raises(InputError, match=r"no row ends in the 268,435,456 bytes .* 77"):
        row_start(read, 77, False)
    assert MAX_ROW_BYTES == 268_435_456


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
        (b"a,b,a\n", "in.csv: the header names column 'a' 2 times"),
        (b"a,a ,a\n", "in.csv: the header names column 'a' 3 times"),
        (b",column_0\n", "the header names column 'column_0' 2 times"),
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
