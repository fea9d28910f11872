"""Columns that are labels or splits, exact splits, and options that go together."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import (
    SAMPLES,
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

from recordmill.beam_jobs.service import label_split
from recordmill.transforms.exchange import exact_splits
from recordmill.transforms.exchange.exact_splits import divide_rows
from recordmill.transforms.statistics import input_statistics

pytestmark = pytest.mark.usefixtures("without_beam")

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
    assert "rows by column part: train 5, 1 2, test 2, val 1; it does not" in ran.err
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
    assert "different values; classes and splits have fewer names" in said(
        "--label", "animal"
    )
    convert(source, table, tmp_path / "out")  # the way out: leave it out


def test_options_that_exclude_each_other(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a", "csv", {"x": ["a"], "y": ["b"]})
    (tmp_path / "s.yaml").write_text("features: {x: string}\n")
    job: list[Argument] = ["convert", "csv", file, tmp_path / "out"]
    for options, told in (
        (["--label", "x", "--schema", tmp_path / "s.yaml"], "leave out --label or"),
        (["--split-column", "x", "--split", "a=1"], "cannot be combined with --split;"),
        (
            ["--split-column", "x", "--split-by", "y"],
            "cannot be combined with --split-by;",
        ),
    ):
        ran = recordmill(*job, *options)
        assert ran.status == 2
        assert told in ran.err
    images = Path(__file__).parents[1] / "samples" / "images"
    ran = recordmill("convert", "images", images, tmp_path / "out", "--label", "x")
    assert "names a column of a table, but images has no columns" in ran.err


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
    assert "--split-by-time: sets the split of each row" in ran.err


@pytest.mark.parametrize("source", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("bounds", "found"),
    [
        ("2026-02-01", "found '15.01.2026'; expected times like 2026-01-31"),
        ("7", "found '15.01.2026'; expected numbers like 20.5"),
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
    assert "--split-by-time day: the values in the first rows do not match" in ran.err
    assert found in ran.err
    assert not (tmp_path / "out").exists()
    if bounds == "7":
        convert(source, file, tmp_path / "out", "--split-by-time", f"id=a,{bounds},b")
        assert sorted(ints(tmp_path / "out", "id", "b")) == [8, 9]
        job[2] = tmp_path / "other"
        ran = recordmill("convert", *job, "--split-by-time", "id=a,2026-01-01,b")
        told = "'1'" if source == "csv" else "'1' (int64)"
        assert f"found {told}; expected times like 2026-01-31" in ran.err
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
    assert "found '20260115'; expected times like 2026-01-31" in ran.err
    assert "use boundaries of the same form" in ran.err
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
    """As with `--decimal comma`."""
    (tmp_path / "a.csv").write_text("size;id\n1,5;1\n2,5;2\n10;3\n0,5;4\n")
    schema = "features: {id: int64, size: {dtype: float32, decimal: comma}}"
    (tmp_path / "s.yaml").write_text(schema)
    job: list[Argument] = [tmp_path / "a.csv", tmp_path / "out", "--schema"]
    convert("csv", *job, tmp_path / "s.yaml", "--split-by-time", "size=x,2,y")
    assert sorted(ints(tmp_path / "out", "id", "y")) == [2, 3]


EIGHT_TWO: list[Argument] = ["--split", "train=0.8", "--split", "test=0.2"]
# As text, typed, with missing values: the classes of one column.
KINDS = ["07", "7", "8", "8.0", "", "NA", "9"] * 30


def records(folder: Path) -> dict[str, int]:
    splits: dict[str, Any] = manifest_of(folder)["splits"]
    return {name: split["records"] for name, split in splits.items()}


def test_exact_splits_of_images(tmp_path: Path) -> None:
    """By references, by files and through the engine."""
    for exchange in ("reference", "scratch", "engine"):
        convert(
            *("images", SAMPLES / "images", tmp_path / exchange, "--name", "same"),
            *EIGHT_TWO,
            *("--split-exact", "--exchange", exchange),
        )
        assert records(tmp_path / exchange) == {"train": 8, "test": 2}
        assert contents(tmp_path / exchange) == contents(tmp_path / "reference")


@pytest.mark.parametrize("label", ["", "kind"])
def test_each_class_has_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    """Whatever types the columns have in the ranges; as the engine has them."""
    cut_small(monkeypatch, 1024)
    kinds = ["7", "8", "9"] * 70 if label else KINDS
    file = write_table(tmp_path / "a", "csv", {"id": list(range(210)), "kind": kinds})
    job: list[Argument] = [*EIGHT_TWO, "--stratify-by", "kind", "--name", "same"]
    job += ["--label", "kind"] if label else []
    ran = convert("csv", file, tmp_path / "out", *job)
    assert records(tmp_path / "out") == {"train": 168, "test": 42}
    values = [kinds[row] for row in ints(tmp_path / "out", "id", "test")]
    classes = Counter(
        {"07": "7", "8.0": "8", "NA": ""}.get(value, value) for value in values
    )
    assert "train 168, test 42 rows, for each of" in ran.err
    counts = Counter(
        {"07": "7", "8.0": "8", "NA": ""}.get(value, value) for value in kinds
    )
    for name, rows in counts.items():
        assert abs(classes[name] - Fraction(rows, 5)) < 1
    if not label:
        convert("csv", file, tmp_path / "engine", *job, "--exchange", "engine")
        assert contents(tmp_path / "engine") == contents(tmp_path / "out")


@pytest.mark.parametrize("said", ["", "table", "schema"])
def test_classes_are_numbers_as_cells_are(tmp_path: Path, said: str) -> None:
    """1,5 and 1,50 are one class only where the table, or its schema, has such numbers."""
    kinds = ["1,5", "1,50"] * 4
    columns = {"id": list(range(8)), "kind": kinds}
    file = write_table(tmp_path / "a", "csv", columns)
    job: list[Argument] = ["--split", "a=0.5", "--split", "b=0.5"]
    job += ["--stratify-by", "kind"]
    if said == "table":
        job += ["--decimal", "comma"]
    if said == "schema":
        (tmp_path / "s.yaml").write_text(
            "features: {id: int64, kind: {dtype: float32, decimal: comma}}"
        )
        job += ["--schema", tmp_path / "s.yaml"]
    told = convert("csv", file, tmp_path / "out", *job).err
    num_classes = "1 class" if said else "2 classes"
    assert f"a 4, b 4 rows, for each of {num_classes} of kind" in told
    found = Counter(kinds[row] for row in ints(tmp_path / "out", "id", "a"))
    assert said or found == {"1,5": 2, "1,50": 2}


def test_each_part_of_an_append_is_exact(tmp_path: Path) -> None:
    job: list[Argument] = [*EIGHT_TWO, "--split-exact", "--append"]
    for number, rows in enumerate((10, 5)):
        write_table(tmp_path / "in" / str(number), "jsonl", {"id": list(range(rows))})
        convert("jsonl", tmp_path / "in", tmp_path / "out", *job)
    assert records(tmp_path / "out") == {"train": 12, "test": 3}


def test_limits_outside_their_window_are_found_by_a_wider_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_table(tmp_path / "a", "parquet", {"id": np.arange(5000)})
    job: list[Argument] = [*EIGHT_TWO, "--split-exact", "--name", "same"]
    convert("parquet", file, tmp_path / "out", *job)
    monkeypatch.setattr(exact_splits, "MAX_ROWS_WITHOUT_WINDOW", 1)
    monkeypatch.setattr(label_split, "WIDTH", 2**-12)
    tried = []
    find = label_split.find_limits

    def noted(*arguments: Any) -> Any:
        tried.append(find(*arguments))
        return tried[-1]

    monkeypatch.setattr(label_split, "find_limits", noted)
    convert("parquet", file, tmp_path / "again", *job)
    assert tried[0] is None
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    assert records(tmp_path / "out") == {"train": 4000, "test": 1000}


def test_what_cannot_be_exact_is_told(tmp_path: Path) -> None:
    job: list[Argument] = ["convert", "csv", SAMPLES / "iris", tmp_path / "out"]
    for options, told in (
        (["--split-exact"], "--split-exact: requires --split"),
        ([*EIGHT_TWO, "--split-exact", "--split-by", "species"], "groups of rows"),
        ([*EIGHT_TWO, "--stratify-by", "kind"], "no such column; the input has sepal"),
        (
            ["--split-column", "species", "--split-exact"],
            "--split-exact: requires --split",
        ),
    ):
        ran = recordmill(*job, *options)
        assert ran.status == 2
        assert told in ran.err


def test_numbers_stay_within_a_row_of_their_shares() -> None:
    """Of many small classes, too: all of them together have their share."""
    numbers = divide_rows([5] * 1000, [Fraction(9, 10), Fraction(1, 10)])
    assert sum(test for _, test in numbers) == 500


IMAGES = SAMPLES / "images"
TABLE = SAMPLES / "labelled" / "pictures.csv"
HALVES: list[Argument] = ["--split", "train=0.5", "--split", "test=0.5"]
NAMED: list[Argument] = ["--label-array", "labels.npy", "--class-names", "names.txt"]


def no_split(folder: Path) -> Path:
    """A table of labels without a column of splits."""
    lines = [",".join(line.split(",")[:2]) for line in TABLE.read_text().splitlines()]
    (folder / "plain.csv").write_text("\n".join(lines))
    return folder / "plain.csv"


def lists(folder: Path) -> str:
    (folder / "list.txt").write_text("animals/horse.png\nobjects/text.png\n")
    return f"test={folder / 'list.txt'}"


@pytest.mark.parametrize("by", ["column", "tables", "lists", "names", "folders"])
def test_splits_of_the_input_are_left_out_as_the_error_says(
    by: str, tmp_path: Path
) -> None:
    """Each thing that tells splits of images has its own way out."""
    table, folder = no_split(tmp_path), tmp_path / "in"
    for name in ("train", "test"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a").symlink_to(IMAGES / "animals")
    named = ["--label-from", "none", "--unlisted", "leave_out", "--label-pattern"]
    cases: dict[str, tuple[Path, list[Argument], str, list[Argument]]] = {
        "column": (
            IMAGES,
            ["--label-table", TABLE, "--resize", "8x8"],
            "use --table-split-column none",
            ["--label-table", TABLE, "--table-split-column", "none"],
        ),
        "tables": (
            IMAGES,
            ["--label-table", f"test={table}"],
            "name the files of --label-table without splits",
            ["--label-table", table],
        ),
        "lists": (
            IMAGES,
            ["--unlisted", "leave_out", "--split-lists", lists(tmp_path)],
            "leave out --split-lists",
            [],
        ),
        "names": (
            IMAGES,
            [*named, r"(?P<split>t)[a-z]+/.*"],
            "rename the group split in --label-pattern",
            [*named, r"(?P<part>t)[a-z]+/.*"],
        ),
        "folders": (folder, [], "use --split-from none", ["--split-from", "none"]),
    }
    given, wrong, way_out, right = cases[by]
    clash = HALVES if by != "names" else ["--split", "train=0.5", "--split", "t=0.5"]
    job: list[Argument] = [given, tmp_path / "out", *clash]
    ran = recordmill("convert", "images", *job, *wrong)
    assert ran.status == 2
    assert way_out in ran.err
    assert not (tmp_path / "out").exists()
    convert("images", *job, *right)


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """Arrays with names of classes."""
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(folder / "images.npy", np.zeros((6, 2, 2, 3), np.uint8))
    np.save(folder / "labels.npy", np.array([2, 0, 2, 2, 0, 2]))
    (folder / "names.txt").write_text("a\nb\nc\n")
    return folder


def test_a_label_that_has_names_keeps_them(arrays: Path, tmp_path: Path) -> None:
    """`--label` of a column that is one already gives it no other names or numbers."""
    parts, again = tmp_path / "parts", tmp_path / "again"
    ran = convert("numpy", arrays, parts / "a", *NAMED, "--label", "label")
    assert "label: label, 3 classes: a, b, c" in ran.err
    assert (parts / "a/label.labels.txt").read_text().split() == ["a", "b", "c"]
    labels = [0, 0, 2, 2, 2, 2]
    assert sorted(ints(parts / "a", "label")) == labels
    job: list[Argument] = ["--records", "decode", "--label", "label", "--append"]
    convert("tfrecord", parts, again, *job)
    assert (again / "label.labels.txt").read_text().split() == ["a", "b", "c"]
    convert("numpy", arrays, parts / "b", *NAMED)
    convert("tfrecord", parts, again, *job)
    assert sorted(ints(again, "label")) == sorted(labels * 2)


def test_one_column_is_not_label_and_split(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,part\n1,train\n2,test\n")
    job: list[Argument] = [tmp_path / "a.csv", tmp_path / "out"]
    ran = recordmill(
        "convert", "csv", *job, "--label", "part", "--split-column", "part"
    )
    assert ran.status == 2
    assert "--label: part is also the column of --split-column" in ran.err
    assert not (tmp_path / "out").exists()
    convert("csv", *job, "--split-column", "part")  # the way out


@pytest.mark.parametrize(
    "option", [("--split-column", "label"), ("--split-by-time", "label=low,5,high")]
)
def test_splits_by_a_column_in_place_of_names_of_files_are_told(
    option: tuple[str, str], tmp_path: Path
) -> None:
    digits = SAMPLES / "digits" / "idx"
    ran = convert("idx", digits, tmp_path / "out", *option, "--plan")
    assert "; not test, train from file names" in ran.out + ran.err


@pytest.mark.parametrize("pair", [("test", "train"), ("train", "valid")])
def test_a_file_without_the_labels_of_the_others(
    source: str, pair: tuple[str, str], tmp_path: Path
) -> None:
    """As all competitions have it: the error names that file, and what works."""
    given = tmp_path / "in"
    has_labels, has_none = sorted(pair, key=lambda name: name != "train")
    write_table(given / has_labels, source, {"id": [1, 2], "target": [0, 1]})
    write_table(given / has_none, source, {"id": [3]})
    if source == "jsonl":  # where a key that is not there is a missing value
        convert(source, given, tmp_path / "out")
        assert ints(tmp_path / "out", "id", has_none) == [3]
        return
    ran = recordmill("convert", source, given, tmp_path / "out")
    assert ran.status == 65
    path = f"/{has_none}.{source}"
    assert f"file without target, {given}{path}, use --exclude {path}" in ran.err
    convert(source, given, tmp_path / "out", "--exclude", path, "--label", "target")
    assert sorted(ints(tmp_path / "out", "target")) == [0, 1]
    if "--extra-columns ignore" in ran.err:
        convert(source, given, tmp_path / "more", "--extra-columns", "ignore")
        assert ints(tmp_path / "more", "id", has_none) == [3]
