"""Quotes that are never closed: where they stand, and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from source_tools import read, read_text

from recordmill.transforms.sources.csv import quotes as broken_rows
from recordmill.transforms.sources.csv import source as block_states
from recordmill.transforms.sources.csv.quotes import (
    QUOTED,
    end_state,
    line_of,
    unclosed_quote,
)
from recordmill.transforms.sources.csv.source import CsvSource


def slow_unclosed_quote(body: bytes) -> int:
    """The last quote that leads from outside of a field into it."""
    openings = [
        at
        for at in range(len(body))
        if end_state(body[: at + 1]) is QUOTED
        and end_state(body[:at]) is not QUOTED
        and not (
            at and body[at - 1] == ord('"') and end_state(body[: at - 1]) is QUOTED
        )
    ]
    return openings[-1]


@given(
    body=st.lists(st.sampled_from([*b'"""a,\n']), max_size=30).map(bytes),
    block_bytes=st.integers(1, 12),
)
def test_unclosed_quote_is_the_last_that_opens(body: bytes, block_bytes: int) -> None:
    assume(end_state(body) is QUOTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broken_rows, "_BLOCK_BYTES", block_bytes)
        found = unclosed_quote(lambda start, stop: body[start:stop], len(body))
    assert found == slow_unclosed_quote(body)


@given(
    body=st.lists(st.sampled_from([*b"\r\na"]), max_size=30).map(bytes),
    block_bytes=st.integers(1, 12),
)
def test_line_of(body: bytes, block_bytes: int) -> None:
    body += b"x"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broken_rows, "_BLOCK_BYTES", block_bytes)
        found = line_of(lambda start, stop: body[start:stop], len(body) - 1)
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
    monkeypatch.setattr(broken_rows, "MAX_ROW_BYTES", 9999)
    monkeypatch.setattr("recordmill.transforms.sources.csv.rows.KEPT_BYTES", 5)
    monkeypatch.setattr(broken_rows, "KEPT_BYTES", 5)
    reading = read(CsvSource(range_bytes=100), path)
    assert [row["a"] for row in reading.rows] == [1, 5]
    [reject] = reading.rejects
    assert (reject.position, reject.raw) == (8, b'3,"x\n')
    assert reject.reason.startswith(
        "the row that begins at line 3 has more than 9,999 "
    )
