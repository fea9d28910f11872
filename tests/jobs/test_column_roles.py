"""Columns that are class labels or that name splits, in every format with columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_tools import (
    Argument,
    assert_whole,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
)
from tables_in_formats import FORMATS, cut_small, write_table

from recordmill.transforms.statistics import input_statistics

ANIMALS = ["emu", "cat", "dog", "cat", "7", "dog", "cat", "emu", "cat", "dog"]
SPLITS = ["train", "test", "train", "train", "val", "train", "test", "train", "1", "1"]
CLASSES = ["7", "cat", "dog", "emu"]


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def table(tmp_path: Path, source: str) -> Path:
    """A folder with ten rows in two files."""
    for name, rows in (("a", slice(0, 6)), ("b", slice(6, 10))):
        columns: dict[str, list[Any]] = {
            "id": list(range(10))[rows],
            "animal": ANIMALS[rows],
            "part": SPLITS[rows],
        }
        write_table(tmp_path / "in" / name, source, columns)
    return tmp_path / "in"


def rows_of(folder: Path) -> set[tuple[int, str, str]]:
    """Id, name of the class and split of each record."""
    names = (folder / "animal.labels.txt").read_text().splitlines()
    return {
        (row, names[label], split)
        for split in manifest_of(folder)["splits"]
        for row, label in zip(
            ints(folder, "id", split), ints(folder, "animal", split), strict=True
        )
    }


def test_columns_are_labels_and_splits(
    source: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_small(monkeypatch)
    job: list[Argument] = ["--label", "animal", "--split-column", "part"]
    job += ["--name", "same"]
    ran = convert(source, table, tmp_path / "out", *job)
    names = (tmp_path / "out" / "animal.labels.txt").read_text().splitlines()
    assert names == CLASSES
    assert rows_of(tmp_path / "out") == {
        (row, ANIMALS[row], SPLITS[row]) for row in range(10)
    }
    assert list(manifest_of(tmp_path / "out")["splits"]) == [
        "train",
        "1",
        "test",
        "val",
    ]
    example = next(examples_of(tmp_path / "out"))
    assert sorted(example.features.feature) == ["animal", "id"]
    assert "label: animal, 4 classes: 7, cat, dog, emu" in ran.err
    assert "rows by column part: train 5, 1 2, test 2, val 1; it is no" in ran.err
    assert_whole(tmp_path / "out")
    if source == "csv":  # whose types follow from the cells
        convert(source, table, tmp_path / "engine", *job, "--exchange", "engine")
        assert contents(tmp_path / "engine") == contents(tmp_path / "out")


@pytest.mark.parametrize("source", ["csv", "jsonl"], indirect=True)
def test_both_in_appended_files(source: str, table: Path, tmp_path: Path) -> None:
    job: list[Argument] = ["--label", "animal", "--split-column", "part", "--append"]
    later = (table / f"b.{source}").rename(tmp_path / f"b.{source}")
    convert(source, table, tmp_path / "out", *job)
    later.rename(table / later.name)
    convert(source, table, tmp_path / "out", *job)
    assert_whole(tmp_path / "out")
    assert rows_of(tmp_path / "out") == {
        (row, ANIMALS[row], SPLITS[row]) for row in range(10)
    }
    if source == "csv":  # a header, and no row
        (table / "a2.csv").write_text("id,animal,part\n")
        convert(source, table, tmp_path / "out", *job)
    columns = {"id": [10, 11], "animal": ["cat", "yak"], "part": ["new", "train"]}
    write_table(table / "c", source, columns)
    ran = recordmill("convert", source, table, tmp_path / "out", *job)
    assert ran.status != 0
    assert "'yak' is a new class; the dataset has 7, cat, dog, emu" in ran.err
    assert "Convert all inputs again without" in ran.err
    convert(source, table, tmp_path / "out", *job[:-1], "--overwrite")
    assert len((tmp_path / "out/animal.labels.txt").read_text().splitlines()) == 5


@pytest.mark.parametrize("source", ["csv", "arrow"], indirect=True)
def test_rows_without_a_role_are_rejects(source: str, tmp_path: Path) -> None:
    columns = {
        "id": [0, 1, 2, 3],
        "animal": ["cat", None, "dog", "cat"],
        "part": ["train", "train", "not a name", None],
    }
    file = write_table(tmp_path / "a", source, columns)
    job: list[Argument] = ["--label", "animal", "--split-column", "part"]
    convert(source, file, tmp_path / "out", *job, "--max-rejects", 3)
    assert ints(tmp_path / "out", "id") == [0]
    reasons = {
        json.loads(line)["reason"]
        for rejects in (tmp_path / "out" / "rejects").iterdir()
        for line in rejects.read_text().splitlines()
    }
    assert reasons == {
        "animal: no value; each row needs a class",
        "part: 'not a name' is not a valid name of a split; expected letters, digits, "
        "'_' and '-'",
        "part: no value; each row needs a split",
    }


@pytest.mark.parametrize(
    ("values", "labels", "warning"),
    [
        ([2, 0, 1, 10, *range(3, 10)], [2, 0, 1, 10, *range(3, 10)], ""),
        ([5, -1, 20], [1, 0, 2], "the value -1 becomes label 0"),
    ],
)
@pytest.mark.parametrize("source", ["parquet"], indirect=True)
def test_whole_numbers_and_booleans_are_classes(
    source: str, tmp_path: Path, values: list[int], labels: list[int], warning: str
) -> None:
    file = write_table(tmp_path / "a", source, {"n": values, "x": values})
    ran = convert(source, file, tmp_path / "out", "--label", "n", "--no-shuffle")
    assert ints(tmp_path / "out", "n") == labels
    assert ("becomes label" in ran.err) == bool(warning)
    assert warning in ran.err


@pytest.mark.parametrize("source", ["arrow"], indirect=True)
def test_what_can_be_no_label_is_told(
    source: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def said(*options: Argument) -> str:
        ran = recordmill("convert", source, table, tmp_path / "out", *options)
        assert ran.status != 0
        return ran.err

    assert "no such column; the input has id, animal, part" in said("--label", "kind")
    monkeypatch.setattr(input_statistics, "MAX_CLASSES", 3)
    assert "different values; names of classes or splits are few" in said(
        "--label", "animal"
    )
    convert(source, table, tmp_path / "out")  # the way out: leave it out


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a", "csv", {"x": ["a"], "y": ["b"]})
    (tmp_path / "s.yaml").write_text("features: {x: string}\n")
    job: list[Argument] = ["convert", "csv", file, tmp_path / "out"]
    for options, told in (
        (["--label", "x", "--schema", tmp_path / "s.yaml"], "leave out --label or"),
        (["--split-column", "x", "--split", "a=1"], "leaves nothing to --split;"),
        (["--split-column", "x", "--split-by", "y"], "leaves nothing to --split-by;"),
    ):
        ran = recordmill(*job, *options)
        assert ran.status == 2
        assert told in ran.err
    images = Path(__file__).parents[1] / "samples" / "images"
    ran = recordmill("convert", "images", images, tmp_path / "out", "--label", "x")
    assert "names a column of a table, but images has none" in ran.err


def test_a_declared_schema_decides_on_the_column_of_splits(tmp_path: Path) -> None:
    columns = {"x": ["a", "b"], "part": ["train", "test"]}
    file = write_table(tmp_path / "a", "csv", columns)
    for fields in ("x", "x, part"):
        names = [name.strip() for name in fields.split(",")]
        lines = "".join(f"  {name}: string\n" for name in names)
        (tmp_path / "s.yaml").write_text(f"features:\n{lines}")
        job: list[Argument] = ["--schema", tmp_path / "s.yaml", "--overwrite"]
        convert("csv", file, tmp_path / "out", *job, "--split-column", "part")
        (example,) = examples_of(tmp_path / "out", "test")
        assert sorted(example.features.feature) == sorted(names)


def test_splits_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The column stays a feature; a row without a time is a reject."""
    cut_small(monkeypatch)
    days = [f"2026-0{month}-15" for month in (3, 1, 2, 1, 4)] + ["soon"]
    source = "csv"
    file = write_table(tmp_path / "a", source, {"id": list(range(6)), "day": days})
    job: list[Argument] = [
        "--split-by-time",
        "day=train,2026-02-01,val,2026-03-15,test",
    ]
    job += ["--max-rejects", 1, "--name", "same"]
    ran = convert(source, file, tmp_path / "out", *job)
    found = {
        split: sorted(ints(tmp_path / "out", "id", split))
        for split in manifest_of(tmp_path / "out")["splits"]
    }
    assert found == {"train": [1, 3], "val": [2], "test": [0, 4]}
    example = next(examples_of(tmp_path / "out"))
    assert sorted(example.features.feature) == ["day", "id"]
    ran = recordmill("rejects", tmp_path / "out")
    assert "day: 'soon'; expected a time like 2026-01-01" in ran.out
    convert(source, file, tmp_path / "engine", *job, "--exchange", "engine")
    records = manifest_of(tmp_path / "out")["splits"]
    assert manifest_of(tmp_path / "engine")["splits"] == records  # with checksums
    ran = recordmill(
        *("convert", source, file, tmp_path / "out", "--split-by-time"),
        *("day=a,2026,b,2025,c", "--split", "a=1"),
    )
    assert ran.status == 2
    assert "--split-by-time: tells the split of each row" in ran.err


@pytest.mark.parametrize("source", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ("2026-02-01", "but '15.01.2026'; expected times like 2026-01-31"),
        ("7", "but '15.01.2026'; expected numbers like 20.5"),
    ],
)
def test_a_column_without_times_is_refused_before_the_run(
    source: str, bounds: str, found: str, tmp_path: Path
) -> None:
    """With ways out that work: another column, other boundaries, other values."""
    days = [None, "15.01.2026", "15.02.2026"]
    file = write_table(tmp_path / "a", source, {"id": [1, 8, 9], "day": days})
    job: list[Argument] = [source, file, tmp_path / "out", "--max-rejects", 1]
    ran = recordmill("convert", *job, "--split-by-time", f"day=a,{bounds},b")
    assert ran.status == 2
    assert "--split-by-time day: the first rows have no values like those" in ran.err
    assert found in ran.err
    assert not (tmp_path / "out").exists()
    if bounds == "7":
        convert(source, file, tmp_path / "out", "--split-by-time", f"id=a,{bounds},b")
        assert sorted(ints(tmp_path / "out", "id", "b")) == [8, 9]
        job[2] = tmp_path / "other"
        ran = recordmill("convert", *job, "--split-by-time", "id=a,2026-01-01,b")
        told = "'1'" if source == "csv" else "'1' (int64)"
        assert f"but {told}; expected times like 2026-01-31" in ran.err
        return
    days = ["2026-01-01", "2026-01-15", "2026-02-15"]
    file = write_table(tmp_path / "b", source, {"id": [1, 8, 9], "day": days})
    convert(source, file, tmp_path / "out", "--split-by-time", f"day=a,{bounds},b")
    assert ints(tmp_path / "out", "id", "b") == [9]


def test_compact_dates_are_numbers(tmp_path: Path) -> None:
    """Told before the run, with a way out: the column has numbers when it is read again."""
    days = ["20260115", "20260215"]
    file = write_table(tmp_path / "a", "csv", {"id": [1, 9], "day": days})
    job: list[Argument] = [file, tmp_path / "out", "--split-by-time"]
    ran = recordmill("convert", "csv", *job, "day=a,2026-02-01,b")
    assert ran.status == 2
    assert "but '20260115'; expected times like 2026-01-31" in ran.err
    assert "give boundaries that are like its values" in ran.err
    convert("csv", *job, "day=a,20260201,b")
    assert ints(tmp_path / "out", "id", "b") == [9]


@pytest.mark.parametrize(
    ("rows", "bounds"),
    [
        (["1,5;a", "2,5;b"], "day=x,2,y"),
        (["1,5;a", "2,5;b", "?;c"], "day=x,2,y"),
        (["NA;a"] * 1000 + ["2025-01-01;a", "2026-01-01;b"], "day=x,2026-01-01,y"),
        (["1.5;a", "2.5;b"], "day=x,2,y"),
    ],
    ids=["decimal comma", "text with them", "words for no value", "numbers"],
)
def test_a_column_that_has_times_is_not_refused(
    rows: list[str], bounds: str, tmp_path: Path
) -> None:
    """The look before the run takes for a time or number what the run takes for one."""
    (tmp_path / "a.csv").write_text("\n".join(["day;id", *rows]) + "\n")
    comma = ["--decimal", "comma"] if "1,5" in rows[0] else []
    job: list[Argument] = ["--split-by-time", bounds, "--max-rejects", 1000, *comma]
    convert("csv", tmp_path / "a.csv", tmp_path / "out", *job)
    splits = manifest_of(tmp_path / "out")["splits"]
    assert [splits[name]["records"] for name in "xy"] == [1, 1]


def test_numbers_with_a_comma_by_the_schema_divide_rows(tmp_path: Path) -> None:
    """As with `--decimal comma`, which a schema excludes."""
    (tmp_path / "a.csv").write_text("size;id\n1,5;1\n2,5;2\n10;3\n0,5;4\n")
    schema = "features: {id: int64, size: {dtype: float32, decimal: comma}}"
    (tmp_path / "s.yaml").write_text(schema)
    job: list[Argument] = [tmp_path / "a.csv", tmp_path / "out", "--schema"]
    convert("csv", *job, tmp_path / "s.yaml", "--split-by-time", "size=x,2,y")
    assert sorted(ints(tmp_path / "out", "id", "y")) == [2, 3]
