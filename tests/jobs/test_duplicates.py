"""Equal content in several splits: told, refused, and found by `verify`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from job_tools import (
    SAMPLES,
    Argument,
    assert_unpublished,
    convert,
    recordmill,
)
from tables_in_formats import write_table

from recordmill import open_dataset
from recordmill.transforms.dataset import split_overlap


def test_the_same_picture_under_two_names(tmp_path: Path) -> None:
    one, other = sorted((SAMPLES / "images").rglob("*.png"))[:2]
    for split, name, picture in (
        ("train", "a.png", one),
        ("train", "b.png", one),
        ("test", "c.png", one),
        ("test", "d.png", other),
    ):
        (tmp_path / "in" / split / name[0]).mkdir(parents=True)
        shutil.copyfile(picture, tmp_path / "in" / split / name[0] / name)
    job: list[Argument] = ["convert", "images", tmp_path / "in", tmp_path / "out"]
    ran = recordmill(*job, "--duplicates", "fail")
    assert ran.status == 65
    assert "3 records hold the same content as one of another split" in ran.err
    assert "or use --duplicates report" in ran.err
    assert_unpublished(tmp_path / "out")
    ran = recordmill(*job, "--duplicates", "report")
    assert ran.status == 0
    assert "3 records hold the same content as one of another split" in ran.err
    facts = json.loads((tmp_path / "out" / "run.json").read_bytes())
    assert "3 records hold" in facts["understood"]["warnings"][0]
    ran = recordmill("verify", tmp_path / "out", "--duplicates")
    assert ran.status == 1
    assert "3 records hold" in " ".join(ran.out.split())
    shutil.rmtree(tmp_path / "in" / "test" / "c")  # the way out
    convert(*job[1:], "--duplicates", "fail", "--overwrite")


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


def test_contents_in_several_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"x": [*range(50)] * 2, "part": ["train"] * 50 + ["test"] * 50}
    file = write_table(tmp_path / "a", "parquet", columns)
    convert("parquet", file, tmp_path / "out", "--split-column", "part")
    monkeypatch.setattr(split_overlap, "_BUCKET_BYTES", 100)
    ran = recordmill("verify", tmp_path / "out", "--duplicates", "--json")
    (problem,) = json.loads(ran.out)["problems"]
    assert problem["kind"] == "duplicates"
    assert problem["message"].startswith("100 records hold the same content")
    assert problem["message"].count("train") == 10
