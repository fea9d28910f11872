"""What a CSV input was taken for is told before and after the run, with the way out."""

from __future__ import annotations

import gzip
import json
import re
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


def features_of(dataset: Path) -> dict[str, str]:
    return {one["name"]: one["dtype"] for one in manifest_of(dataset)["features"]}


def test_the_delimiter_that_was_found_is_told_and_stays(tmp_path: Path) -> None:
    """By plan and summary; the same run again and an append take the same one."""
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "b.csv").write_text(SEMICOLONS)
    arguments = ("convert", "csv", source, output, "--append")
    told = "  delimiter: semicolon, found in the first rows\n"
    assert told in recordmill(*arguments, "--plan").out
    assert told in recordmill(*arguments).err
    assert features_of(output) == {"id": "int64", "name": "string", "price": "string"}
    first = manifest_of(output)
    assert recordmill(*arguments).status == 0
    assert manifest_of(output) == first
    # A table of two readings, before it: of which the dataset's columns allow one.
    (source / "a.csv").write_text("price;id;name\n1,5;2;a,b\n2,5;3;c,d\n")
    assert told in recordmill(*arguments).err
    assert manifest_of(output)["rows_read"] == 4
    # With a schema that declares the line as one column it is one.
    schema = tmp_path / "schema.yaml"
    schema.write_text("features: {line: {column: 'id;name;price', dtype: string}}")
    table = source / "b.csv"
    table.write_text(SEMICOLONS.replace(",", ""))
    ran = convert("csv", table, tmp_path / "lines", "--schema", schema)
    assert "looks like a table with --delimiter semicolon" in ran.err
    convert("csv", table, tmp_path / "table", "--delimiter", "semicolon")
    assert len(features_of(tmp_path / "table")) == 3


def test_two_readings_are_refused_with_two_ways_out(tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out"
    source.write_text("id;name,x\n1;a,2\n2;b,3\n")
    ran = recordmill("convert", "csv", source, output)
    assert ran.status == 65
    assert not output.exists()
    ways = re.findall("(--delimiter) ([a-z]+)", ran.err)
    assert ways == [("--delimiter", "comma"), ("--delimiter", "semicolon")]
    for way, names in zip(ways, ({"id;name", "x"}, {"id", "name,x"}), strict=True):
        convert("csv", source, tmp_path / way[1], *way)
        assert features_of(tmp_path / way[1]).keys() == names


def test_a_missing_header_is_refused_with_two_ways_out(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    _, _, rows = IRIS.read_text().partition("\n")
    source.write_text(rows)
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    assert "line 1 should be the header, but it looks like a row" in ran.err
    none, columns, first = "--header none", "--columns", "--header first"
    assert all(way in ran.err for way in (none, columns, first))
    convert("csv", source, tmp_path / "numbered", *none.split())
    assert manifest_of(tmp_path / "numbered")["rows_read"] == 150
    named = convert("csv", source, tmp_path / "named", columns, "a,b,c,d,e")
    assert features_of(tmp_path / "named").keys() == {*"abcde"}
    assert "  header: none, the columns are named by the job\n" in named.err
    convert("csv", source, tmp_path / "first", *first.split())
    assert manifest_of(tmp_path / "first")["rows_read"] == 149


def test_a_header_that_counts_up_is_told_with_two_ways_out(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("1,2,3\n4,5,6\n7,8,9\n")
    told = "line 1 is taken for the header, though it looks like a row: '1,2,3'"
    assert told in convert("csv", source, tmp_path / "out").err
    none = convert("csv", source, tmp_path / "none", "--header", "none")
    first = convert("csv", source, tmp_path / "first", "--header", "first")
    assert told not in none.err + first.err
    rows = [manifest_of(tmp_path / name)["rows_read"] for name in ("none", "first")]
    assert rows == [3, 2]


def test_names_that_are_there_twice(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a,a\nx,2\n")
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    [ways] = re.findall("--header none, --skip-rows 1 and --columns", ran.err)
    arguments = [*ways.replace(",", "").replace("and ", "").split(), "a,b"]
    convert("csv", source, tmp_path / "out", *arguments)
    assert manifest_of(tmp_path / "out")["rows_read"] == 1


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_words_for_missing_values(tmp_path: Path, exchange: str) -> None:
    """They are missing among numbers, which is told; text stays as it is."""
    source, output = tmp_path / "in.csv", tmp_path / "out"
    lines = ["id,x,name,gap", *(f"{n}, {n}.5 ,NA,NA" for n in range(300))]
    lines += ["NA,NA,b,-", "null,1,c,NA"]
    source.write_text("\n".join(lines) + "\n")
    ran = convert("csv", source, output, "--exchange", exchange)
    assert (
        "  taken as missing: 2 cells like 'NA' in column id; 1 cell like 'NA' in column x"
        "\n"
    ) in ran.err
    assert features_of(output) == {
        "id": "int64", "x": "float32", "name": "string", "gap": "string",
    }  # fmt: skip
    examples = [example.features.feature for example in examples_of(output)]
    assert sum("id" in example for example in examples) == 300
    assert sum("gap" in example for example in examples) == 302
    ran = convert(
        "csv", source, tmp_path / "given", "--null-values", "NA,-", "--json",
        "--exchange", exchange,
    )  # fmt: skip
    assert json.loads(ran.out)["understood"]["facts"]["null values"] == "'NA', '-'"
    assert "name" not in features_of(tmp_path / "given") or not any(
        b"NA" in example.features.feature["name"].bytes_list.value
        for example in examples_of(tmp_path / "given")
    )


def test_an_inferred_schema_takes_the_same_words(tmp_path: Path) -> None:
    source, schema = tmp_path / "in.csv", tmp_path / "schema.yaml"
    source.write_text("id;x\n1;NA\n2; 5\n")
    assert recordmill("schema", "infer", "csv", source, "-o", schema).status == 0
    convert("csv", source, tmp_path / "out", "--schema", schema)
    assert features_of(tmp_path / "out") == {"id": "int64", "x": "int64"}


def test_an_append_takes_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(("1,NA\n2,7\n", "3, null\n4, 5\n")):
        (tmp_path / "in" / f"{number}.csv").write_text(f"id,x\n{rows}")
        convert("csv", tmp_path / "in", tmp_path / "out", "--append")
    found = [
        list(example.features.feature["x"].int64_list.value)
        for example in examples_of(tmp_path / "out")
    ]
    assert sorted(found) == [[], [], [5], [7]]


def test_json_stands_alone_and_log_lines_warn_once(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("1;2\n3;4\n5;6\n")
    warned = ("--delimiter", "comma")
    ran = convert("csv", source, tmp_path / "json", "--json", *warned)
    assert ran.err == ""
    assert len(json.loads(ran.out)["understood"]["warnings"]) == 1
    ran = convert("csv", source, tmp_path / "log", "--log-format", "json", *warned)
    events = [json.loads(line) for line in ran.err.splitlines()]
    names = [event["event"] for event in events]
    assert names == ["input_understood", "input_warning", "run_started", "run_done"]
    assert events[0]["columns"] == "1 (1;2 string)"
    assert events[1]["level"] == "warning"


def test_an_inferred_schema_is_warned_of(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("1;2\n3;4\n")
    ran = recordmill("schema", "infer", "csv", source, "--delimiter", "comma")
    assert ran.status == 0
    assert f"Warning: {source}: the header is the single column '1;2'" in ran.err


def test_a_refused_run_has_warned(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1,2,3\n4,5,6\n")
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    assert ran.status == 65
    assert ran.err.startswith("Warning: ")


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_packed_tables_give_the_records_of_plain_ones(
    tmp_path: Path, exchange: str
) -> None:
    """Through the whole command; a second run finds that nothing is to be done."""
    text = "id;größe\n" + "".join(f"{n};{n / 4}\n" for n in range(500))
    plain, packed = tmp_path / "plain.csv", tmp_path / "packed"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode("utf-16")))
    convert("csv", plain, tmp_path / "a")
    arguments = ("csv", packed, tmp_path / "b", "--exchange", exchange)
    assert "  file: gzip, utf-16\n" in convert(*arguments).err
    records = [
        sorted(example.SerializeToString() for example in examples_of(tmp_path / name))
        for name in "ab"
    ]
    assert records[0] == records[1]
    assert "nothing to do" in convert(*arguments).err
    kept = (*arguments[:2], tmp_path / "c", "--no-shuffle", "--shards", "3")
    convert(*kept, "--exchange", exchange)
    ids = [
        example.features.feature["id"].int64_list.value[0]
        for example in examples_of(tmp_path / "c")
    ]
    assert ids == [*range(500)]


def test_an_encoding_is_asked_for(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes("größe,x\n1,ä\n".encode("cp1252"))
    ran = recordmill("convert", "csv", source, tmp_path / "out")
    [way] = re.findall("--encoding cp1252", ran.err)
    convert("csv", source, tmp_path / "out", *way.split())
    assert features_of(tmp_path / "out").keys() == {"größe", "x"}


def test_an_inferred_schema_counts_the_words(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("x,y\nNA,a\n2,NA\n,c\n")
    ran = recordmill("schema", "infer", "csv", source)
    assert "missing in 2 of 3 rows" in ran.out
    assert ran.out.count("missing in") == 1
