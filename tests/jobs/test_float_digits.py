"""Numbers keep their digits: what float32 may lose is told with the way out, or refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from job_tools import (
    IRIS,
    assert_unpublished,
    assert_whole,
    convert,
    examples_of,
    manifest_of,
    recordmill,
)

from recordmill import read_rows
from recordmill.transforms.sources.csv.source import CsvSource

TABLE = "id,price\n16777217,0.10\n2,19.99\n2.5,123456789.12\n"
WAY_OUT = "{dtype: float64, stored: tensor} or string in a schema file"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_lost_digits_are_told(table: Path, tmp_path: Path, exchange: str) -> None:
    ran = convert("csv", table, tmp_path / "out", "--exchange", exchange)
    warnings = [
        f"column {column}: float32 may lose some of them. To keep them, declare the "
        f"column {WAY_OUT} (`schema`)"
        for column in (
            "'id': 1 value with more than 7 digits, such as 16777217",
            "'price': 1 value with more than 7 digits, such as 123456789.12",
        )
    ]
    for warning in warnings:
        assert f"  warning: {warning.replace('`schema`', '--schema')}\n" in ran.err
    kept = json.loads((tmp_path / "out" / "run.json").read_bytes())
    assert kept["understood"]["warnings"] == warnings
    ran = convert("csv", table, tmp_path / "log", "--log-format", "json")
    events = [json.loads(line) for line in ran.err.splitlines()]
    assert [e["event"] for e in events if e["level"] == "warning"] == [
        "input_warning",
        "input_warning",
    ]


def test_counts_of_all_ranges_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column is an integer in the first range: it is counted when read again."""
    cut = CsvSource.cut
    monkeypatch.setattr(
        CsvSource, "cut", lambda self, files: cut(replace(self, range_bytes=64), files)
    )
    path = tmp_path / "in.csv"
    path.write_text("id,x\n" + "16777217,1\n" * 50 + "0.5,1\n")
    ran = convert("csv", path, tmp_path / "out", "--json")
    (warning,) = json.loads(ran.out)["understood"]["warnings"]
    assert "50 values with more than 7 digits, such as 16777217" in warning


def test_appended_digits_are_told(table: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x\n0.5\n")
    convert("csv", tmp_path / "in", tmp_path / "out", "--append")
    (tmp_path / "in" / "b.csv").write_text("x\n16777217\n")
    ran = convert("csv", tmp_path / "in", tmp_path / "out", "--append", "--json")
    (warning,) = json.loads(ran.out)["understood"]["warnings"]
    assert "1 value with more than 7 digits, such as 16777217" in warning


def test_the_ways_out(table: Path, tmp_path: Path) -> None:
    """A declared float64, or string, of that column; the others as they were inferred."""
    schema = tmp_path / "schema.yaml"
    declared = "features: {id: {dtype: float64, stored: tensor}, price: string}\n"
    schema.write_text(declared)
    options = ("--schema", schema, "--no-shuffle")
    ran = convert("csv", table, tmp_path / "out", *options)
    assert "float32" not in ran.err.replace("(id float32", "")
    rows = list(read_rows(str(tmp_path / "out")))
    assert [row["id"] for row in rows] == [16777217, 2, 2.5]
    assert rows[2]["price"] in ("123456789.12", b"123456789.12")


def test_ordinary_decimals_are_no_warning(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text(
        "price,share\n0.1,0.3333333\n19.99,1e-7\n-1234.56,.5\n1234567.000,NA\n"
    )
    for options in ((), ("--exact",)):
        ran = convert("csv", path, tmp_path / str(len(options)), "--json", *options)
        assert json.loads(ran.out)["understood"]["warnings"] == []
    ran = convert("csv", IRIS, tmp_path / "iris", "--exact")
    assert "arning" not in ran.err


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_exact_publishes_nothing(table: Path, tmp_path: Path, exchange: str) -> None:
    output = tmp_path / "out"
    ran = recordmill("convert", "csv", table, output, "--exact", "--exchange", exchange)
    assert ran.status == 65
    assert (
        "float32 would lose digits of 2 columns, and --exact allows none:\n"
        "  column 'id': 1 value with more than 7 digits, such as 16777217\n"
        "  column 'price': 1 value with more than 7 digits, such as 123456789.12\n"
        f"Declare these columns {WAY_OUT} (--schema), or leave out --exact"
    ) in ran.err
    assert_unpublished(output)
    convert("csv", table, output)  # the other way out
    assert len(list(examples_of(output))) == 3


def test_exact_and_a_declared_schema(table: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("features: {id: float32}\n")
    options = ("--schema", tmp_path / "schema.yaml", "--exact")
    ran = recordmill("convert", "csv", table, tmp_path / "out", *options)
    assert ran.status == 2
    assert "--exact and --schema exclude each other" in ran.err


# Whole numbers that are written as decimals are int64 from the input to the records.

IDS = ["16777217.0", "", "16777216.0", "9007199254740993.0", "7"]


@pytest.fixture
def ids(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.csv"
    path.parent.mkdir()
    path.write_text("id,name\n" + "".join(f"{each},x\n" for each in IDS))
    return path.parent


def values(folder: Path) -> list[int | None]:
    """The ids of all records, None where one has none."""
    return [
        next(iter(example.features.feature["id"].int64_list.value), None)
        for example in examples_of(folder)
    ]


def types(folder: Path) -> dict[str, str]:
    return {one["name"]: one["dtype"] for one in manifest_of(folder)["features"]}


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_ids_of_pandas_stay_what_they_are(
    ids: Path, tmp_path: Path, exchange: str
) -> None:
    convert("csv", ids, tmp_path / "out", "--no-shuffle", "--exchange", exchange)
    assert values(tmp_path / "out") == [16777217, None, 16777216, 9007199254740993, 7]
    assert types(tmp_path / "out") == {"id": "int64", "name": "string"}
    assert_whole(tmp_path / "out")


def test_an_inferred_schema_converts_its_own_input(ids: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    assert recordmill("schema", "infer", "csv", ids, "-o", schema).status == 0
    convert("csv", ids, tmp_path / "out", "--no-shuffle", "--schema", schema)
    assert values(tmp_path / "out") == [16777217, None, 16777216, 9007199254740993, 7]


def test_appended_rows_keep_the_type_that_is_there(ids: Path, tmp_path: Path) -> None:
    """Integers take whole decimals, floats all numbers; 2.5 is no integer."""
    append = ("--append", "--no-shuffle", "--max-rejects", 1)
    convert("csv", ids, tmp_path / "ints", *append)
    (ids / "b.csv").write_text("id,name\n2.0,y\n2.5,y\n")
    convert("csv", ids, tmp_path / "ints", *append)
    assert values(tmp_path / "ints")[-1] == 2
    assert manifest_of(tmp_path / "ints")["rows_rejected"] == 1
    (ids / "a.csv").write_text("id,name\n0.5,x\n")
    convert("csv", ids / "a.csv", tmp_path / "floats", *append)
    (ids / "b.csv").write_text("id,name\n2.0,y\n3,y\n")
    convert("csv", ids, tmp_path / "floats", *append)
    assert types(tmp_path / "floats") == {"id": "float32", "name": "string"}
    assert manifest_of(tmp_path / "floats")["rows_rejected"] == 0


def test_decimals_beyond_float32_are_text(tmp_path: Path) -> None:
    path, schema = tmp_path / "in.csv", tmp_path / "schema.yaml"
    path.write_text("x,y\n1.5,1e39\n1e39,x\n")
    ran = convert("csv", path, tmp_path / "out", "--no-shuffle", "--json")
    (warning,) = json.loads(ran.out)["understood"]["warnings"]
    assert warning.startswith("column 'x' is text, because it holds numbers beyond")
    assert "declare it {dtype: float64, stored: tensor} in a schema file" in warning
    assert types(tmp_path / "out") == {"x": "string", "y": "string"}
    assert [
        example.features.feature["x"].bytes_list.value[0]
        for example in examples_of(tmp_path / "out")
    ] == [b"1.5", b"1e39"]
    inferred = recordmill("schema", "infer", "csv", path).out
    assert "# numbers beyond float32" in inferred
    assert "{dtype: float64, stored: tensor}" in inferred
    schema.write_text("features: {x: {dtype: float64, stored: tensor}, y: string}\n")
    convert("csv", path, tmp_path / "wide", "--no-shuffle", "--schema", schema)
    assert [row["x"] for row in read_rows(str(tmp_path / "wide"))] == [1.5, 1e39]
    assert manifest_of(tmp_path / "wide")["rows_rejected"] == 0
