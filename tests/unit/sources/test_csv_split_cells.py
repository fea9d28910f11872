"""Rows split into cells: stray quotes, rows of another width, bytes that are no UTF-8."""

from __future__ import annotations

import csv

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from source_tools import FileWriter, file_writer, read, read_text

from recordmill.transforms.sources.csv.quotes import BOM, row_spans
from recordmill.transforms.sources.csv.source import CsvSource

TINY = st.integers(1, 64) | st.just(1 << 20)


@pytest.fixture(scope="module")
def write_csv(tmp_path_factory: pytest.TempPathFactory) -> FileWriter:
    return file_writer(tmp_path_factory)


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
    raws = [body[a:b] for a, b in row_spans(body)]
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
        start for start, _ in row_spans(body) if start not in bad_rows
    ]
    assert len(reading.rows) == len(good)
    assert capfd.readouterr().err == "", "no noise on stderr"
