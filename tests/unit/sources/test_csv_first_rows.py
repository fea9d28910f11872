"""What the first rows of a CSV input tell: another delimiter, a header that is a row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from source_tools import prepare

from recordmill.schemas.errors import InputError
from recordmill.schemas.understood import Understood
from recordmill.transforms.sources.csv.source import CsvSource

Understand = Callable[..., Understood]


@pytest.fixture
def understand(tmp_path: Path) -> Understand:
    """Prepares a source on one file."""

    def look(text: str, *, as_text: bool = False) -> Understood:
        path = tmp_path / "in.csv"
        path.write_text(text, newline="")
        return prepare(CsvSource(as_text=as_text), [path]).source.understood()

    return look


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("id;name;price\n1;a;2\n2;b;3\n", "';'"),
        ("id;price\r\n1;2,5\r\n2;3,5\r\n", "';'"),  # commas in decimals: all rejects
        ('"id";"a;b"\n1;"x;y;z"\n', "';'"),
        ("id\tname\n1\ta\n", "tabs"),
        ("\ufeffid|name\n1|a\n2|b\n", "'|'"),
        ("id;name\n" + "1;a\n" * 40 + "broken\n", "';'"),
    ],
)
def test_one_column_that_is_a_table(
    understand: Understand, text: str, word: str
) -> None:
    with pytest.raises(InputError, match="is the single column") as error:
        understand(text)
    assert f"looks like a table with {word} between its cells" in str(error.value)
    warnings = understand(text, as_text=True).warnings
    assert len(warnings) == 1
    assert "is the single column" in warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "id;name\n",  # no row
        "id;name\n1\n2\n",
        "id;name,x\n1;a,2\n",  # two columns
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
        "1,1e39\n2,3.5\n",
    ],
)
def test_a_header_that_is_a_row(understand: Understand, text: str) -> None:
    (warning,) = understand(text).warnings
    assert "line 1 is taken for the header, but it looks like a row" in warning
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
    with pytest.raises(InputError, match="put a line with column names before it"):
        understand("5.1,5.1\n1,2\n")
