"""Where rows begin and end, against Python's csv module."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from source_tools import FileWriter, read, read_text

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.csv import quotes
from recordmill.transforms.sources.csv import source as block_states
from recordmill.transforms.sources.csv.header import read_header
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    FIELD_START,
    QUOTED,
    ROW_START,
    UNQUOTED,
    Dialect,
    QuoteState,
    Reader,
    compose_maps,
    compute_end_state,
    compute_transition_map,
    count_lines,
    find_row_spans,
    find_row_start,
    find_unclosed_quote,
    next_state,
    pack_map,
    unpack_map,
)
from recordmill.transforms.sources.csv.source import CsvSource

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
    assert [body[a:b] for a, b in find_row_spans(body)] == [
        b"a,b",
        b'"x\n""y",2',
        b"3,4",
        b'"open, \n5',
    ]


@given(CSV_BYTES)
def test_row_spans_are_the_rows_of_python(body: bytes) -> None:
    spans = find_row_spans(body)
    parsed = [row for a, b in spans for row in python_rows(body[a:b])]
    assert parsed == python_rows(body)
    assert len(spans) == len(parsed)


@given(CSV_BYTES)
def test_row_spans_leave_out_row_ends_alone(body: bytes) -> None:
    at = 0
    for start, end in find_row_spans(body):
        assert start < end
        assert not body[at:start].strip(b"\r\n")
        at = end
    assert not body[at:].strip(b"\r\n")


def test_row_spans_of_a_long_quoted_field() -> None:
    body = b'"' + b'""x' * 500_000 + b'",1\n2,3\n'
    assert [b - a for a, b in find_row_spans(body)] == [1_500_004, 3]


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
    assert (
        find_row_start(reader(body), offset, compute_end_state(body[:offset]), 99)
        == expected
    )


def test_row_start_at_the_ends_of_a_file() -> None:
    assert find_row_start(reader(b"a\nb"), 0, FIELD_START, 1) == 0
    assert find_row_start(reader(b"ab\n"), 9, UNQUOTED, 1) == 9  # behind its end


@pytest.mark.parametrize("look_ahead", [1, 2, 3, 1 << 16])
@given(body=CSV_BYTES, data=st.data())
def test_row_start_is_the_next_row_of_row_spans(
    look_ahead: int, body: bytes, data: st.DataObject
) -> None:
    body += b"\nend"
    offset = data.draw(st.integers(0, len(body)))
    ends = [end for _, end in find_row_spans(body) if end + 1 >= offset > 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_READ_AHEAD", look_ahead)
        found = find_row_start(
            reader(body), offset, compute_end_state(body[:offset]), 99
        )
    assert found is not None
    assert found >= offset
    starts = {start for start, _ in find_row_spans(body)}
    assert not [start for start in starts if offset <= start < found]
    # It ends a row, or is a blank line's end.
    assert found in (0, len(body)) or body[found - 1] in b"\r\n"
    assert not ends or found <= ends[0] + 2


def test_row_start_reads_a_long_row_in_few_reads_and_each_byte_once() -> None:
    body = b"x" * 20_000_000 + b"\n1"
    calls: list[tuple[int, int]] = []
    assert find_row_start(reader(body, calls), 5, UNQUOTED, 1 << 28) == 20_000_001
    assert len(calls) < 15
    assert sum(min(b, len(body)) - a for a, b in calls) < len(body) + 10


def test_row_start_looks_no_further_than_its_limit() -> None:
    calls: list[tuple[int, int]] = []
    read = reader(b"x" * 100 + b"\n1", calls)
    assert find_row_start(read, 77, UNQUOTED, 23) is None
    assert max(stop for _, stop in calls) == 100
    assert find_row_start(read, 77, UNQUOTED, 24) == 101


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
    read_header(reader(b"a,b\n1", calls), "x")
    assert len(calls) == 1


BLOCKS = st.lists(st.sampled_from([*b'"""",\r\na\xef\0']), max_size=40).map(bytes)


def slow_end_state(block: bytes, state: QuoteState) -> QuoteState:
    for byte in block:
        if byte == ord('"'):
            closed = FIELD_START if state is QUOTED else UNQUOTED
            state = QUOTED if state in (FIELD_START, ROW_START) else closed
        elif state is not QUOTED:
            state = FIELD_START if byte == ord(",") else UNQUOTED
            state = ROW_START if byte in b"\r\n" else state
    return state


def slow_map(block: bytes) -> tuple[QuoteState, ...]:
    """Returns the end states of the states that RFC 4180 has."""
    return tuple(slow_end_state(block, state) for state in QuoteState if state <= 5)


@given(block=BLOCKS, tail=st.integers(1, 50))
def test_maps_are_those_of_a_loop_over_the_bytes(block: bytes, tail: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_TAIL_BYTES", tail)
        patch.setattr(quotes, "_MAX_PIECE_BYTES", 2 * tail)
        found = compute_transition_map(block)
    assert found[:4] == slow_map(block)
    assert unpack_map(pack_map(found)) == found
    assert pack_map(found) > 0


@given(BLOCKS, BLOCKS)
def test_maps_compose(first: bytes, second: bytes) -> None:
    assert compose_maps(
        compute_transition_map(first), compute_transition_map(second)
    ) == compute_transition_map(first + second)


@given(st.lists(st.sampled_from([*b'",\na']), max_size=30).map(bytes))
def test_a_quoted_field_is_open_where_python_says_so(block: bytes) -> None:
    """A row of one cell more is swallowed by a field that is open."""
    rows = list(csv.reader(io.StringIO((block + b"\nlast").decode(), newline="")))
    assert (compute_end_state(block + b"\n") is QUOTED) == (rows[-1] != ["last"])


@pytest.mark.parametrize("escape", ["\\", ""])
@pytest.mark.parametrize("quote", ['"', ""])
@given(
    block=st.lists(st.sampled_from([*b'"",\\\\\r\n\n##a']), max_size=40).map(bytes),
    tail=st.integers(1, 50),
)
def test_maps_of_escapes_and_comments(
    escape: str, quote: str, block: bytes, tail: int
) -> None:
    dialect = Dialect(b",", quote=quote.encode(), escape=escape.encode(), comment=b"#")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_TAIL_BYTES", tail)
        patch.setattr(quotes, "_MAX_PIECE_BYTES", 2 * tail)
        found = compute_transition_map(block, dialect=dialect)
    expected = []
    for state in QuoteState:
        for byte in block:
            state = next_state(state, bytes([byte]), dialect)
        expected.append(state)
    assert found == tuple(expected)
    assert unpack_map(pack_map(found)) == found


def test_many_quotes_in_all_pieces() -> None:
    """More quotes than one step pairs, in more than one piece."""
    for block in (b'"",' * 100_001, b'"' * 300_001, b'a""' * 70_000 + b',"'):
        assert compute_transition_map(block)[:4] == slow_map(block)


def slow_unclosed_quote(body: bytes) -> int:
    """The last quote that leads from outside of a field into it."""
    openings = [
        at
        for at in range(len(body))
        if compute_end_state(body[: at + 1]) is QUOTED
        and compute_end_state(body[:at]) is not QUOTED
        and not (
            at
            and body[at - 1] == ord('"')
            and compute_end_state(body[: at - 1]) is QUOTED
        )
    ]
    return openings[-1]


@given(
    body=st.lists(st.sampled_from([*b'"""a,\n']), max_size=30).map(bytes),
    block_bytes=st.integers(1, 12),
)
def test_unclosed_quote_is_the_last_that_opens(body: bytes, block_bytes: int) -> None:
    assume(compute_end_state(body) is QUOTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_BLOCK_BYTES", block_bytes)
        found = find_unclosed_quote(lambda start, stop: body[start:stop], len(body))
    assert found == slow_unclosed_quote(body)


@given(
    body=st.lists(st.sampled_from([*b"\r\na"]), max_size=30).map(bytes),
    block_bytes=st.integers(1, 12),
)
def test_line_of(body: bytes, block_bytes: int) -> None:
    body += b"x"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_BLOCK_BYTES", block_bytes)
        found = count_lines(lambda start, stop: body[start:stop], len(body) - 1)
    assert found == len(body.splitlines())


@pytest.mark.parametrize("range_bytes", [7, 64, 1 << 20])
def test_a_stray_quote_leaves_the_ranges_as_they_are(
    tmp_path: Path, range_bytes: int
) -> None:
    path = tmp_path / "in.csv"
    rows = [b'5" pipe,%d\n' % n for n in range(50)] + [b'"a\nb",1\n'] * 3
    path.write_bytes(b"what,n\n" + b"".join(rows))
    source = CsvSource(range_bytes=range_bytes)
    found = read_text(source, path)
    assert found == [['5" pipe', f"{n}"] for n in range(50)] + [["a\nb", "1"]] * 3
    reading = read(source, path)
    assert reading.rejects == []
    # Each range has the rows that start in it.
    for part in reading.parts:
        start, stop = part.input_range.start, part.input_range.stop
        assert all(start <= place < stop for place, _ in part.raws)


def test_an_unclosed_quote_in_a_large_file_costs_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.csv"
    rows = [b"%d,x\r\n" % n for n in range(1000)]
    rows[300] = b'300,"5 pipe\r\n'
    rows[700] = b'700,a ""good"" one\r\n'
    path.write_bytes(b"n,what\r\n" + b"".join(rows))
    # As long as it may be the text of a file that was cut off, it is rejected whole.
    reading = read(CsvSource(range_bytes=500), path)
    assert len(reading.rows) == 300
    monkeypatch.setattr(block_states, "UNCLOSED_BYTES", 1000)
    reading = read(CsvSource(range_bytes=500), path)
    assert [row["n"] for row in reading.rows] == [n for n in range(1000) if n != 300]
    [reject] = reading.rejects
    assert reject.raw == b'300,"5 pipe'
    assert reject.reason == "a quoted field is never closed; it opens at line 302"


def test_a_row_without_end_is_a_reject_that_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'a,b\n1,2\n3,"' + b"x\n" * 9000 + b'"\n5,6\n')
    monkeypatch.setattr("recordmill.transforms.sources.csv.rows.MAX_ROW_BYTES", 9999)
    monkeypatch.setattr(quotes, "MAX_ROW_BYTES", 9999)
    monkeypatch.setattr("recordmill.transforms.sources.csv.rows.KEPT_BYTES", 5)
    monkeypatch.setattr(quotes, "KEPT_BYTES", 5)
    reading = read(CsvSource(range_bytes=100), path)
    assert [row["a"] for row in reading.rows] == [1, 5]
    [reject] = reading.rejects
    assert (reject.position, reject.raw) == (8, b'3,"x\n')
    assert reject.reason.startswith(
        "the row that begins at line 3 has more than 9,999 "
    )


TINY = st.integers(1, 64) | st.just(1 << 20)


@given(
    body=st.lists(st.sampled_from([*b'a,"\n\r']), max_size=40).map(bytes),
    range_bytes=TINY,
)
@example(body=b'5" pipe,x\n"a\nb",c\n', range_bytes=8)  # counted, x is quoted
@example(body=b'1,2\n5",x\n3,4\n6",7\n8,9\n', range_bytes=4)
@example(body=b'1,2\n"a,b\n3,4\n', range_bytes=4)  # never closed
@example(body=b'5",x\n"a\nb', range_bytes=5)  # an even number, yet not closed
def test_stray_quotes_lose_and_double_nothing(
    write_csv: FileWriter, body: bytes, range_bytes: int
) -> None:
    """Every row is there, kept or rejected."""
    reading = read(CsvSource(range_bytes=range_bytes), write_csv(b"h,k\n" + body))
    raws = [body[a:b] for a, b in find_row_spans(body)]
    found = [raw for part in reading.parts for _, raw in part.raws]
    rejected = [reject.raw for reject in reading.rejects]
    assert sorted(found + rejected) == sorted(raws)
    wide = [row for raw in found for row in csv.reader([raw.decode()], strict=False)]
    assert len(wide) == len(reading.rows)


@pytest.mark.parametrize("range_bytes", [1, 7, 30, 1 << 20])
def test_quotes_in_bare_fields_are_read_literally(
    write_csv: FileWriter, range_bytes: int
) -> None:
    body = b"what,n\n" + b'5" pipe,1\n3" nail,2\nplain,3\n7" x 2",4\n' * 5
    assert read_text(CsvSource(range_bytes=range_bytes), write_csv(body)) == (
        [['5" pipe', "1"], ['3" nail', "2"], ["plain", "3"], ['7" x 2"', "4"]] * 5
    )


@pytest.mark.parametrize(
    ("body", "bad_rows"),
    [
        (b"1,2\n3\n5,6\n", {4: (b"3", "expected 2 columns, found 1")}),
        (b"1,2,3\n\n5,6\n", {0: (b"1,2,3", "expected 2 columns, found 3")}),
        (b'1,2\n"x\ny","z",\n', {4: (b'"x\ny","z",', "expected 2 columns, found 3")}),
        (
            b"1,\xff\n3,4\n",
            {0: (b"1,\xff", r"not UTF-8: b'\xff' at byte 2 of the row")},
        ),
        (
            b"1,2\r\n\xe9,2\r\n\r\n3\r\n\xc3,5,6\r\n7,8",
            {
                5: (b"\xe9,2", r"not UTF-8: b'\xe9,2' at byte 0 of the row"),
                12: (b"3", "expected 2 columns, found 1"),
                15: (b"\xc3,5,6", r"not UTF-8: b'\xc3,5,' at byte 0 of the row"),
            },
        ),
        (b'1,2\n"3,4\n5,6\n', {4: (b'"3,4\n5,6\n', "a quoted field is never closed")}),
        (b'1,2\n3,"4', {4: (b'3,"4', "a quoted field is never closed")}),
        (b'1,2\n3,"', {4: (b'3,"', "a quoted field is never closed")}),
        (b'1,2\n3,"a""', {4: (b'3,"a""', "a quoted field is never closed")}),
        (
            b'1\n\xff,2\n3,"4\n',
            {
                0: (b"1", "expected 2 columns, found 1"),
                2: (b"\xff,2", r"not UTF-8: b'\xff,2' at byte 0 of the row"),
                6: (b'3,"4\n', "a quoted field is never closed"),
            },
        ),
        (
            b"1\n2\n",
            {
                0: (b"1", "expected 2 columns, found 1"),
                2: (b"2", "expected 2 columns, fo"),
            },
        ),
    ],
)
@pytest.mark.parametrize("range_bytes", [1, 4, 5, 1 << 20])
@pytest.mark.parametrize("head", [b"a,b\n", BOM + b"a,b\r\n"])
def test_bad_rows_are_rejected_and_the_others_kept(
    write_csv: FileWriter,
    body: bytes,
    bad_rows: dict[int, tuple[bytes, str]],
    range_bytes: int,
    head: bytes,
    capfd: pytest.CaptureFixture[str],
) -> None:
    reading = read(CsvSource(range_bytes=range_bytes), write_csv(head + body))
    found = {r.position - len(head): (r.raw, r.reason) for r in reading.rejects}
    assert found.keys() == bad_rows.keys()
    for position, (raw, reason) in bad_rows.items():
        assert found[position][0] == raw
        assert found[position][1].startswith(reason)
    good = [raw for part in reading.parts for raw in part.raws]
    assert [place - len(head) for place, _ in good] == [
        start for start, _ in find_row_spans(body) if start not in bad_rows
    ]
    assert len(reading.rows) == len(good)
    assert capfd.readouterr().err == "", "no noise on stderr"
