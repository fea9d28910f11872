"""How CSV tables are read: what is reported of them, digits, and many small files."""

from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job_tools import (
    IRIS,
    Argument,
    assert_unpublished,
    assert_whole,
    codes_of,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
)
from killed_runs import failing

from recordmill import read_rows
from recordmill.beam_jobs.pipelines import convert as pipeline
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.csv import source
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.tasks import convert_range, workspace
from recordmill.transforms.tasks.context import RunContext

pytestmark = pytest.mark.usefixtures("without_beam")

SEMICOLONS = 'id;name;price\n1;"a;b";2,5\n2;b;3,5\n'
COLUMNS = (
    "5 (sepal_length_cm float32, sepal_width_cm float32, petal_length_cm float32, "
    "petal_width_cm float32, species string)"
)


def test_told_by_plan_summary_json_and_run_json(tmp_path: Path) -> None:
    plan = recordmill("convert", "csv", IRIS, tmp_path / "out", "--plan").out
    assert f"  columns: {COLUMNS}\n  types: of all rows\n" in plan
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
    arguments = ("convert", "csv", source, tmp_path / "out", "--odd-cells", "widen")
    plan = recordmill(*arguments, "--plan", "--json")
    before = json.loads(plan.out)["understood"]["facts"]["columns"]
    ran = recordmill(*arguments, "--exchange", exchange, "--json")
    after = json.loads(ran.out)["understood"]["facts"]["columns"]
    assert before == after
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
    told = "line 1 is used as the header, but looks like a row: '1,2,3'"
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
    source.write_text("a;b\n3;4\n5;6\n")
    warned = ("--delimiter", "comma")
    ran = convert("csv", source, tmp_path / "json", "--json", *warned)
    assert ran.err == ""
    assert codes_of(json.loads(ran.out)) == ["single-column"]
    ran = convert("csv", source, tmp_path / "log", "--log-format", "json", *warned)
    events = [json.loads(line) for line in ran.err.splitlines()]
    names = [event["event"] for event in events]
    assert names == ["input_understood", "input_warning", "run_started", "run_done"]
    assert events[0]["columns"] == "1 (a;b string)"
    assert (events[1]["level"], events[1]["code"]) == ("warning", "single-column")


def test_an_inferred_schema_is_warned_of(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a;b\n3;4\n")
    ran = recordmill("schema", "infer", "csv", source, "--delimiter", "comma")
    assert ran.status == 0
    assert f"Warning: {source}: the header is the single column 'a;b'" in ran.err
    assert "[single-column]" in ran.err


def test_a_single_column_is_not_warned_of(tmp_path: Path) -> None:
    """With a delimiter that no row has: none is found, which does not mean the comma."""
    source = tmp_path / "in.csv"
    source.write_text("word\nabc\ndef\nghi\n")
    ran = convert("csv", source, tmp_path / "out", "--delimiter", "semicolon", "--json")
    assert codes_of(json.loads(ran.out)) == []


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
        shown = warning.replace("`schema`", "--schema")
        assert f"  warning: {shown} [long-numbers]\n" in ran.err
    kept = json.loads((tmp_path / "out" / "run.json").read_bytes())
    assert kept["understood"]["warnings"] == [
        {"code": "long-numbers", "message": each} for each in warnings
    ]
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
    cut = CsvSource.cut_ranges
    monkeypatch.setattr(
        CsvSource,
        "cut_ranges",
        lambda self, files: cut(replace(self, range_bytes=64), files),
    )
    path = tmp_path / "in.csv"
    path.write_text("id,x\n" + "16777217,1\n" * 50 + "0.5,1\n")
    ran = convert("csv", path, tmp_path / "out", "--json")
    (warning,) = json.loads(ran.out)["understood"]["warnings"]
    assert "50 values with more than 7 digits, such as 16777217" in warning["message"]


def test_appended_digits_are_told(table: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("x\n0.5\n")
    convert("csv", tmp_path / "in", tmp_path / "out", "--append")
    (tmp_path / "in" / "b.csv").write_text("x\n16777217\n")
    ran = convert("csv", tmp_path / "in", tmp_path / "out", "--append", "--json")
    (warning,) = json.loads(ran.out)["understood"]["warnings"]
    assert "1 value with more than 7 digits, such as 16777217" in warning["message"]


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
        assert codes_of(json.loads(ran.out)) == []
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
        f"  Declare these columns {WAY_OUT} (--schema), or leave out --exact"
    ) in ran.err
    assert_unpublished(output)
    convert("csv", table, output)  # the other way out
    assert len(list(examples_of(output))) == 3


def test_exact_and_a_declared_schema(table: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("features: {id: float32}\n")
    options = ("--schema", tmp_path / "schema.yaml", "--exact")
    ran = recordmill("convert", "csv", table, tmp_path / "out", *options)
    assert ran.status == 2
    assert "--exact and --schema cannot be combined" in ran.err


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
    convert("csv", path, tmp_path / "out", "--no-shuffle")
    assert types(tmp_path / "out") == {"x": "string", "y": "string"}
    assert [
        example.features.feature["x"].bytes_list.value[0]
        for example in examples_of(tmp_path / "out")
    ] == [b"1.5", b"1e39"]
    schema.write_text("features: {x: {dtype: float64, stored: tensor}, y: string}\n")
    convert("csv", path, tmp_path / "wide", "--no-shuffle", "--schema", schema)
    assert [row["x"] for row in read_rows(str(tmp_path / "wide"))] == [1.5, 1e39]
    assert manifest_of(tmp_path / "wide")["rows_rejected"] == 0


FILES = 12
PER_RANGE = 4
OPTIONS: list[Argument] = ["--name", "t", "--shards", 2]


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FILES_PER_RANGE", PER_RANGE)
    monkeypatch.setattr(source, "MIN_RANGES", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rows in each file; a decimal in the last one."""
    made = tmp_path / "in"
    made.mkdir()
    for index in range(FILES):
        b = "1.5" if index == FILES - 1 else "2"
        text = f"a,b\n{2 * index},{b}\n{2 * index + 1},3\n"
        (made / f"{index:02d}.csv").write_text(text)
    return made


@pytest.fixture
def ranges_read(monkeypatch: pytest.MonkeyPatch) -> list[InputRange]:
    """Fills with the ranges that tasks read."""
    found = []
    read_whole = convert_range._read_all_rows

    def note(
        context: RunContext, input_range: InputRange, *more: Any, **named: Any
    ) -> object:
        found.append(input_range)
        return read_whole(context, input_range, *more, **named)

    monkeypatch.setattr(convert_range, "_read_all_rows", note)
    return found


@pytest.mark.parametrize(
    ("options", "exchange"),
    [
        (("--no-shuffle",), "scratch"),
        (("--split", "train=0.5", "--split", "test=0.5"), "scratch"),
        ((), "engine"),
    ],
    ids=["in order", "splits", "engine"],
)
def test_the_bytes_of_a_range_for_each(
    tmp_path: Path, folder: Path, options: tuple[str, ...], exchange: str
) -> None:
    job: list[Argument] = [folder, *OPTIONS, *options]
    convert("csv", *job[:1], tmp_path / "joined", *job[1:], "--exchange", exchange)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "join_small_files", lambda source, _: list(source))
        convert("csv", *job[:1], tmp_path / "alone", *job[1:])
    assert contents(tmp_path / "joined") == contents(tmp_path / "alone")


def test_a_reject_is_told_with_its_own_file(
    tmp_path: Path, folder: Path, ranges_read: list[InputRange]
) -> None:
    (folder / "05.csv").write_text('a,b\n100,7\n8,9,10\n"no end\n')
    output = tmp_path / "out"
    ran = convert("csv", folder, output, *OPTIONS, "--max-rejects", 2)
    assert [len(each.files) for each in ranges_read] == [PER_RANGE] * 3
    assert "1 x expected 2 columns, found 3; first at 05.csv line 3: " in ran.err
    assert "it opens at line 4; first at 05.csv line 4: " in ran.err
    [file] = (output / "rejects").iterdir()
    rejects = [json.loads(line) for line in file.read_bytes().splitlines()]
    places = [(each["uri"], each["position"]) for each in rejects]
    assert places == [("05.csv", 10), ("05.csv", 17)]
    assert sorted(ints(output, "a")) == [*range(10), *range(12, 24), 100]


def test_a_value_that_does_not_fit_is_told_with_its_own_file(
    tmp_path: Path, folder: Path
) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("features: {a: {dtype: int64}, b: {dtype: int64}}\n")
    options = ["--schema", schema, "--max-rejects", 1]
    ran = convert("csv", folder, tmp_path / "out", *OPTIONS, *options)
    assert "first at 11.csv line 2: " in ran.err


def test_goes_on_from_finished_ranges(
    tmp_path: Path, folder: Path, ranges_read: list[InputRange]
) -> None:

    output = tmp_path / "out"
    with failing("stage"):
        on_disk: list[Argument] = [*OPTIONS, "--memory", 0]
        assert recordmill("convert", "csv", folder, output, *on_disk).status == 1
    # As if the second range and the shards had never been finished.
    for name in ("range-scratch-000001", "shard-*"):
        for gone in output.glob(f".recordmill/*/facts/{name}.json"):
            gone.unlink()
    ranges_read.clear()
    convert("csv", folder, output, *on_disk)
    assert [each.index for each in ranges_read] == [1]
    assert sorted(ints(output, "a")) == [*range(2 * FILES)]


def test_a_run_of_a_version_that_joined_no_files(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranges and rejects are of other files than ours of the same number."""
    output = tmp_path / "out"
    job: list[Argument] = [folder, output, *OPTIONS, "--max-rejects"]
    (folder / "11.csv").write_text("a,b\n22\n23,3\n")
    with monkeypatch.context() as patch:
        patch.setattr(source, "join_small_files", lambda source, _: list(source))
        patch.setattr(workspace, "_LAYOUT", 0)
        assert recordmill("convert", "csv", *job, 0).status == 65
    [kept] = output.glob(".recordmill/*/rejects/range-scratch-*.jsonl")
    assert kept.stem == "range-scratch-000011"
    convert("csv", *job, 1)
    assert len([*(output / "rejects").iterdir()]) == 1
    assert recordmill("verify", output).status == 0


def test_other_bytes_when_the_engine_reads_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same size and time, and as many rows: only the checksum tells."""
    monkeypatch.setattr(source, "FILES_PER_RANGE", FILES)
    send_range = pipeline.send_range

    def changing(*arguments: Any) -> object:
        file = folder / "05.csv"
        before = file.stat().st_mtime_ns
        file.write_bytes(file.read_bytes().replace(b"3", b"4"))
        os.utime(file, ns=(before, before))
        return send_range(*arguments)

    monkeypatch.setattr(pipeline, "send_range", changing)
    job = [folder, tmp_path / "out", *OPTIONS, "--exchange", "engine"]
    ran = recordmill("convert", "csv", *job)
    assert ran.status == 75
    assert (
        "00.csv (or one of the 11 files after it) changed during the run: other bytes "
        "than before" in ran.err
    )
