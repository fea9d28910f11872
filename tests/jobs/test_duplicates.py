"""Equal content in several splits: told, refused, and found by `verify`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from job_tools import SAMPLES, Argument, assert_unpublished, convert, recordmill
from tables_in_formats import write_table

from recordmill import open_dataset
from recordmill.transforms.dataset import diff
from recordmill.transforms.sources.base import ReferencedRows, RowSink
from recordmill.transforms.sources.images.source import ImagesSource


def test_the_same_image_under_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_references = ImagesSource.read_references

    def columns_only(
        source: ImagesSource, references: pa.BinaryArray, sink: RowSink
    ) -> ReferencedRows:
        assert not len(references)
        return read_references(source, references, sink)

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
    assert "3 records hold the same content as one of another split" in ran.err
    assert "or use --duplicates report" in ran.err
    assert (
        "The same command would fail again: first change what the error names"
        in ran.err
    )
    assert "Run the same command again" not in ran.err
    assert_unpublished(tmp_path / "out")
    with monkeypatch.context() as patch:  # it resumes, as the message says
        patch.setattr(ImagesSource, "read_references", columns_only)
        ran = recordmill(*job, "--duplicates", "report")
    assert ran.status == 0, ran.err
    assert "3 records hold the same content as one of another split" in ran.err
    facts = json.loads((tmp_path / "out" / "run.json").read_bytes())
    assert "3 records hold" in facts["understood"]["warnings"][0]
    said = "duplicates: 3 records with the content of one in another split"
    assert said in ran.err
    assert report_page(tmp_path / "out").count(said.partition(": ")[2]) == 1
    ran = recordmill("verify", tmp_path / "out", "--duplicates")
    assert ran.status == 1
    assert "3 records hold" in " ".join(ran.out.split())
    shutil.rmtree(tmp_path / "in" / "test" / "c")  # the way out
    ran = convert(*job[1:], "--duplicates", "fail", "--overwrite")
    said = "duplicates: no records with the content of one in another split"
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
    assert "duplicates: nothing to compare, as there is no second split" in ran.err


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
    assert "2 records hold the same content" in ran.err
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
    assert problem["message"].startswith("100 records hold the same content")
    assert problem["message"].count("train") == 10
