"""Columns that a schema does not have end a run, or are left out and listed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from job_tools import Argument, convert, manifest_of, recordmill
from tables_in_formats import FORMATS, write_table

pytestmark = pytest.mark.usefixtures("without_beam")

TWO = {"a": [1, 3], "b": [2.5, 4.5]}
EXTRA = {"c": ["x", "y"], **TWO}
IGNORE: list[Argument] = ["--extra-columns", "ignore"]


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    file = tmp_path / "schema.yaml"
    file.write_text("features: {a: int64, b: float32}")
    return file


def features_of(dataset: Path) -> list[str]:
    return [each["name"] for each in manifest_of(dataset)["features"]]


def facts_of(dataset: Path) -> list[tuple[str, str]]:
    [run] = (dataset / ".recordmill").glob("**/run.json")
    facts = json.loads(run.read_text())["understood"]["facts"]
    return [*facts.items()]


def refused(*arguments: Argument) -> str:
    for more in ([], ["--plan"]):
        ran = recordmill("convert", *arguments, *more)
        assert ran.status == 65, ran.err
        assert "--extra-columns ignore" in ran.err
    return ran.err


@pytest.mark.parametrize("source", FORMATS)
def test_an_expected_schema(tmp_path: Path, schema: Path, source: str) -> None:
    table, output = write_table(tmp_path / "in", source, EXTRA), tmp_path / "out"
    job: list[Argument] = [source, table, output, "--expect-schema", schema]
    ran = recordmill("convert", *job)
    assert ran.status == 65
    assert "feature 'c' is new" in ran.err
    assert "--extra-columns ignore" in ran.err
    assert "add it to the schema" in ran.err
    assert "columns left out: c" in recordmill("convert", *job, *IGNORE, "--plan").out
    ran = convert(*job, *IGNORE)
    assert "columns left out: c" in ran.err
    assert features_of(output) == ["a", "b"]
    assert "nothing to do" in convert(*job, *IGNORE).err
    # Other columns are another dataset.
    schema.write_text("features: {a: int64}")
    assert recordmill("convert", *job, *IGNORE).status == 73
    convert(*job, *IGNORE, "--overwrite")
    assert features_of(output) == ["a"]


@pytest.mark.parametrize("source", FORMATS)
def test_a_dataset_that_is_appended_to(tmp_path: Path, source: str) -> None:
    folder, output = tmp_path / "in", tmp_path / "out"
    write_table(folder / "a", source, TWO)
    job: list[Argument] = [source, folder, output, "--append"]
    convert(*job)
    write_table(folder / "b", source, EXTRA)
    assert "c" in refused(*job)
    ran = convert(*job, *IGNORE)
    assert "columns left out: c" in ran.err
    assert manifest_of(output)["rows_read"] == 4
    assert features_of(output) == ["a", "b"]
    write_table(folder / "c", source, TWO)
    convert(*job)
    assert manifest_of(output)["rows_read"] == 6


@pytest.mark.parametrize("source", FORMATS)
def test_files_of_one_input(tmp_path: Path, schema: Path, source: str) -> None:
    """One with more columns than the others, first or last, with and without a schema."""
    for names in ("ab", "ba"):
        folder = tmp_path / names
        write_table(folder / names[0], source, TWO)
        write_table(folder / names[1], source, EXTRA)
        job: list[Argument] = [source, folder, tmp_path / f"declared-{names}" / "data"]
        if source != "jsonl":  # whose lines may lack any key
            refused(*job, "--schema", schema)
        ran = convert(*job, "--schema", schema, *IGNORE)
        assert "columns left out: c" in ran.err
        assert manifest_of(Path(str(job[2])))["rows_read"] == 4
    if source != "jsonl":
        job = [source, tmp_path / "ab", tmp_path / "plain"]
        refused(*job)
        assert "columns left out: c" in convert(*job, *IGNORE).err
        assert features_of(tmp_path / "plain") == ["a", "b"]


@pytest.mark.parametrize("source", FORMATS)
def test_a_schema_leaves_out_what_it_does_not_name(
    tmp_path: Path, schema: Path, source: str
) -> None:
    """That all files have it is no surprise tonight; but it is listed."""
    table = write_table(tmp_path / "in", source, EXTRA)
    ran = convert(source, table, tmp_path / "out", "--schema", schema)
    assert "columns left out: c" in ran.err


def test_a_column_that_can_be_no_feature(tmp_path: Path, schema: Path) -> None:
    import pyarrow as pa

    maps = pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64()))
    table = write_table(tmp_path / "in", "parquet", {**TWO, "c": maps})
    job: list[Argument] = ["parquet", table, tmp_path / "out", *IGNORE]
    convert(*job, "--expect-schema", schema)
    assert features_of(tmp_path / "out") == ["a", "b"]


def test_keys_that_the_first_lines_do_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.transforms.sources import json_lines

    monkeypatch.setattr(json_lines, "SAMPLE_BYTES", 1)
    lines = [json.dumps({"a": n}) for n in range(20_000)]
    lines[15_000] = '{"a": 1, "z": 2}'
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    job: list[Argument] = ["jsonl", tmp_path / "in.jsonl", tmp_path / "out"]
    ran = recordmill("convert", *job)
    assert ran.status == 65
    assert "'z': is not in the" in ran.err
    assert "--extra-columns ignore" in ran.err
    assert "or move such a row to the start of the first file" in ran.err
    ran = convert(*job, *IGNORE)
    assert "columns left out: others in 1 row, such as 'z'" in ran.err
    assert manifest_of(tmp_path / "out")["rows_read"] == 20_000
    (tmp_path / "in.jsonl").write_text("\n".join([lines.pop(15_000), *lines]))
    convert(*job, "--overwrite")
    assert features_of(tmp_path / "out") == ["a", "z"]


@pytest.mark.parametrize("source", ["csv", "parquet", "arrow"])
@pytest.mark.parametrize("short", ["x", "a/x", "b/x"])
def test_one_of_several_files_of_a_name_is_left_out(
    tmp_path: Path, source: str, short: str
) -> None:
    for name in ("x", "a/x", "b/x"):
        rows = {"a": [1], **({} if name == short else {"label": [2]})}
        write_table(tmp_path / "in" / name, source, rows)
    job: list[Argument] = [source, tmp_path / "in", tmp_path / "out"]
    said = recordmill("convert", *job).err
    (way_out,) = re.findall(
        rf"without label, \S+, use (--exclude \S+?\.{source})", said
    )
    ran = convert(*job, *way_out.split())
    assert "left out: 1 file, by exclude" in ran.err
    assert features_of(tmp_path / "out") == ["a", "label"]
