"""A few odd cells of a column are named, and what becomes of them is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_tools import Argument, codes_of, convert, examples_of, manifest_of, recordmill
from tables_in_formats import cut_small

pytestmark = pytest.mark.usefixtures("without_beam")
ROWS = 300


def write_table(path: Path, odd: dict[int, str], rows: int = ROWS) -> Path:
    """Writes a table of prices, some of them odd; JSON Lines by its name."""
    prices = [odd.get(row, f"{row}.5") for row in range(rows)]
    if path.suffix == ".jsonl":
        lines = [
            f'{{"id": {row}, "price": {json.dumps(price) if row in odd else price}}}'
            for row, price in enumerate(prices)
        ]
    else:
        lines = ["id,price", *(f"{row},{price}" for row, price in enumerate(prices))]
    path.write_text("\n".join(lines) + "\n")
    return path


def dtypes_of(dataset: Path) -> dict[str, str]:
    return {one["name"]: one["dtype"] for one in manifest_of(dataset)["features"]}


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_odd_cells_are_named_with_two_ways_out(tmp_path: Path, exchange: str) -> None:
    """Before, the column was text, and published as the next version."""
    source = write_table(tmp_path / "in.csv", {16: "12.5o", 250: "n.a."})
    output = tmp_path / "out"
    arguments = ("convert", "csv", source, output, "--exchange", exchange)
    named = (
        "column 'price': 2 cells of 300 are not a number, unlike all others: first "
        "in.csv line 18: '12.5o', in.csv line 252: 'n.a.'"
    )
    for more in (["--plan"], [], ["--expect-schema", tmp_path / "schema.yaml"]):
        schema = tmp_path / "schema.yaml"
        schema.write_text("features: {id: {dtype: int64}, price: {dtype: float32}}")
        ran = recordmill(*arguments, *more)
        assert ran.status == 65
        assert named in ran.err
    assert "--odd-cells reject" in ran.err
    assert "--odd-cells widen" in ran.err
    assert "--max-rejects" in ran.err
    rejected = tmp_path / "rejected"
    convert(
        "csv", source, rejected, "--odd-cells", "reject", "--max-rejects", 2,
        "--exchange", exchange,
    )  # fmt: skip
    assert dtypes_of(rejected) == {"id": "int64", "price": "float32"}
    assert manifest_of(rejected)["rows_rejected"] == 2
    rejects = recordmill("rejects", rejected, "--input-root", tmp_path)
    assert "in.csv line 18" in rejects.out
    wide = convert(
        "csv", source, tmp_path / "wide", "--odd-cells", "widen", "--exchange", exchange
    )
    assert dtypes_of(tmp_path / "wide") == {"id": "int64", "price": "string"}
    assert f"odd cells: {named}" in wide.err


def test_a_function_gets_no_odd_cells(tmp_path: Path) -> None:
    """Also if they are among the first rows, on which it is tried: that had no end."""
    source = write_table(tmp_path / "in.csv", {5: "12.5o", 250: "n.a."})
    (tmp_path / "f.py").write_text("def keep(batch):\n    return batch\n")
    job: list[Argument] = ["csv", source, tmp_path / "out", "--odd-cells", "reject"]
    job += ["--max-rejects", 2, "--map", tmp_path / "f.py:keep"]
    for exchange in ("scratch", "engine"):
        convert(*job, "--exchange", exchange, "--overwrite")
        assert dtypes_of(tmp_path / "out") == {"id": "int64", "price": "float32"}
        assert manifest_of(tmp_path / "out")["rows_rejected"] == 2


def test_texts_for_missing_values_are_no_odd_cells(tmp_path: Path) -> None:
    source = write_table(tmp_path / "in.csv", {16: "n.a."})
    convert("csv", source, tmp_path / "out", "--null-values", "n.a.")
    assert dtypes_of(tmp_path / "out")["price"] == "float32"


def test_a_changed_schema_names_the_cells(tmp_path: Path) -> None:
    source = write_table(tmp_path / "in.csv", dict.fromkeys(range(3, 60, 2), "?x"))
    schema = tmp_path / "schema.yaml"
    schema.write_text("features: {id: {dtype: int64}, price: {dtype: float32}}")
    arguments = ("convert", "csv", source, tmp_path / "out", "--expect-schema", schema)
    for more in ([], ["--plan"]):
        ran = recordmill(*arguments, *more)
        assert ran.status == 65
        assert "feature 'price'" in ran.err
        assert "29 cells of 300 are not a number" in ran.err
        assert "in.csv line 5: '?x'" in ran.err


def test_an_odd_cell_of_a_small_table_is_warned_of(tmp_path: Path) -> None:
    source = write_table(tmp_path / "in.csv", {4: "12.5o"}, rows=12)
    warned = (
        "column 'price': 1 cell of 12 is not a number, unlike all others: in.csv line 6"
    )
    plan = recordmill("convert", "csv", source, tmp_path / "out", "--plan").out
    assert warned in plan
    assert "price string" in plan
    ran = convert("csv", source, tmp_path / "out", "--json")
    [warning] = json.loads(ran.out)["understood"]["warnings"]
    assert warning["code"] == "odd-cells"
    assert warned in warning["message"]
    assert dtypes_of(tmp_path / "out")["price"] == "string"
    convert("csv", source, tmp_path / "null", "--null-values", "12.5o")
    assert dtypes_of(tmp_path / "null")["price"] == "float32"


def test_an_inferred_schema_has_the_same_rule(tmp_path: Path) -> None:
    """Before, the file said in silence that the column is of text."""
    source = write_table(tmp_path / "in.csv", {16: "12.5o"})
    infer = ("schema", "infer", "csv", source)
    ran = recordmill(*infer)
    assert ran.status == 65
    assert "1 cell of 300 is not a number, unlike all others: in.csv line 18" in ran.err
    for answer, dtype in (("reject", "float32"), ("widen", "string")):
        ran = recordmill(*infer, "--odd-cells", answer)
        assert ran.status == 0
        assert f"price: {dtype}" in ran.out
    source = write_table(tmp_path / "small.csv", {4: "12.5o"}, rows=12)
    ran = recordmill("schema", "infer", "csv", source)
    assert "price: string" in ran.out
    assert "Warning: column 'price': 1 cell of 12 is not a number" in ran.err


def test_many_odd_cells_of_a_large_table_are_warned_of(tmp_path: Path) -> None:
    odd = {10 * row: f"A{row}" for row in range(1_050)}
    source = write_table(tmp_path / "in.csv", odd, rows=11_000)
    ran = convert("csv", source, tmp_path / "out", "--json")
    [warning] = json.loads(ran.out)["understood"]["warnings"]
    assert "1,050 cells of 11,000 are not a number" in warning["message"]


def test_a_column_of_text_is_no_odd_one(tmp_path: Path) -> None:
    """Neither is one of which every second cell is a number."""
    half = {row: f"A{row}" for row in range(0, ROWS, 2)}
    source = write_table(tmp_path / "in.csv", half)
    ran = convert("csv", source, tmp_path / "out", "--json")
    assert codes_of(json.loads(ran.out)) == []
    assert dtypes_of(tmp_path / "out")["price"] == "string"


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_odd_cells_in_the_last_of_several_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    cut_small(monkeypatch, 1000)
    source = write_table(tmp_path / "in.csv", {296: "x"})
    assert source.stat().st_size > 2500
    arguments = ("convert", "csv", source, tmp_path / "out", "--exchange", exchange)
    ran = recordmill(*arguments)
    assert ran.status == 65
    assert "in.csv line 298: 'x'" in ran.err
    convert(*arguments[1:], "--odd-cells", "reject", "--max-rejects", 1)
    assert dtypes_of(tmp_path / "out")["price"] == "float32"
    assert manifest_of(tmp_path / "out")["rows_rejected"] == 1


def test_json_lines_have_the_same_rule(tmp_path: Path) -> None:
    source, output = write_table(tmp_path / "in.jsonl", {16: "12.5o"}), tmp_path / "out"
    arguments = ("jsonl", source, output, "--max-rejects", 1)
    named = "column 'price': 1 cell of 300 is not a number, unlike all others: in.jsonl line 17"
    for more in (["--plan"], []):
        ran = recordmill("convert", *arguments, *more)
        assert ran.status == 65
        assert named in ran.err
    convert(*arguments, "--odd-cells", "reject")
    assert manifest_of(output)["rows_rejected"] == 1
    convert("jsonl", source, tmp_path / "wide", "--odd-cells", "widen")
    assert dtypes_of(tmp_path / "wide")["price"] == "string"
    found = [
        example.features.feature["price"].bytes_list.value[0]
        for example in examples_of(tmp_path / "wide")
    ]
    assert {b"12.5o", b"0.5"} <= {*found}
