"""How two datasets, or two splits of one, differ and what they share."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    assert_unpublished,
    assert_whole,
    codes_of,
    convert,
    recordmill,
    states,
)
from tables_in_formats import write_table

from recordmill import open_dataset
from recordmill.transforms.dataset import diff
from recordmill.transforms.sources.base import RangeFindings, ReferencedRows
from recordmill.transforms.sources.images.source import ImagesSource

OTHER_OPTIONS = {
    "--seed 1": "--seed 0, now --seed 1",
    "--no-shuffle": "--shuffle, now --no-shuffle",
    "--compression gzip": "--compression none, now --compression gzip",
    "--name x": "--name out, now --name x",
    "--dataset-version 1.0.1": "--dataset-version 1.0.0, now --dataset-version 1.0.1",
    "--shards 2": "--shard-size 134217728, now --shards 2",
    "--split-by a": "no --split-by, now --split-by a",
    "--split a=0.5 --split b=0.5": "--split train=1, now --split a=0.5,b=0.5",
}


@pytest.fixture
def job(tmp_path: Path) -> list[Argument]:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.csv", "b.csv", "c.csv"):
        (folder / name).write_text("a,b\n1,2\n3,4\n")
    arguments: list[Argument] = ["csv", folder, tmp_path / "out"]
    convert(*map(str, arguments))
    return arguments


def refused(*arguments: Argument) -> list[str]:
    """The lines between the first, which names the dataset, and the ways out."""
    ran = recordmill("convert", *arguments)
    assert ran.status == 73
    first, *lines, last = ran.err.splitlines()
    assert "contains another dataset (out 1.0.0). It differs in:" in first
    assert "replace it with --overwrite, or choose another folder" in last
    return [line.removeprefix("  ") for line in lines]


def test_options(job: list[Argument]) -> None:
    before = states(Path(job[2]))
    for options, line in OTHER_OPTIONS.items():
        assert refused(*job, *options.split()) == [line]
        assert states(Path(job[2])) == before


def test_a_job_file_spells_them_its_own_way(
    job: list[Argument], tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"source: csv\ninputs: [{job[1]}]\noutput: {job[2]}\nseed: 7\nshuffle: false\n"
    )
    ran = recordmill("run", file)
    assert ran.status == 73
    assert "\n  seed: 0, now seed: 7\n  shuffle: true, now shuffle: false\n" in ran.err


def test_inputs(job: list[Argument]) -> None:
    folder = Path(job[1])
    (folder / "a.csv").unlink()
    (folder / "b.csv").write_text("a,b\n1,2\n")
    os.utime(folder / "c.csv", (1, 1))
    for number in range(5):
        (folder / f"d{number}.csv").write_text("a,b\n5,6\n")
    assert refused(*job) == [
        "input files: 5 new (d0.csv, d1.csv, d2.csv and 2 more), 1 gone (a.csv), "
        "1 changed (b.csv), 1 written again with the same size (c.csv)"
    ]


def test_options_and_inputs_of_an_appended_dataset(job: list[Argument]) -> None:
    folder = Path(job[1])
    (folder / "d.csv").write_text("a,b\n5,6\n")
    convert(*map(str, job), "--append")
    assert refused(*job) == ["rows that 1 append added"]
    (folder / "e.csv").write_text("a,b\n5,6\n")
    assert refused(*job, "--seed", 3) == [
        "--seed 0, now --seed 3",
        "input files: 1 new (e.csv)",
    ]


def test_a_declared_schema(job: list[Argument], tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("features:\n  a: {dtype: int64}\n  b: {dtype: int64}\n")
    assert refused(*job, "--schema", schema) == ["the declared schema"]


@pytest.mark.parametrize("damage", [None, b"junk"])
def test_without_its_inventory(job: list[Argument], damage: bytes | None) -> None:
    inventory = Path(job[2]) / "inputs.jsonl.gz"
    if damage is None:
        inventory.unlink()
    else:
        inventory.write_bytes(damage)
    ran = recordmill("convert", *job, "--seed", 1)
    assert "made from other inputs or with other options); replace it with" in ran.err
    convert(*map(str, job), "--seed", "1", "--overwrite")
    assert_whole(Path(job[2]))


def test_the_ways_out(job: list[Argument], tmp_path: Path) -> None:
    assert refused(*job, "--seed", 1)
    convert(*map(str, job[:2]), tmp_path / "other", "--seed", "1")
    convert(*map(str, job), "--seed", "1", "--overwrite")
    assert_whole(tmp_path / "out")


def test_the_same_image_under_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_windows = ImagesSource.read_windows

    def columns_only(
        source: ImagesSource, windows: Sequence[pa.BinaryArray], sink: RangeFindings
    ) -> Iterator[ReferencedRows]:
        assert [len(window) for window in windows] == [0]
        return read_windows(source, windows, sink)

    one, other = sorted((SAMPLES / "images").rglob("*.png"))[:2]
    for split, name, image in (
        ("train", "a.png", one),
        ("train", "b.png", one),
        ("test", "c.png", one),
        ("test", "d.png", other),
    ):
        (tmp_path / "in" / split / name[0]).mkdir(parents=True)
        shutil.copyfile(image, tmp_path / "in" / split / name[0] / name)
    job: list[Argument] = ["convert", "images", tmp_path / "in", tmp_path / "out"]
    ran = recordmill(*job, "--duplicates", "fail")
    assert ran.status == 65
    assert "3 records have the same content as a record of another split" in ran.err
    assert "or use --duplicates report" in ran.err
    assert "The same command would fail again: first fix the error" in ran.err
    assert "Run the same command again" not in ran.err
    assert_unpublished(tmp_path / "out")
    with monkeypatch.context() as patch:  # it resumes, as the message says
        patch.setattr(ImagesSource, "read_windows", columns_only)
        ran = recordmill(*job, "--duplicates", "report")
    assert ran.status == 0, ran.err
    assert "3 records have the same content as a record of another split" in ran.err
    facts = json.loads((tmp_path / "out" / "run.json").read_bytes())
    assert codes_of(facts) == ["duplicates"]
    said = "duplicates: 3 records with the same content as a record in another split"
    assert said in ran.err
    assert report_page(tmp_path / "out").count(said.partition(": ")[2]) == 1
    ran = recordmill("verify", tmp_path / "out", "--duplicates")
    assert ran.status == 1
    assert "3 records have" in " ".join(ran.out.split())
    shutil.rmtree(tmp_path / "in" / "test" / "c")  # the way out
    options = ["--duplicates", "fail", "--overwrite", "--split-from", "1"]
    ran = convert(*job[1:], *options)
    said = "duplicates: no records with the same content as a record in another split"
    assert said in ran.err
    assert said in recordmill("verify", tmp_path / "out", "--duplicates").out
    assert said.partition(": ")[2] in report_page(tmp_path / "out")


def report_page(dataset: Path) -> str:
    """The page of a dataset, for people."""
    page = dataset.with_suffix(".html")
    assert recordmill("report", dataset, "-o", page).status == 0
    return page.read_text()


def test_what_was_not_looked_for_is_not_told(tmp_path: Path) -> None:
    file = write_table(tmp_path / "a", "csv", {"x": [1, 1]})
    ran = convert("csv", file, tmp_path / "out")
    assert "duplicates" not in ran.err + report_page(tmp_path / "out")
    assert "duplicates" not in recordmill("verify", tmp_path / "out").out
    ran = convert("csv", file, tmp_path / "one", "--duplicates", "report")
    assert "duplicates: nothing to compare, because there is only one split" in ran.err


def test_rows_and_appended_rows(tmp_path: Path) -> None:
    """Whole rows are compared; what was appended with what was there, too."""
    job: list[Argument] = [tmp_path / "in", tmp_path / "out"]
    job += ["--split-column", "part", "--append", "--duplicates", "fail"]
    columns = {"x": [1, 1, 2], "y": ["a", "a", "b"], "part": ["train"] * 2 + ["test"]}
    write_table(tmp_path / "in" / "a", "csv", columns)
    convert("csv", *job)
    columns = {"x": [2, 1], "y": ["b", "b"], "part": ["train", "test"]}
    write_table(tmp_path / "in" / "b", "csv", columns)
    ran = recordmill("convert", "csv", *job)
    assert ran.status == 65
    assert "2 records have the same content" in ran.err
    assert "train 2 = test 0" in ran.err
    convert("csv", *job[:-1], "report")
    rows = {
        split: list(open_dataset(str(tmp_path / "out"), split))
        for split in ("train", "test")
    }
    assert rows["train"][2] == rows["test"][0]
    columns = {"x": [1, 2], "y": ["a", "b"], "part": ["test", "train"]}
    write_table(tmp_path / "in" / "a", "csv", columns)
    shutil.rmtree(tmp_path / "in" / "b", ignore_errors=True)
    # What is replaced does not count.
    convert("csv", *job[:4], "--duplicates", "fail", "--overwrite")


def test_contents_in_several_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"x": [*range(50)] * 2, "part": ["train"] * 50 + ["test"] * 50}
    file = write_table(tmp_path / "a", "parquet", columns)
    convert("parquet", file, tmp_path / "out", "--split-column", "part")
    monkeypatch.setattr(diff, "_BUCKET_BYTES", 100)
    ran = recordmill("verify", tmp_path / "out", "--duplicates", "--json")
    (problem,) = json.loads(ran.out)["problems"]
    assert problem["kind"] == "duplicates"
    assert problem["message"].startswith("100 records have the same content")
    assert problem["message"].count("train") == 10


HALVES: list[Argument] = ["--split", "train=0.5", "--split", "test=0.5"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("model") / "iris"
    convert("csv", IRIS, output, *HALVES)
    return output


def test_shards_order_and_compression_do_not_matter(
    tmp_path: Path, model: Path
) -> None:
    how = ["--shards", 3, "--no-shuffle", "--compression", "gzip", *HALVES]
    convert("csv", IRIS, tmp_path / "iris", *how)
    ran = recordmill("diff", model, tmp_path / "iris")
    assert ran.status == 0
    assert "schema: identical" in ran.out
    assert "rows: 150 in both\n" in ran.out
    assert ran.out.endswith("the rows are identical\n")


def test_a_copy_is_the_same_by_its_checksums(tmp_path: Path, model: Path) -> None:
    convert("csv", IRIS, tmp_path / "iris", *HALVES, "--seed", 0)
    ran = recordmill("diff", model, tmp_path / "iris")
    assert "rows: 150 in both (compared by shard checksums)" in ran.out


def test_rows_of_one_alone_are_named(tmp_path: Path, model: Path) -> None:
    lines = IRIS.read_text().splitlines()
    table = tmp_path / IRIS.name
    table.write_text("\n".join([*lines[:-2], "9,9,9,9,setosa"]))
    convert("csv", table, tmp_path / "iris", *HALVES)
    ran = recordmill("diff", model, tmp_path / "iris", "--json")
    assert ran.status == 1
    facts = json.loads(ran.out)
    assert not facts["same"]
    assert facts["both"] + facts["only"][0]["rows"] == 150
    assert [only["rows"] for only in facts["only"]] == [2, 1]
    (found,) = facts["only"][1]["first"]
    split = found["file"].split(".")[0].removeprefix("iris-")
    index = found["record"]
    shown = recordmill(
        *("inspect", tmp_path / "iris", "--split", split, "--index", index, "--json")
    )
    (row,) = json.loads(shown.out)["examples"]
    assert row["features"]["sepal_length_cm"] == 9
    told = recordmill("diff", model, tmp_path / "iris", "--rows", 1)
    assert f"only in {tmp_path / 'iris'}: record {index} of {found['file']}" in told.out
    assert told.out.count("  only in ") == 2
    assert told.out.endswith("the datasets differ\n")


def test_rows_in_another_split(tmp_path: Path, model: Path) -> None:
    convert("csv", IRIS, tmp_path / "iris")
    ran = recordmill("diff", model, tmp_path / "iris")
    assert ran.status == 1
    assert "150 in both, " in ran.out
    assert "of these in another split" in ran.out
    assert "split test: " in ran.out
    assert "| no such split" in ran.out


def test_schemas_and_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,label\n1,x,cat\n2,y,dog\n")
    schemas = {
        "one": "features:\n  a: int64\n  label: {classes: [cat, dog]}\n",
        "two": "features:\n  a: string\n  b: string\n  label: {classes: [dog, cat, owl]}\n",
    }
    for name, text in schemas.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        schema: list[Argument] = ["--schema", tmp_path / f"{name}.yaml"]
        convert("csv", tmp_path / "t.csv", tmp_path / name, "--name", "t", *schema)
    ran = recordmill("diff", tmp_path / "one", tmp_path / "two")
    assert ran.status == 1
    assert "schema: differs" in ran.out
    for line in (
        "feature 'a': stored as changed: was int64_list, is bytes_list",
        "feature 'a': dtype changed: was int64, is string",
        "feature 'b' is new: ",
        "feature 'label': unknown classes: 'owl'",
        "0 in both, 2 only in",
    ):
        assert line in ran.out
    (tmp_path / "two.yaml").write_text("features:\n  a: int64?\n")
    table: list[Argument] = [tmp_path / "t.csv", tmp_path / "few", "--name", "t"]
    convert("csv", *table, "--schema", tmp_path / "two.yaml")
    (tmp_path / "two.yaml").write_text("features:\n  a: int64\n")
    convert(
        "csv", table[0], tmp_path / "all", *table[2:], "--schema", tmp_path / "two.yaml"
    )
    ran = recordmill("diff", tmp_path / "few", tmp_path / "all")
    assert "from the second to the first, feature 'a': is now optional" in ran.out


def test_what_is_no_dataset(tmp_path: Path, model: Path) -> None:
    ran = recordmill("diff", model, tmp_path)
    assert ran.status == 2
    assert f"{tmp_path}: no manifest.json" in ran.err
