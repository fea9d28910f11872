"""Tables in other dialects than RFC 4180, against Python's csv module."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import pytest
from example_counts import fuzzed
from hypothesis import assume, given
from hypothesis import strategies as st
from source_tools import FileWriter, file_writer, prepare, read_one, read_text

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    Dialect,
    QuoteState,
    end_state,
    next_state,
)
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.text_types import TypeFlag

DELIMITERS = st.sampled_from([*",;\t| #^]x-"])
QUOTES = st.sampled_from(["", '"', '"', "'", "a"])


@pytest.fixture(scope="module")
def write_csv(tmp_path_factory: pytest.TempPathFactory) -> FileWriter:
    return file_writer(tmp_path_factory)


class Rows:
    """The rows of Python's csv module, without the comments between them."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.lines = iter(io.StringIO(text, newline=""))
        self.comment = dialect.comment.decode()
        self.is_row_start = True
        self.reader = csv.reader(
            self._lines(),
            delimiter=dialect.delimiter.decode(),
            quotechar=dialect.quote.decode() or None,
            quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
            escapechar=dialect.escape.decode() or None,
        )

    def _lines(self) -> Iterator[str]:
        for line in self.lines:
            if self.is_row_start and self.comment and line.startswith(self.comment):
                continue
            self.is_row_start = False
            yield line

    def __iter__(self) -> Iterator[list[str]]:
        for row in self.reader:
            self.is_row_start = True
            if row:
                yield row


def is_read_alike(text: str, dialect: Dialect) -> bool:
    """Whether an escape stands neither behind a closing quote nor at the end.

    There Python takes it for an ordinary character, or for one of a row's end.
    """
    state, before = QuoteState.ROW_START, QuoteState.UNQUOTED
    for byte in text.encode():
        closed = before is QuoteState.QUOTED and state is QuoteState.FIELD_START
        if closed and bytes([byte]) == dialect.escape:
            return False
        before, state = state, next_state(state, bytes([byte]), dialect)
    return state not in (QuoteState.ESCAPED, QuoteState.QUOTED_ESCAPED)


@fuzzed()
@given(
    delimiter=DELIMITERS,
    quote=QUOTES,
    head=st.sampled_from(["", "\ufeff", "# a, \"b'\n\n", "one\r\ntwo\r"]),
    rows=st.lists(st.lists(st.sampled_from("0123456789"), min_size=2, max_size=2)),
    tokens=st.lists(
        st.sampled_from([*"DDQQQEE\r\na1ß", "QQ", "QD", "\r\n", "\nC", "EQ", "EE"]),
        max_size=40,
    ),
    marks=st.sampled_from([("", ""), ("", ""), ("\\", ""), ("", "%"), ("?", "%")]),
    cut=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    named=st.booleans(),
)
def test_rows_are_those_of_python(
    write_csv: FileWriter,
    delimiter: str,
    quote: str,
    head: str,
    rows: list[list[str]],
    tokens: list[str],
    marks: tuple[str, str],
    cut: tuple[int, int],
    named: bool,
) -> None:
    """In whatever dialect, cut at whatever places; rows of another width are rejects."""
    if quote == delimiter:
        quote = ""
    escape, comment = marks
    body = "".join(delimiter.join(row) + "\n" for row in rows)
    for token, mark in {"D": delimiter, "Q": quote or "'", "E": escape or "e"}.items():
        tokens = [each.replace(token, mark) for each in tokens]
    body += "".join(tokens).replace("C", comment or "c")
    dialect = Dialect(
        delimiter.encode(),
        quote.encode(),
        escape=escape.encode(),
        comment=comment.encode(),
    )
    assume(is_read_alike(body, dialect))
    header = "" if named else f"h{delimiter}k\n"
    lines = len(head.removeprefix("\ufeff").splitlines())
    asked = Dialect(
        delimiter=delimiter.encode(),
        quote=quote.encode(),
        skip_rows=lines,
        columns=("h", "k") if named else (),
        escape=escape.encode(),
        comment=comment.encode(),
    )
    source = CsvSource(asked=asked, range_bytes=cut[0])
    path = write_csv((head + header + body).encode())
    closed = [*Rows(body + "\n\0last", dialect)]
    is_open = closed[-1] != ["\0last"]
    found = [*Rows(body, dialect)]
    if named and found[:1] == [["h", "k"]]:
        return
    expected = [row for row in (found[:-1] if is_open else found) if len(row) == 2]

    if not header + body and head != "\ufeff":
        with pytest.raises(InputError, match=r"no more lines|empty"):
            prepare(source, [path])
        return
    reading = prepare(source, [path])
    text = (int(TypeFlag.TEXT),) * 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_rows, "BATCH_BYTES", cut[1])
        parts = [read_one(reading.source, each, text) for each in reading.ranges]

    cells = [[cell or "" for cell in row.values()] for p in parts for row in p.rows]
    assert cells == expected
    rejects = [reject for part in parts for reject in part.rejects]
    assert len(rejects) == len(found) - len(expected)
    data = path.read_bytes()
    for at, raw in [(r.position, r.raw) for r in rejects] + [
        raw for part in parts for raw in part.raws
    ]:
        assert data[at:].startswith(raw)


@fuzzed()
@given(
    tokens=st.lists(st.sampled_from([*",;'\"\na", "''"]), max_size=30),
    at=st.integers(0, 30),
    quote=st.sampled_from(["", "'"]),
)
def test_states_compose_in_every_dialect(
    tokens: list[str], at: int, quote: str
) -> None:
    dialect = Dialect(b";", quote.encode())
    text = "".join(tokens).encode()
    behind = end_state(text[:at], dialect=dialect)
    assert end_state(text[at:], behind, dialect) is end_state(
        text, dialect=dialect
    ) or (not text)
    if not quote:
        assert end_state(text, QuoteState.QUOTED, dialect) is not QuoteState.QUOTED or (
            not text
        )


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("id;price\r\n1;2,5\r\n2;3,5\r\n", b";"),
        ('"id";"a;b"\n1;"x;y;z"\n', b";"),
        ("id\tname\n1\ta, b\n", b"\t"),
        ("\ufeffid|name\n1|a\n2|b\n", b"|"),
        ("id;name\n" + "1;a\n" * 40 + "broken\n", b";"),
        ("id,name\n1,a;b\n2,c;d\n", b","),
        ("day,at\n2024-01-01,1;2\n", b","),
        ("a;b\n1;2\n1\n1\n", b","),
        ("id\n1\n", b","),
        ("id;name\n", b","),  # no row: nothing tells
        ("path\n/a|b\n/c|d\n", b","),
        ('"id;name"\n"1;a"\n', b","),
        (
            ";".join(f"column {n}" for n in range(9000)) + "\n" + "1;" * 8999 + "1\n",
            b";",
        ),
    ],
)
def test_the_delimiter_is_found(
    write_csv: FileWriter, text: str, delimiter: bytes
) -> None:
    source = prepare(CsvSource(), [write_csv(text.encode())]).source
    assert isinstance(source, CsvSource)
    assert source.dialect == Dialect(delimiter)
    told = dict(source.understood().facts)["delimiter"]
    assert told.endswith("found in the first rows") == (delimiter != b",")


def test_two_readings_alike_are_refused(write_csv: FileWriter) -> None:
    path = write_csv(b"id;name,x\n1;a,2\n2;b,3\n")
    with pytest.raises(
        InputError, match="2 columns with comma and 2 columns with semi"
    ):
        prepare(CsvSource(), [path])
    for mark, row in ((b",", ["1;a", "2"]), (b";", ["1", "a,2"])):
        source = CsvSource(asked=Dialect(delimiter=mark))
        assert read_text(source, path)[0] == row
    # The columns that are wanted tell which it is: those of a schema or a dataset.
    for mark, names in ((b",", ["x"]), (b";", ["id"])):
        found = prepare(CsvSource(wanted=(*names,)), [path]).source
        assert isinstance(found, CsvSource)
        assert found.dialect.delimiter == mark


def test_a_file_in_another_dialect_is_told(
    write_csv: FileWriter, tmp_path: object
) -> None:
    first = write_csv(b"id,name\n1,a\n")
    other = first.with_name("other.csv")
    other.write_bytes(b"id;name\n1;a\n")
    with pytest.raises(InputError, match="seems to have semicolon between its cells"):
        prepare(CsvSource(), [first.parent])
    other.unlink()


@pytest.mark.parametrize(
    ("data", "asked", "rows"),
    [
        (b"1,a\n2,b\n", Dialect(columns=("x", "y")), [["1", "a"], ["2", "b"]]),
        (b"1,a\n2,b\n", Dialect(header="none"), [["1", "a"], ["2", "b"]]),
        (b"1,2\n3,4\n", Dialect(header="first"), [["3", "4"]]),
        (
            BOM + b"\n\n1;a\n2;b\n",
            Dialect(header="none"),
            [["1", "a"], ["2", "b"]],
        ),
        (
            b"x\n\ny\n1;a\n2;b",
            Dialect(skip_rows=3, header="none"),
            [["1", "a"], ["2", "b"]],
        ),
        (b'a,"b\nh\n1,2\n', Dialect(skip_rows=1), []),
    ],
)
def test_no_header(
    write_csv: FileWriter, data: bytes, asked: Dialect, rows: list[list[str]]
) -> None:
    for range_bytes in (1, 3, 1 << 20):
        source = CsvSource(asked=asked, range_bytes=range_bytes)
        assert read_text(source, write_csv(data)) == rows


def test_columns_without_names_are_numbered(write_csv: FileWriter) -> None:
    source = prepare(CsvSource(asked=Dialect(header="none")), [write_csv(b"1;a\n" * 2)])
    assert source.source.columns().names == ["column_0", "column_1"]
