"""Folders named key=value are columns of tables and lines; of others that is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from archive_tools import tar_of
from job_tools import (
    SAMPLES,
    Argument,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
)
from tables_in_formats import FORMATS, write_table

from recordmill import open_dataset
from recordmill.transforms.sources import json_lines, registry
from recordmill.transforms.sources.partitions import NO_PARTITIONS

pytestmark = pytest.mark.usefixtures("without_beam")

FOLDERS = {
    "kind=cat/year=2025/code=007": [1, 2],
    "kind=a%20dog/year=2026/code=12": [3],
    "kind=__HIVE_DEFAULT_PARTITION__/year=2026/code=12": [4],
}
EXPECTED = {
    (1, b"cat", 2025, b"007"),
    (2, b"cat", 2025, b"007"),
    (3, b"a dog", 2026, b"12"),
    (4, b"", 2026, b"12"),
}


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def write(folder: Path, source: str, folders: dict[str, list[int]]) -> Path:
    for name, ids in folders.items():
        write_table(folder / name / "part-0", source, {"id": ids})
    return folder


def rows_of(folder: Path) -> set[tuple[int, bytes, int, bytes]]:
    rows = set()
    for example in examples_of(folder):
        values = example.features.feature
        [one], [year] = (values[n].int64_list.value for n in ("id", "year"))
        kind, code = (b"".join(values[n].bytes_list.value) for n in ("kind", "code"))
        rows.add((one, kind, year, code))
    return rows


def test_folders_are_typed_columns(source: str, tmp_path: Path) -> None:
    given = write(tmp_path / "in", source, FOLDERS)
    job: list[Argument] = [source, given, tmp_path / "out"]
    ran = convert(*job)
    assert "columns by folder: kind, year, code" in ran.err
    assert "kind string, year int64, code string" in ran.err
    assert rows_of(tmp_path / "out") == EXPECTED
    convert(source, given, tmp_path / "none", "--partitions", "none")
    assert [f["name"] for f in manifest_of(tmp_path / "none")["features"]] == ["id"]
    assert recordmill("convert", *job, "--partitions", "none").status == 73
    # Appended files have their own values.
    write(given, source, {"kind=emu/year=2027/code=1": [5]})
    convert(*job, "--append")
    assert rows_of(tmp_path / "out") == EXPECTED | {(5, b"emu", 2027, b"1")}


def test_values_are_those_that_arrow_reads(tmp_path: Path) -> None:
    """Of a tree that Arrow wrote; a folder is a label, too."""
    table = pa.table({"id": [1, 2, 3], "label": ["a/b", "c d", "c d"]})
    given, out = tmp_path / "in", tmp_path / "out"
    hive = pa.dataset.partitioning(pa.schema([("label", pa.string())]), flavor="hive")
    pa.dataset.write_dataset(table, given, format="parquet", partitioning=hive)
    convert("parquet", given, out, "--label", "label")
    names = (out / "label.labels.txt").read_text().splitlines()
    pairs = zip(ints(out, "id"), ints(out, "label"), strict=True)
    read = pa.dataset.dataset(given, partitioning=hive).to_table().to_pylist()
    expected = {(row["id"], row["label"]) for row in read}
    assert {(row, names[label]) for row, label in pairs} == expected


def test_a_split_is_no_column(source: str, tmp_path: Path) -> None:
    folders = {"split=train/y=1": [1], "split=test/y=2.5": [2]}
    given = write(tmp_path / "in", source, folders)
    convert(source, given, tmp_path / "out")
    features = manifest_of(tmp_path / "out")["features"]
    assert [(f["name"], f["kind"]) for f in features] == [
        ("id", "int64_list"),
        ("y", "float_list"),
    ]
    assert ints(tmp_path / "out", "id", "test") == [2]
    by_column = ("--split-from", "none", "--split-column", "split")
    convert(source, given, tmp_path / "column", *by_column)
    assert ints(tmp_path / "column", "id", "test") == [2]


def test_new_files_do_not_change_the_type_of_a_column(
    source: str, tmp_path: Path
) -> None:
    given = write(tmp_path / "in", source, {"day=1": [1], "day=2": [2]})
    job: list[Argument] = [source, given, tmp_path / "out"]
    convert(*job)
    write(given, source, {"day=x": [3], "day=3": [4]})
    ran = recordmill("convert", *job, "--append")
    assert ran.status == 65
    assert "its folder day=x is string, but in the dataset it is int64" in ran.err
    convert(*job, "--append", "--exclude", "day=x")
    assert sorted(ints(tmp_path / "out", "day")) == [1, 2, 3]
    shutil.move(given / "day=x", given / "day=1.5")
    assert "day=1.5 is double" in recordmill("convert", *job, "--append").err
    convert(*job, "--overwrite")
    with_text = write(tmp_path / "text", source, {"day=x": [3]})
    convert(source, with_text, tmp_path / "second")
    write(with_text, source, {"day=1": [4]})
    convert(source, with_text, tmp_path / "second", "--append")


def test_a_folder_of_the_split_is_no_column_of_splits(
    source: str, tmp_path: Path
) -> None:
    given = write(tmp_path / "in", source, {"split=train": [1, 2], "split=test": [3]})
    job: list[Argument] = [source, given, tmp_path / "out"]
    ran = recordmill("convert", *job, "--split-column", "split")
    assert "folders named split=... already define the splits" in ran.err
    convert(*job)
    assert ints(tmp_path / "out", "id", "test") == [3]
    convert(
        *job[:2], tmp_path / "other", "--split-column", "split", "--split-from=none"
    )
    assert ints(tmp_path / "other", "id", "test") == [3]


def test_what_is_refused(source: str, tmp_path: Path) -> None:
    """Each way out works."""
    given = write(tmp_path / "in", source, {"id=7": [1]})
    other = write(tmp_path / "other", source, {"y=7": [1]})
    write_table(other / "alone", source, {"id": [2]})
    for folder, message in (
        (given, "has a column 'id', and is in a folder id=...;"),
        (other, "is in no folder y=..., but others are"),
    ):
        ran = recordmill("convert", source, folder, tmp_path / "out")
        assert ran.status == 65
        assert message in ran.err
        assert "--partitions none" in ran.err
        output = tmp_path / f"out-of-{folder.name}"
        convert(source, folder, output, "--partitions", "none")
    convert(source, other, tmp_path / "out", "--exclude", f"alone.{source}")
    assert ints(tmp_path / "out", "y") == [7]


def test_lines_and_samples_have_the_columns_of_their_folders(tmp_path: Path) -> None:
    for label, n in (("cat", 7), ("__HIVE_DEFAULT_PARTITION__", 8)):
        folder = tmp_path / f"in/label={label}/n={n}"
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text(f"one {n}\n\xfc {n}\n")
        (folder / "a.tar").write_bytes(tar_of({"0.txt": b"one", "1.txt": b"\xc3\xbc"}))
    found = {}
    for source, suffix in (("text", "txt"), ("webdataset", "tar")):
        out, others = tmp_path / source, f"*.{ {'txt': 'tar', 'tar': 'txt'}[suffix] }"
        ran = convert(source, tmp_path / "in", out, "--exclude", others)
        assert "columns by folder: label, n" in ran.err
        told = json.loads((out / "run.json").read_text())["understood"]["facts"]
        assert told["columns by folder"] == "label, n"
        found[source] = sorted(
            (row["n"], row["label"], row["text" if source == "text" else "txt"][:3])
            for row in open_dataset(out, "train")
        )
    assert [row[:2] for row in found["text"]] == [(7, "cat")] * 2 + [(8, None)] * 2
    assert found["webdataset"] == [
        *((7, "cat", "one"), (7, "cat", "\xfc")),
        *((8, None, "one"), (8, None, "\xfc")),
    ]


def test_other_formats_tell_that_folders_are_not_read(tmp_path: Path) -> None:
    """Records have features of their own; a folder of whole files is their class.

    No column is lost with the folder that is the class: its name is that of the class.
    """
    given = write(tmp_path / "in", "csv", {"label=cat": [1], "label=dog": [2]})
    convert("text", given, tmp_path / "t/label=cat", "--partitions", "none")
    year = tmp_path / "whole/year=2026"
    write(year, "csv", {"label=cat": [1], "label=dog": [2]})
    shutil.copytree(SAMPLES / "cifar", tmp_path / "cifar/year=2026")
    for source, name in (
        ("images", "images/textures/gravel.png"),
        ("audio", "sounds/tone/0.wav"),
    ):
        for label in ("cat", "dog"):
            folder = tmp_path / source / "year=2026" / f"label={label}"
            folder.mkdir(parents=True)
            shutil.copy(SAMPLES / name, folder)
    for name, folder, key in (
        ("tfrecord", "t", "label"),
        ("text --whole-files", "whole", "year"),
        ("images", "images", "year"),
        ("audio", "audio", "year"),
        ("cifar", "cifar", "year"),
    ):
        ran = convert(*name.split(), tmp_path / folder, tmp_path / f"out-{name}")
        assert f"folder names not read as columns: {key}=...\n" in ran.err
        stored = json.loads((tmp_path / f"out-{name}" / "run.json").read_text())
        assert (
            stored["understood"]["facts"]["folder names not read as columns"]
            == f"{key}=..."
        )
    for name in ("text --whole-files", "images", "audio"):
        labels = (tmp_path / f"out-{name}" / "label.labels.txt").read_text()
        assert labels.split() == ["label=cat", "label=dog"]


@pytest.mark.parametrize(
    ("source", "name"),
    [("images", "images/textures/gravel.png"), ("audio", "sounds/tone/0.wav")],
)
def test_folders_below_those_of_values_are_the_classes(
    tmp_path: Path, source: str, name: str
) -> None:
    for folder in ("year=2026/cat", "year=2027/dog"):
        (tmp_path / "in" / folder).mkdir(parents=True)
        shutil.copy(SAMPLES / name, tmp_path / "in" / folder)
    ran = convert(source, tmp_path / "in", tmp_path / "out")
    assert "folder names not read as columns: year=...\n" in ran.err
    labels = (tmp_path / "out" / "label.labels.txt").read_text()
    assert labels.split() == ["cat", "dog"]


def test_small_tables_are_joined_with_the_columns_of_their_folders(
    tmp_path: Path,
) -> None:
    """Of a comma in numbers, too; a folder of numbers can be the label."""
    for n in range(200):
        write(tmp_path / "in", "csv", {f"k={n % 3}/x={n % 5 / 4:g}/{n}": [n]})
    options = ("--decimal", "comma", "--delimiter", "semicolon", "--label", "k")
    convert("csv", tmp_path / "in", tmp_path / "out", *options)
    rows = [*open_dataset(tmp_path / "out", "train")]
    assert sorted((row["id"], row["k"], row["x"]) for row in rows) == [
        (n, n % 3, n % 5 / 4) for n in range(200)
    ]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_columns_of_folders_are_declared_or_left_out(kind: str, tmp_path: Path) -> None:
    given = write(tmp_path / "in", kind, {"zip=12345/y=1": [1], "zip=54321/y=2": [2]})
    (tmp_path / "s.yaml").write_text("features:\n  id: int64\n  zip: string\n")
    for option in ("--schema", "--expect-schema"):
        out = tmp_path / option
        (tmp_path / "s.yaml").write_text(
            f"features:\n  id: int64\n  zip: {'string' if option == '--schema' else 'int64'}\n"
        )
        ran = convert(
            *(kind, given, out, option, tmp_path / "s.yaml"),
            *("--extra-columns", "ignore"),
        )
        assert "columns left out: y" in ran.err
        zips = sorted(str(row["zip"]) for row in open_dataset(out, "train"))
        assert zips == ["12345", "54321"]
        assert "y" not in [f["name"] for f in manifest_of(out)["features"]]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (("1", "22"), "int64"),
        (("1234567890123456789", "1"), "string"),
        (("0.5", "1", "-2.25"), "float32"),
        (("1.1", "1.10"), "string"),
        (("12e5", "1"), "string"),
        (("1.23456789", "1"), "string"),
        (("007", "1"), "string"),
    ],
)
def test_no_value_of_a_folder_loses_a_digit(
    values: tuple[str, ...], dtype: str, tmp_path: Path
) -> None:
    folders = {f"k={value}": [n] for n, value in enumerate(values)}
    given = write(tmp_path / "in", "parquet", folders)
    convert("parquet", given, tmp_path / "out")
    (feature,) = [f for f in manifest_of(tmp_path / "out")["features"] if f["name"] == "k"]  # fmt: skip
    assert feature["dtype"] == dtype


def test_a_schema_says_what_a_folder_is(tmp_path: Path) -> None:
    given = write(tmp_path / "in", "parquet", {"zip=12345": [1], "zip=54321": [2]})
    (tmp_path / "s.yaml").write_text("features:\n  id: int64\n  zip: string\n")
    convert("parquet", given, tmp_path / "out", "--schema", tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text("features:\n  id: int64\n  zip: int32\n")
    convert("parquet", given, tmp_path / "int", "--schema", tmp_path / "s.yaml")
    assert sorted(ints(tmp_path / "int", "zip")) == [12345, 54321]


def test_split_is_a_column_where_another_folder_tells_splits(tmp_path: Path) -> None:
    folders = {
        f"{y}/split={s}": [n] for n, (y, s) in enumerate((("a", "x"), ("b", "y")))
    }
    given = write(tmp_path / "in", "parquet", folders)
    convert("parquet", given, tmp_path / "out", "--split-from", 1)
    assert "split" in [f["name"] for f in manifest_of(tmp_path / "out")["features"]]
    assert sorted(manifest_of(tmp_path / "out")["splits"]) == ["a", "b"]


@pytest.mark.parametrize("kind", ["text", "csv", "jsonl"])
def test_datasets_from_before_folders_were_columns_take_new_files(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message names the way out, and it works, once and again."""
    given, out = tmp_path / "in", tmp_path / "out"

    def add(year: int) -> None:
        path = write_table(given / f"y={year}/0", "csv", {"id": [year]})
        text = json.dumps({"id": year}) + "\n" if kind == "jsonl" else path.read_text()
        path.rename(path.with_suffix({"text": ".txt"}.get(kind, f".{kind}")))
        next(path.parent.iterdir()).write_text(text)

    add(1)
    add(2)
    with monkeypatch.context() as before:
        before.setattr(registry, "_reads_partitions", lambda _: False)
        before.setattr(registry.SourceRequest, "partitions", lambda *_: NO_PARTITIONS)
        convert(kind, given, out)
    ran = recordmill("convert", kind, given, out)
    assert "which folders are read as columns" in ran.err
    assert "append with --partitions none" in ran.err
    convert(kind, given, out, "--append", "--partitions", "none")
    add(3)
    ran = recordmill("convert", kind, given, out, "--append")
    assert "they also have y; use --partitions none" in ran.err
    for year in (3, 4):
        add(year)
        convert(kind, given, out, "--append", "--partitions", "none")
    column = "text" if kind == "text" else "id"
    assert [f["name"] for f in manifest_of(out)["features"]] == [column]
    assert len(list(examples_of(out))) == (8 if kind == "text" else 4)
    # Of a dataset that has them it is another job still.
    convert(kind, given, tmp_path / "new")
    refused = ("--append", "--partitions", "none")
    ran = recordmill("convert", kind, given, tmp_path / "new", *refused)
    assert "was created by another job" in ran.err


def test_text_leaves_out_folders_that_a_schema_does_not_have(tmp_path: Path) -> None:
    (tmp_path / "in/label=cat").mkdir(parents=True)
    (tmp_path / "in/label=cat/0.txt").write_text("one\n")
    (tmp_path / "s.yaml").write_text("features:\n  text: string\n")
    for more in ((), ("--payload", "raw")):
        out = tmp_path / f"out{len(more)}"
        ran = convert(
            "text", tmp_path / "in", out, "--schema", tmp_path / "s.yaml", *more
        )
        assert "columns left out: label" in ran.err
        assert "columns by folder" not in ran.err
    raw = ("convert", "text", tmp_path / "in", tmp_path / "raw", "--payload", "raw")
    assert "--partitions none" in recordmill(*raw).err
    assert recordmill(*raw, "--partitions", "none").status == 0
    ran = recordmill(
        "convert",
        "text",
        tmp_path / "in",
        tmp_path / "w",
        "--whole-files",
        "--partitions=none",
    )
    assert "--partitions: with --whole-files each file is a record" in ran.err


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_column_that_is_a_folder_too_is_named_with_its_file(
    kind: str, tmp_path: Path
) -> None:
    """Wherever the file is, and if others are left out."""
    for k, (without, own) in enumerate((("a", "b"), ("b", "a"))):
        given = tmp_path / str(k)
        for folder, table in ((without, {"id": [1]}), (own, {"id": [1], "k": [99]})):
            write_table(given / f"k={folder}/0", kind, table)
        for more in ("error", "ignore"):
            out = tmp_path / f"out-{k}-{more}"
            job: list[Argument] = [kind, given, out, "--extra-columns", more]
            ran = recordmill("convert", *job)
            assert ran.status == 65
            assert f"k={own}/0.{kind}: has a column 'k', and is in a folder" in ran.err
            if more == "ignore" and own == "b":
                convert(*job, "--partitions", "none")


@pytest.mark.parametrize("more", ["error", "ignore", "schema"])
def test_a_later_row_with_a_key_that_its_folder_is_too(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a reject, though the rows that told the columns do not have it."""
    monkeypatch.setattr(json_lines, "SAMPLE_BYTES", 1 << 10)
    monkeypatch.setattr(json_lines.ObjectsSource, "min_sample_bytes", 1 << 10)
    monkeypatch.setattr(json_lines, "BATCH_BYTES", 1 << 10)
    given = tmp_path / "in/k=7/0.jsonl"
    given.parent.mkdir(parents=True)
    rows = [{"id": n} for n in range(400)] + [{"id": 400, "k": 8}, {"id": 401}]
    given.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    schema = tmp_path / "s.yaml"
    schema.write_text("features:\n  id: int64\n  k: int64\n")
    out, with_schema = tmp_path / "out", ["--schema", schema]
    options = with_schema if more == "schema" else ["--extra-columns", more]
    job: list[Argument] = ["jsonl", tmp_path / "in", out, "--max-rejects", "1"]
    convert(*job, *options)
    assert sorted(set(ints(out, "k"))) == [7]
    told = recordmill("rejects", out).out
    assert "k: is a key of the row, and also a folder k=... of its file" in told
    # The ways out.
    assert "Rename the folders, or use `partitions=none` and move such a row to" in told
    if more == "schema":
        schema.write_text("features:\n  id: int64\n  k: int64?\n")
    given.write_text("".join(f"{json.dumps(row)}\n" for row in reversed(rows)))
    convert(*job, *options, "--partitions", "none", "--overwrite")
    found = [each.features.feature["k"].int64_list.value for each in examples_of(out)]
    assert [value for values in found for value in values] == [8]


def test_messages_tell_all_columns_and_name_one_file_of_a_name(tmp_path: Path) -> None:
    given = write(tmp_path / "in", "csv", {"shop=a/year=1": [1]})
    write_table(given / "shop=a/year=1/part-0", "csv", {"id": [1], "v": [2]})
    schema = tmp_path / "s.yaml"
    schema.write_text("features:\n  id: int64\n  shop: string\n")
    ran = convert("csv", given, tmp_path / "out", "--schema", schema)
    assert "columns: 4 (id, v, shop, year)" in ran.err
    assert "columns left out: v, year" in ran.err
    mixed = write(tmp_path / "mixed", "csv", {"train": [1], "test": [2], "": [3]})
    job: list[Argument] = ["csv", mixed, tmp_path / "out-mixed"]
    assert "with --exclude /part-0.csv" in recordmill("convert", *job).err
    convert(*job, "--exclude", "/part-0.csv")
    assert sorted(manifest_of(tmp_path / "out-mixed")["splits"]) == ["test", "train"]


def test_a_folder_above_all_files_is_told(source: str, tmp_path: Path) -> None:
    """As in Spark it is no column; the folder that holds it has it."""
    given, out = write(tmp_path / "in", source, {"kind=cat/year=2025": [1]}), tmp_path
    job: list[Argument] = ["convert", source, given / "kind=cat/year=2025"]
    ran = recordmill(*job, out / "none")
    told = "kind=cat/year=2025, above the files: use its parent folder"
    assert f"columns by folder: not {told}" in ran.err
    ran = recordmill("convert", source, given / "kind=cat", out / "one")
    assert "columns by folder: year; not kind=cat, above the files" in ran.err
    assert "columns by folder: kind, year\n" in convert(source, given, out / "both").err
