"""What a CSV input was taken for is told before and after the run, with the way out."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from job_tools import IRIS, convert, examples_of, manifest_of, recordmill

SEMICOLONS = 'id;name;price\n1;"a;b";2,5\n2;b;3,5\n'
COLUMNS = (
    "5 (sepal_length_cm float32, sepal_width_cm float32, petal_length_cm float32, "
    "petal_width_cm float32, species string)"
)


def test_told_by_plan_summary_json_and_run_json(tmp_path: Path) -> None:
    plan = recordmill("convert", "csv", IRIS, tmp_path / "out", "--plan").out
    assert f"  columns: {COLUMNS}\n  types: so far, by the first 100 rows\n" in plan
    summary = convert("csv", IRIS, tmp_path / "out").err
    assert f"  columns: {COLUMNS}\n  types: of all rows\n" in summary
    told = json.loads(convert("csv", IRIS, tmp_path / "json", "--json").out)
    assert told["understood"]["facts"]["columns"] == COLUMNS
    kept = json.loads((tmp_path / "out" / "run.json").read_bytes())
    assert kept["understood"] == told["understood"]


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_types_are_final_after_the_run(tmp_path: Path, exchange: str) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,x\n" + "1,2\n" * 200 + "a,2.5\n")
    plan = recordmill("convert", "csv", source, tmp_path / "out", "--plan", "--json")
    before = json.loads(plan.out)["understood"]["facts"]["columns"]
    assert before == "2 (id int64, x int64)"
    ran = convert("csv", source, tmp_path / "out", "--exchange", exchange, "--json")
    after = json.loads(ran.out)["understood"]["facts"]["columns"]
    assert after == "2 (id string, x float32)"


def test_an_append_tells_the_types_of_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "in" / name).write_text("id\n1\n")
        ran = convert("csv", tmp_path / "in", tmp_path / "out", "--append", "--json")
    facts = json.loads(ran.out)["understood"]["facts"]
    assert facts["columns"] == "1 (id int64)"
    assert facts["types"] == "of the dataset"


def test_semicolons_are_refused_with_two_ways_out(tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out"
    source.write_text(SEMICOLONS)
    ran = recordmill("convert", "csv", source, output)
    assert ran.status == 65
    assert "this looks like a table with ';' between its cells" in ran.err
    assert not output.exists()
    # One: the command that it shows.
    [command] = re.findall(r"python3 (-c .*) < in.csv > out.csv", ran.err)
    with source.open() as given, (tmp_path / "commas.csv").open("w") as made:
        python = [sys.executable, *shlex.split(command)]
        subprocess.run(python, stdin=given, stdout=made, check=True)
    convert("csv", tmp_path / "commas.csv", tmp_path / "table")
    names = [one["name"] for one in manifest_of(tmp_path / "table")["features"]]
    assert sorted(names) == ["id", "name", "price"]
    # The other: the schema that it shows.
    source.write_text(SEMICOLONS.replace(",", ""))
    [schema] = re.findall(r"with --schema: (\{.*\})", ran.err)
    (tmp_path / "schema.yaml").write_text(schema)
    told = convert("csv", source, output, "--schema", tmp_path / "schema.yaml").err
    assert told.startswith("Warning: ")
    lines = [
        e.features.feature["line"].bytes_list.value[0] for e in examples_of(output)
    ]
    assert sorted(lines) == [b'1;"a;b";25', b"2;b;35"]


def test_a_missing_header_is_warned_of_before_and_after(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    header, _, rows = IRIS.read_text().partition("\n")
    source.write_text(rows)
    arguments = ("convert", "csv", source, tmp_path / "out")
    assert "  warning  " in recordmill(*arguments, "--plan").out
    ran = recordmill(*arguments)
    warning = f"{source}: line 1 is taken for the header, but it looks like a row"
    first, *others = ran.err.splitlines()
    assert first.startswith(f"Warning: {warning}")
    assert any(line.startswith(f"  warning: {warning}") for line in others)
    # The way out that it names.
    source.write_text(f"{header}\n{rows}")
    ran = recordmill("convert", "csv", source, tmp_path / "with")
    assert "arning" not in ran.err
    assert manifest_of(tmp_path / "with")["rows_read"] == 150


def test_json_stands_alone_and_log_lines_warn_once(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("1,2\n3,4\n5,6\n")
    ran = convert("csv", source, tmp_path / "json", "--json")
    assert ran.err == ""
    assert len(json.loads(ran.out)["understood"]["warnings"]) == 1
    ran = convert("csv", source, tmp_path / "log", "--log-format", "json")
    events = [json.loads(line) for line in ran.err.splitlines()]
    names = [event["event"] for event in events]
    assert names == ["input_understood", "input_warning", "run_started", "run_done"]
    assert events[0]["columns"] == "2 (1 int64, 2 int64)"
    assert events[1]["level"] == "warning"


def test_an_inferred_schema_is_warned_of(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("1,2\n3,4\n")
    ran = recordmill("schema", "infer", "csv", source)
    assert ran.status == 0
    assert f"Warning: {source}: line 1 is taken for the header" in ran.err


def test_a_refused_run_has_warned(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("1,2\n3,4\n5\n")
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    assert ran.err.startswith("Warning: ")
