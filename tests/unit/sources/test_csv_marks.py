"""Named dialects, decimal commas, and what is told of marks that were not understood."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from job_tools import convert, examples_of, recordmill
from source_tools import prepare, read, read_text

from recordmill.schemas.errors import UsageError
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.ranges import RowIssue
from recordmill.transforms.sources.built_in import FORMATS, CsvOptions
from recordmill.transforms.sources.csv.header import ask_dialect
from recordmill.transforms.sources.csv.quotes import Dialect
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.registry import Request


def source_of(**options: Any) -> CsvSource:
    return CsvSource(asked=ask_dialect(CsvOptions(**options)))


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
    asked = ask_dialect(CsvOptions(dialect="mysql", header="first", delimiter="pipe"))
    assert asked == Dialect(b"|", b"", 0, "first", (), ("\\N",), b"\\")
    path = written(tmp_path, "a;b,c\n1;2,5\n2;3,6\n")  # refused by `auto`
    assert read_text(source_of(dialect="rfc4180"), path) == [["1;2", "5"], ["2;3", "6"]]
    assert ask_dialect(CsvOptions(dialect="excel-tab")).delimiter == b"\t"


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
    issues = RowIssue.merged(tuple(part.issues) for part in reading.parts)
    assert [each.count for each in issues] == [4]
    assert dict(reading.source.understood().facts)["delimiter"].startswith("tab")


def test_an_escape_at_the_end_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "h\n1\n2\\")
    [reject] = read(source_of(escape="\\"), path).rejects
    assert (reject.raw, reject.position) == (b"2\\", 4)
    assert "ends behind an escape character" in reject.reason


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
    assert "column big is text, but looks like numbers with marks of thousands" in told
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
    path = written(tmp_path, COMMAS + "4;7,25;1;04.02.2024;y\n" * 200)
    told = recordmill("convert", "csv", path, tmp_path / "out", "--plan").out
    assert "column price is text, but looks like numbers with a decimal comma" in told
    assert "--decimal comma" in told
    told = convert("csv", path, tmp_path / "out").err
    at_end = told.partition(" records in ")[2]
    assert at_end.count("decimal comma: cells like '1,5'") == 1
    assert at_end.count("column big is text, but looks like numbers with marks") == 1
    assert "column when" not in told
    assert "column list" not in told
    ambiguous = written(tmp_path, 'n,m\n"1,234","x,1"\n"12,345,678","2,5"\n')
    warnings = prepare(CsvSource(), [ambiguous]).source.understood().warnings
    assert ["thousands" in warning for warning in warnings] == [True]


def test_lines_before_the_header_that_may_be_comments(tmp_path: Path) -> None:
    """They begin with a mark, and have fewer cells than the rows below."""
    path = written(tmp_path, "% made by us\n% of old\nid,price\n1,2\n3,4\n5,6\n")
    ran = recordmill("convert", "csv", path, tmp_path / "out")
    assert ran.status == 65
    assert "the header has 1 name, but the rows below it have 2 cells" in ran.err
    assert "If it is a comment, say so: --comment %" in ran.err
    convert("csv", path, tmp_path / "out", "--comment", "%")
    assert len([*examples_of(tmp_path / "out")]) == 3
    # A mark that other lines do not have is no mark of comments.
    path = written(tmp_path, "% made by us\nof,old,times\nid,price\n1,2\n3,4\n5,6\n")
    ran = recordmill("convert", "csv", path, tmp_path / "skipped")
    assert "skip what is before it: --skip-rows 2" in ran.err
    convert("csv", path, tmp_path / "skipped", "--skip-rows", "2")


def test_a_header_that_may_be_a_comment_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, "# made by us\nid;price\n1;2\n3;4\n")
    told = recordmill("convert", "csv", path, tmp_path / "out", "--plan").out
    assert "use --comment #" in told
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
    with pytest.raises(UsageError, match="`decimal` and `schema` exclude each other"):
        FORMATS["csv"].make_source(options, Request(as_text=True))
