"""The same rows and rejects wherever a file is cut, whatever bytes it holds.

RECORDMILL_FUZZ_EXAMPLES says how many inputs are tried (`fuzzed`).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pytest
from csv_cases import classify
from example_counts import fuzzed
from hypothesis import assume, example, given
from hypothesis import strategies as st
from source_tools import FileWriter, prepare, read_one

from recordmill.schemas.ranges import RowIssue, TypeFlags, merge_type_flags
from recordmill.transforms.sources.csv import inspect, quotes
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv import source as block_states
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    FIND_DIALECT,
    QUOTED,
    Dialect,
    compute_end_state,
)
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.text_columns import TypeFlag

pytestmark = pytest.mark.fuzz

# What matters to the format, more often than what does not.
TEXT_TOKENS = [*'"",,\r\na1\\\\#', "\n#", '""', '",', ',"', "\r\n", "\ufeff", "\0", "ß"]
BYTE_TOKENS = [
    *(token.encode() for token in TEXT_TOKENS),
    *(b"\xff", b"\xc3", b"\xef", b"\xef\xbb", b'"\xbf"'),
]
TEXTS = st.lists(st.sampled_from(TEXT_TOKENS), max_size=40).map("".join)
BODIES = st.lists(st.sampled_from(BYTE_TOKENS), max_size=40).map(b"".join)
HEADS = st.sampled_from(
    [b"h\n", b"h,k\n", b"h,k\r\n", b'"h""\n",k\r', BOM + b"h,k\n", BOM + b'"h",k,l\r\n']
)
ESCAPES = Dialect(escape=b"\\")
COMMENTS = Dialect(comment=b"#")
DIALECTS = st.sampled_from(
    [Dialect(), Dialect(), ESCAPES, COMMENTS, Dialect(escape=b"\\", comment=b"#")]
)
CUTS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=4
)


@dataclass(frozen=True)
class Found:
    """What was read of a file: of each row and reject its place, bytes and outcome."""

    rows: list[tuple[int, bytes, tuple[str | None, ...]]]
    rejects: list[tuple[int, bytes, str]]
    flags: TypeFlags
    comments: int


def read_cut(
    write_csv: FileWriter,
    body: bytes,
    range_bytes: int,
    part_bytes: int,
    asked: Dialect = FIND_DIALECT,
) -> Found:
    """Reads a file in ranges and parts of these sizes."""
    source = CsvSource(range_bytes=range_bytes, requested_dialect=asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_states, "TAIL_BYTES", part_bytes)
        reading = prepare(source, [write_csv(body)])
    assert isinstance(reading.source, CsvSource)
    text = (int(TypeFlag.TEXT),) * len(reading.source.names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_rows, "BATCH_BYTES", part_bytes)
        patch.setattr(range_rows, "AHEAD_BYTES", part_bytes)
        parts = [read_one(reading.source, each, text) for each in reading.ranges]
        nothing: TypeFlags = ()
        samples = [reading.source.sample_type_flags(each) for each in reading.ranges]
    rows = [
        (*raw, tuple(row.values()))
        for part in parts
        for raw, row in zip(part.raws, part.rows, strict=True)
    ]
    columns = list(zip(*(cells for _, _, cells in rows), strict=True))
    flags = tuple(int(classify(pa.array(cells, pa.string()))) for cells in columns)
    sampled = reduce(merge_type_flags, samples, nothing)
    assert merge_type_flags(flags, sampled) == (flags or sampled)
    rejects = [
        (reject.position, reject.raw, reject.reason)
        for part in parts
        for reject in part.rejects
    ]
    for position, raw, _ in (*rows, *rejects):
        assert body[position:].startswith(raw)
    issues = RowIssue.merge_issues(tuple(part.issues) for part in parts)
    return Found(rows, rejects, flags, sum(one.count for one in issues))


@fuzzed()
@given(head=HEADS, body=BODIES, cuts=CUTS, asked=DIALECTS)
@example(
    head=b"h\n", body=BOM, cuts=[(1, 1)], asked=Dialect()
)  # nothing but a BOM in a part
@example(
    head=b"h,k\n", body=b"1,2\n" + BOM + b"\xff\n\xff", cuts=[(4, 4)], asked=Dialect()
)
@example(
    head=b"h,k\n",
    body=b"1,2\n" + BOM + b"3,4\n",
    cuts=[(4, 4), (9, 3)],
    asked=Dialect(),
)
@example(
    head=BOM + b"h,k\n", body=b"1,2\n", cuts=[(1, 1), (2, 1), (3, 1)], asked=Dialect()
)
@example(
    head=b"h,k\n",
    body=b'5" pipe,1\n"a\nb",2\n',
    cuts=[(8, 60), (60, 12)],
    asked=Dialect(),
)
@example(
    head=b"h,k\n", body=b'1,2\n"3,4\n5,6\n', cuts=[(8, 60), (60, 4)], asked=Dialect()
)
@example(head=b"h\n", body=b'"a\\', cuts=[(1, 1)], asked=ESCAPES)
@example(head=b"h\n", body=b"1\n#a\\", cuts=[(3, 2)], asked=COMMENTS)
def test_a_cut_changes_nothing(
    write_csv: FileWriter,
    head: bytes,
    body: bytes,
    cuts: list[tuple[int, int]],
    asked: Dialect,
) -> None:
    whole = read_cut(write_csv, head + body, 1 << 20, 1 << 20, asked)
    for range_bytes, part_bytes in cuts:
        assert read_cut(write_csv, head + body, range_bytes, part_bytes, asked) == whole
    data, at, comments = head + body, len(head), 0
    for position, raw, _ in [
        *sorted((*whole.rows, *whole.rejects)),
        (len(data), b"", ""),
    ]:
        for line in filter(None, data[at:position].splitlines()):
            assert asked.comment, "something was left out"
            assert line.startswith(asked.comment)
            comments += 1
        at = position + len(raw)
    assert comments == whole.comments


@fuzzed()
@given(head=HEADS, text=TEXTS, cut=st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_rows_are_those_of_python(
    write_csv: FileWriter, head: bytes, text: str, cut: tuple[int, int]
) -> None:
    """Rows of another width are rejects; so is a last one that is not closed."""
    found = read_cut(write_csv, head + text.encode(), *cut)
    names = head.count(b",") + 1
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    closed = list(csv.reader(io.StringIO(text + "\n\0last", newline="")))
    is_open = closed[-1] != ["\0last"]
    expected = [row for row in (rows[:-1] if is_open else rows) if len(row) == names]
    assert [[cell or "" for cell in cells] for _, _, cells in found.rows] == expected
    assert len(found.rejects) == len(rows) - len(expected)
    assert is_open == any("never closed" in reason for _, _, reason in found.rejects)


@fuzzed(0.05)
@given(
    head=HEADS,
    body=BODIES,
    tail=st.text('a1,\n"', max_size=30),
    cuts=CUTS.map(lambda cuts: [(rb % 40 + 1, pb) for rb, pb in cuts]),
)
@example(
    head=b"h,k\n", body=b'1,2\n"3', tail=',4\n5,6\n7,"8"\n' + "a,1\n" * 9, cuts=[(8, 9)]
)
def test_a_quote_without_an_end_costs_its_own_row(
    write_csv: FileWriter,
    head: bytes,
    body: bytes,
    tail: str,
    cuts: list[tuple[int, int]],
) -> None:
    """Where much stands behind it: as if it were another character, but rejected."""
    data = head + body + tail.replace('"', '""').encode() + b"\n" * 42
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_states, "UNCLOSED_BYTES", 10)
        first, *others = [read_cut(write_csv, data, *cut) for cut in [*cuts, (1, 1)]]
    assert all(other == first for other in others)
    whole = read_cut(write_csv, data, 1 << 20, 1 << 20)
    if not any("never closed" in reason for _, _, reason in whole.rejects):
        assert first == whole
        return
    [broken] = [each for each in first.rejects if "never closed" in each[2]]
    position, raw, _ = broken
    assert [row for row in first.rows if row[0] < position] == whole.rows
    # The others are those of a file without that row.
    behind = data[position + len(raw) :]
    rest = read_cut(write_csv, head + behind, 1 << 20, 1 << 20)
    moved = len(data) - len(head) - len(behind)
    assert [row[1:] for row in first.rows if row[0] > position] == [
        row[1:] for row in rest.rows
    ]
    assert [(at - moved, raw) for at, raw, _ in first.rejects if at > position] == [
        (at, raw) for at, raw, _ in rest.rejects
    ]


@fuzzed(0.1)
@given(head=HEADS, body=BODIES, cuts=CUTS, longest=st.integers(10, 30))
def test_rows_that_are_too_long_are_rejects(
    write_csv: FileWriter,
    head: bytes,
    body: bytes,
    cuts: list[tuple[int, int]],
    longest: int,
) -> None:
    data = head + body + b"\n"
    assume(compute_end_state(data.removeprefix(BOM)) is not QUOTED)
    whole = read_cut(write_csv, data, 1 << 20, 1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        for module in (quotes, range_rows):
            patch.setattr(module, "MAX_ROW_BYTES", longest)
            patch.setattr(module, "KEPT_BYTES", 3)
        patch.setattr(inspect, "TYPED_BYTES", longest)  # as they are far apart
        # No row can be too long and end in a range: ranges are smaller than that.
        found = [
            read_cut(write_csv, data, range_bytes % longest + 1, part_bytes)
            for range_bytes, part_bytes in cuts
        ]
    for one in found:
        assert one.rows == [row for row in whole.rows if len(row[1]) <= longest]
        long = [row for row in whole.rows if len(row[1]) > longest]
        expected = sorted(
            (at, raw if len(raw) <= longest else raw[:3])
            for at, raw, _ in (*long, *whole.rejects)
        )
        assert [(at, raw) for at, raw, _ in one.rejects] == expected


def test_bytes_that_arrow_strips_are_kept() -> None:
    table, wrong = range_rows.split_cells(BOM + b"a\n" + BOM, ["h"])
    assert table.column("h").to_pylist() == ["\ufeffa", "\ufeff"]
    assert wrong == {}
