"""Whole numbers that are written as decimals: int64 from the input to the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tools import assert_whole, convert, examples_of, manifest_of, recordmill

from recordmill import read_rows

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
    source, schema = tmp_path / "in.csv", tmp_path / "schema.yaml"
    source.write_text("x\n1.5\n1e39\n")
    convert("csv", source, tmp_path / "out", "--no-shuffle")
    assert types(tmp_path / "out") == {"x": "string"}
    assert [
        example.features.feature["x"].bytes_list.value[0]
        for example in examples_of(tmp_path / "out")
    ] == [b"1.5", b"1e39"]
    # The way out that `schema infer` names.
    inferred = recordmill("schema", "infer", "csv", source).out
    assert "# numbers beyond float32" in inferred
    assert "{dtype: float64, stored: tensor}" in inferred
    schema.write_text("features: {x: {dtype: float64, stored: tensor}}\n")
    convert("csv", source, tmp_path / "wide", "--no-shuffle", "--schema", schema)
    rows = read_rows(str(tmp_path / "wide"))
    assert [row["x"] for row in rows] == [1.5, 1e39]
