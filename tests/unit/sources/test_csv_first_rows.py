"""What the first rows of a CSV input tell: another delimiter, a header that is a row."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from source_tools import prepare, read

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_summary import InputSummary
from recordmill.transforms.sources.csv.quotes import Dialect
from recordmill.transforms.sources.csv.source import CsvSource

Understand = Callable[..., InputSummary]


@pytest.fixture
def understand(tmp_path: Path) -> Understand:
    """Prepares a source on one file."""

    def look(text: str, *, as_text: bool = False) -> InputSummary:
        path = tmp_path / "in.csv"
        path.write_text(text, newline="")
        return prepare(CsvSource(as_text=as_text), [path]).source.understood()

    return look


def test_one_column_that_looks_like_a_table(tmp_path: Path) -> None:
    """It was asked for, by its delimiter or by the name of its column."""
    path = tmp_path / "in.csv"
    path.write_text("id;price\n1;2.5\n2;3.5\n")
    for source in (
        CsvSource(asked=Dialect(delimiter=b",")),
        CsvSource(as_text=True, wanted=("id;price",)),
    ):
        (warning,) = prepare(source, [path]).source.understood().warnings
        assert "this looks like a table with `delimiter=semicolon`" in warning


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
        "0,1,2,3\n5,6,7,8\n",  # pandas' names of columns
        "day,2024-01-01,2024-01-02,2024-01-03\n2,2023-01-01,2023-01-01,2023-01-01\n",
        "1,2\n",  # no row
        "1,2\nx,y\n",
        "id,5.5\n1,2.5\n",
    ],
)
def test_a_header_that_is_none(understand: Understand, text: str) -> None:
    assert understand(text).warnings == ()


def test_columns_and_types_are_told(understand: Understand) -> None:
    understood = understand("id,,x,ok,none\n1,a,2.5,true,\n2,b,3,false,\n")
    assert dict(understood.facts) == {
        "delimiter": "comma",
        "header": "line 1",
        "columns": "5 (id int64, column_1 string, x float32, ok bool, none empty)",
        "types": "so far, by the first 2 rows",
        "columns without a name": "1, named column_1",
    }


def test_long_lists_are_shortened(understand: Understand) -> None:
    names = ["a" * 60, *(f"n{number}" for number in range(30))]
    understood = understand(",".join(names) + "\n")
    columns = dict(understood.facts)["columns"]
    assert columns.startswith(f"31 ({'a' * 37}... empty, n0 empty, ")
    assert columns.endswith("n8 empty, 21 more)")


def test_a_number_twice_in_the_header(understand: Understand) -> None:
    with pytest.raises(InputError, match="no header, say so: `header=none`"):
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
    warnings = prepare(CsvSource(), [path]).source.understood().warnings
    assert [way_out in warning for warning in warnings] == [True] * bool(way_out)
    names = re.search("columns=([a-z,]+)", way_out)
    lines = re.search("skip_rows=([0-9])", way_out)
    asked = Dialect(
        columns=tuple(names[1].split(",")) if names else (),
        skip_rows=int(lines[1]) if lines else 0,
    )
    assert len(read(CsvSource(asked=asked), path).rows) == rows


def test_names_that_are_the_header(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="Leave out `columns`"):
        prepare(CsvSource(asked=Dialect(columns=("a", "b"))), [path])
