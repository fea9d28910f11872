"""Tables in other dialects than RFC 4180, against Python's csv module."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from example_counts import fuzzed
from hypothesis import assume, given
from hypothesis import strategies as st
from job_tools import convert, examples_of, recordmill
from source_tools import FileWriter, prepare, read, read_one, read_text

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.ranges import RowIssue
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv.header import parse_dialect
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    Dialect,
    QuoteState,
    compute_end_state,
    next_state,
)
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.registry import (
    CsvOptions,
    SourceRequest,
    load_format,
)
from recordmill.transforms.sources.text_columns import TypeFlag

DELIMITERS = st.sampled_from([*",;\t| #^]x-"])
QUOTES = st.sampled_from(["", '"', '"', "'", "a"])


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
    source = CsvSource(requested_dialect=asked, range_bytes=cut[0])
    path = write_csv((head + header + body).encode())
    closed = [*Rows(body + "\n\0last", dialect)]
    is_open = closed[-1] != ["\0last"]
    found = [*Rows(body, dialect)]
    if named and found[:1] == [["h", "k"]]:
        return
    expected = [row for row in (found[:-1] if is_open else found) if len(row) == 2]

    rest = header + body
    if head.endswith("\r"):
        rest = rest.removeprefix("\n")  # of the line end
    if not rest and head != "\ufeff":
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
    behind = compute_end_state(text[:at], dialect=dialect)
    assert compute_end_state(text[at:], behind, dialect) is compute_end_state(
        text, dialect=dialect
    ) or (not text)
    if not quote:
        assert compute_end_state(
            text, QuoteState.QUOTED, dialect
        ) is not QuoteState.QUOTED or (not text)


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
    assert source.rows.dialect == Dialect(delimiter)
    told = dict(source.input_report().fields)["delimiter"]
    assert told.endswith("found in the first rows") == (delimiter != b",")


def test_two_readings_alike_are_refused(write_csv: FileWriter) -> None:
    path = write_csv(b"id;name,x\n1;a,2\n2;b,3\n")
    with pytest.raises(
        InputError, match="2 columns with comma and 2 columns with semi"
    ):
        prepare(CsvSource(), [path])
    for mark, row in ((b",", ["1;a", "2"]), (b";", ["1", "a,2"])):
        source = CsvSource(requested_dialect=Dialect(delimiter=mark))
        assert read_text(source, path)[0] == row
    # The columns that are wanted tell which it is: those of a schema or a dataset.
    for mark, names in ((b",", ["x"]), (b";", ["id"])):
        found = prepare(CsvSource(requested_columns=(*names,)), [path]).source
        assert isinstance(found, CsvSource)
        assert found.rows.dialect.delimiter == mark


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
        (BOM + b"\n\n1;a\n2;b\n", Dialect(header="none"), [["1", "a"], ["2", "b"]]),
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
        source = CsvSource(requested_dialect=asked, range_bytes=range_bytes)
        assert read_text(source, write_csv(data)) == rows


def test_columns_without_names_are_numbered(write_csv: FileWriter) -> None:
    source = prepare(
        CsvSource(requested_dialect=Dialect(header="none")), [write_csv(b"1;a\n" * 2)]
    )
    assert source.source.columns().names == ["column_0", "column_1"]


def source_of(**options: Any) -> CsvSource:
    return CsvSource(requested_dialect=parse_dialect(CsvOptions(**options)))


def written(folder: Path, text: str, name: str = "in.csv") -> Path:
    path = folder / name
    path.write_text(text, newline="")
    return path


def values_of(row: Example) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in row.features.feature.items())


def test_nulls_and_escapes_of_mysql(tmp_path: Path) -> None:
    """As SELECT ... INTO OUTFILE and mysqldump --tab write them."""
    rows = [["1", "a\tb", ""], ["", "x\ny", "N"], ["3", "\\", "\\N"], ["4", ",\t", ""]]
    text = "1\ta\\\tb\t\\N\n\\N\tx\\\ny\tN\n3\t\\\\\t\\\\N\n4\t,\\\t\t\\N\n"
    path = written(tmp_path, text)
    assert read_text(source_of(dialect="mysql"), path) == rows
    # A row of nothing else is a row.
    one = written(tmp_path, "h\n1\n\\N\n2\n", "one.csv")
    single = source_of(escape="backslash", null_values="\\N")
    assert read_text(single, one) == [["1"], [""], ["2"]]
    # Quotes, if there are any, are kept apart from nulls like \N.
    quoted = written(tmp_path, 'h,k\n\\N,"a,\\N,b"\n"\\N",\\N\n', "quoted.csv")
    asked = source_of(escape="backslash", null_values="\\N")
    assert read_text(asked, quoted) == [["", "a,N,b"], ["N", ""]]


def test_what_is_said_comes_before_a_named_dialect(tmp_path: Path) -> None:
    asked = parse_dialect(CsvOptions(dialect="mysql", header="first", delimiter="pipe"))
    assert asked == Dialect(b"|", b"", 0, "first", (), ("\\N",), b"\\")
    path = written(tmp_path, "a;b,c\n1;2,5\n2;3,6\n")  # refused by `auto`
    assert read_text(source_of(dialect="rfc4180"), path) == [["1;2", "5"], ["2;3", "6"]]
    assert parse_dialect(CsvOptions(dialect="excel-tab")).delimiter == b"\t"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"escape": '"'}, "`quote` and `escape` are both '\"'"),
        ({"comment": ";", "delimiter": ";"}, "`delimiter` and `comment` are both ';'"),
        ({"decimal": "comma", "delimiter": ",", "quote": "none"}, "both a comma"),
    ],
)
def test_a_character_with_two_meanings_is_refused(
    options: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        source_of(**options)


@pytest.mark.parametrize("comment", ["|", ";", "#"])
def test_the_delimiter_is_no_other_mark(tmp_path: Path, comment: str) -> None:
    """It is found beside comments, in which any character may be."""
    text = f"{comment} a;b|c\n\n{comment}\nid\tk\n1\ta\n{comment} 2\tb\n3\tc\n{comment}"
    path = written(tmp_path, text)
    reading = read(source_of(comment=comment), path)
    assert [row["k"] for row in reading.rows] == ["a", "c"]
    issues = RowIssue.merge_issues(tuple(part.issues) for part in reading.parts)
    assert [each.count for each in issues] == [4]
    assert dict(reading.source.input_report().fields)["delimiter"].startswith("tab")


def test_an_escape_at_the_end_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "h\n1\n2\\")
    [reject] = read(source_of(escape="\\"), path).rejects
    assert (reject.raw, reject.position) == (b"2\\", 4)
    assert "ends after an escape character" in reject.reason


COMMAS = (
    "id;price;big;when;list\n"
    "1;1,5;1.234,5;01.02.2024;1,2\n"
    "2; 2,25 ;2.000;02.02.2024;1,2,3\n"
    "3;NA;1.000.000;03.02.2024;x\n"
)


def test_decimal_commas(tmp_path: Path) -> None:
    """In numbers only; an append and a declared schema read the same."""
    (tmp_path / "in").mkdir()
    written(tmp_path / "in", COMMAS, "1.csv")
    given = (tmp_path / "in", tmp_path / "out", "--decimal", "comma")
    told = convert("csv", *given).err
    assert (
        "column big is text, but looks like numbers with thousands separators" in told
    )
    written(tmp_path / "in", COMMAS.replace("1,5", "-7,125"), "2.csv")
    convert("csv", *given, "--append")
    rows = [*examples_of(tmp_path / "out")]
    found = sorted(
        v for row in rows for v in row.features.feature["price"].float_list.value
    )
    assert found == [-7.125, 1.5, 2.25, 2.25]
    features = rows[0].features.feature
    for name in ("big", "when", "list"):
        assert features[name].bytes_list.value[0].decode() in COMMAS
    schema = recordmill("schema", "infer", "csv", *given[:1], "--decimal", "comma").out
    assert "price: {dtype: float32, optional: true, decimal: comma}" in schema
    (tmp_path / "schema.yaml").write_text(schema)
    convert(
        "csv", tmp_path / "in", tmp_path / "typed", "--schema", tmp_path / "schema.yaml"
    )
    one, other = (
        sorted(str(values_of(row)) for row in examples_of(tmp_path / name))
        for name in ("out", "typed")
    )
    assert one == other


def test_what_looks_like_numbers_is_told(tmp_path: Path) -> None:
    """Before the run and after it, with the way out."""
    path = written(tmp_path, COMMAS + "4;7,25;2.500.000;04.02.2024;y\n" * 200)
    told = recordmill("convert", "csv", path, tmp_path / "out", "--plan").out
    assert "column price is text, but looks like numbers with a decimal comma" in told
    assert "--decimal comma" in told
    told = convert("csv", path, tmp_path / "out").err
    at_end = told.partition(" records in ")[2]
    assert at_end.count("or thousands separators: cells like '1,5'") == 1
    assert at_end.count("column big is text, but looks like numbers with") == 1
    assert "column when" not in told
    assert "column list" not in told
    ambiguous = written(tmp_path, 'n,m\n"1,234","x,1"\n"12,345,678","2,5"\n')
    warnings = prepare(CsvSource(), [ambiguous]).source.input_report().warnings
    assert [warning.code for warning in warnings] == ["number-marks"]


def test_lines_before_the_header_that_may_be_comments(tmp_path: Path) -> None:
    """They begin with a mark, and have fewer cells than the rows below."""
    path = written(tmp_path, "% made by us\n% of old\nid,price\n1,2\n3,4\n5,6\n")
    ran = recordmill("convert", "csv", path, tmp_path / "out")
    assert ran.status == 65
    assert "the header has 1 name, but the rows below it have 2 cells" in ran.err
    assert "If it is a comment, use --comment %" in ran.err
    convert("csv", path, tmp_path / "out", "--comment", "%")
    assert len([*examples_of(tmp_path / "out")]) == 3
    # A mark that other lines do not have is no mark of comments.
    path = written(tmp_path, "% made by us\nof,old,times\nid,price\n1,2\n3,4\n5,6\n")
    ran = recordmill("convert", "csv", path, tmp_path / "skipped")
    assert "skip the lines before it: --skip-rows 2" in ran.err
    convert("csv", path, tmp_path / "skipped", "--skip-rows", "2")


def test_a_header_that_may_be_a_comment_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "# made by us\nid;price\n1;2\n3;4\n")
    told = recordmill("convert", "csv", path, tmp_path / "out", "--plan").out
    assert "use --comment '#'" in told
    done = convert("csv", path, tmp_path / "out", "--comment", "#").err
    assert "comment lines: 1 left out, such as '# made by us'" in done
    assert "header: line 1, comments not counted" in done
    assert len([*examples_of(tmp_path / "out")]) == 2


def test_nulls_of_a_column_in_a_schema(tmp_path: Path) -> None:
    schema = (
        "features:\n  t: {dtype: float32, optional: true, null_values: [-999, n.a.]}\n"
        "  u: {dtype: string, default: none, null_values: ['?']}\n  v: int64\n"
    )
    path = written(tmp_path, "t,u,v\n-999,?,-999\n1.5,-999,7\nn.a.,a,8\n")
    (tmp_path / "schema.yaml").write_text(schema)
    convert("csv", path, tmp_path / "out", "--schema", tmp_path / "schema.yaml")
    rows = [row.features.feature for row in examples_of(tmp_path / "out")]
    assert [v for row in rows for v in row["t"].float_list.value] == [1.5]
    texts = sorted(row["u"].bytes_list.value[0] for row in rows)
    assert texts == [b"-999", b"a", b"none"]
    assert sorted(row["v"].int64_list.value[0] for row in rows) == [-999, 7, 8]


def test_decimal_and_schema_exclude_each_other() -> None:
    options = CsvOptions(decimal="comma")
    with pytest.raises(UsageError, match="`decimal` and `schema` cannot be combined"):
        load_format("csv").make_source(options, SourceRequest(as_text=True))


Understand = Callable[..., InputReport]


@pytest.fixture
def understand(tmp_path: Path) -> Understand:
    """Prepares a source on one file."""

    def look(text: str, *, as_text: bool = False) -> InputReport:
        path = tmp_path / "in.csv"
        path.write_text(text, newline="")
        return prepare(CsvSource(as_text=as_text), [path]).source.input_report()

    return look


def test_one_column_that_looks_like_a_table(tmp_path: Path) -> None:
    """It was asked for, by its delimiter or by the name of its column."""
    path = tmp_path / "in.csv"
    path.write_text("id;price\n1;2.5\n2;3.5\n")
    for source in (
        CsvSource(requested_dialect=Dialect(delimiter=b",")),
        CsvSource(as_text=True, requested_columns=("id;price",)),
    ):
        (warning,) = prepare(source, [path]).source.input_report().warnings
        assert "this looks like a table with `delimiter=semicolon`" in warning.message


@pytest.mark.parametrize(
    "text",
    [
        "id;name\n",  # no row
        "id;name\n1\n2\n",
        '"id;name"\n"1;a"\n',  # quoted: meant so
        "path\n/a|b\n/c|d\n",
        "a;b\n1;2\n1\n1\n",
    ],
)
def test_one_column_that_is_one(understand: Understand, text: str) -> None:
    assert understand(text).warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "5.1,3.5,setosa\n4.9,3.0,setosa\n",
        "1,2\n3,4\n",
        "2024-01-31,x\n2024-02-01,y\n",
        "true\nfalse\n",
        "7,2024-01-31 10:30,a\n8,2024-01-31 11:30,b\n",
        "5, 1.5 \n6,NA\n7, 2\n",
        "1,1e39\n2,3.5\n",
    ],
)
def test_a_header_that_is_a_row(understand: Understand, text: str) -> None:
    with pytest.raises(InputError, match="should be the header, but it looks like a"):
        understand(text)
    assert understand(text, as_text=True).warnings == ()  # declared by its names


@pytest.mark.parametrize(
    "text",
    [
        "id,name\n1,x\n",
        "name,city\nann,rome\n",  # text may be anything
        "country,2001,2002,2003\nit,5,6,7\n",  # years
        "2020-01,2020-02,2020-03\n1,2,3\n",
        "1,2,3\na,b,c\n",
        "0,1,2,3\n5,6,7,8\n",  # pandas' names of columns
        "day,2024-01-01,2024-01-02,2024-01-03\n2,2023-01-01,2023-01-01,2023-01-01\n",
        "1,2\n",  # no row
        "1,2\nx,y\n",
    ],
)
def test_a_header_that_is_none(understand: Understand, text: str) -> None:
    assert understand(text).warnings == ()


@pytest.mark.parametrize(
    "text",
    [
        "0.1,0.2,0.3\n0.5,0.4,0.8\n",
        "land,1,2,3\nDE,7,8,9\n",
        "1,2,3\n4,5,6\n",
        "id,5.5\n1,2.5\n",
    ],
)
def test_a_header_that_counts_up_is_doubted(understand: Understand, text: str) -> None:
    (warning,) = understand(text).warnings
    assert warning.code == "doubtful-header"


def test_columns_and_types_are_told(understand: Understand) -> None:
    understood = understand("id,,x,ok,none\n1,a,2.5,true,\n2,b,3,false,\n")
    assert dict(understood.fields) == {
        "delimiter": "comma",
        "header": "line 1",
        "columns": "5 (id int64, column_1 string, x float32, ok bool, none empty)",
        "types": "so far, by the first 2 rows",
        "columns without a name": "1, named column_1",
    }


def test_long_lists_are_shortened(understand: Understand) -> None:
    names = ["a" * 60, *(f"n{number}" for number in range(30))]
    understood = understand(",".join(names) + "\n")
    columns = dict(understood.fields)["columns"]
    assert columns.startswith(f"31 ({'a' * 37}... empty, n0 empty, ")
    assert columns.endswith("n8 empty, 21 more)")


def test_a_number_twice_in_the_header(understand: Understand) -> None:
    with pytest.raises(InputError, match="no header, use `header=none`"):
        understand("5.1,5.1\n1,2\n")


@pytest.mark.parametrize(
    ("text", "way_out", "rows"),
    [
        ("a,b\n1,2,3\n4,5,6\n", "`columns=row,a,b` and `skip_rows=1`", 2),
        ("Sales\n\nid,x\n1,2\n", "`skip_rows=2`", 1),
        ("of,May\nby: us\nid,x,y\n1,2,3\n4,5,6\n", "`skip_rows=2`", 2),
        ("a,b,c\n1,2\n1,2\n", "", 0),
        ("a,b\n1,2\n3,4,5\n", "", 1),  # one row of another width is a reject
        ("a,b\n1,2,3\n1\n4,5,6\n", "", 0),
    ],
)
def test_a_header_that_does_not_fit(
    tmp_path: Path, text: str, way_out: str, rows: int
) -> None:
    path = tmp_path / "in.csv"
    path.write_text(text)
    warnings = prepare(CsvSource(), [path]).source.input_report().warnings
    assert [way_out in warning.message for warning in warnings] == [True] * bool(
        way_out
    )
    names = re.search("columns=([a-z,]+)", way_out)
    lines = re.search("skip_rows=([0-9])", way_out)
    asked = Dialect(
        columns=tuple(names[1].split(",")) if names else (),
        skip_rows=int(lines[1]) if lines else 0,
    )
    assert len(read(CsvSource(requested_dialect=asked), path).rows) == rows


def test_names_that_are_the_header(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="Leave out `columns`"):
        prepare(CsvSource(requested_dialect=Dialect(columns=("a", "b"))), [path])
