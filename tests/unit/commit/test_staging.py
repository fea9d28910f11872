"""What may stand in the output folder, and what is done with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    assert_unpublished,
    assert_whole,
    contents,
    convert,
    recordmill,
    shards_of,
    states,
)
from same_dataset import dataset_of


@pytest.fixture
def dataset(tmp_path: Path, iris: Path) -> Path:
    """A dataset of our own, of the iris table in two shards."""
    return shutil.copytree(iris, tmp_path / "iris")


def test_changed_input_is_another_job(dataset: Path, tmp_path: Path) -> None:
    changed = tmp_path / "iris.csv"
    changed.write_text(IRIS.read_text().replace("5.1", "5.2", 1))
    ran = recordmill("convert", "csv", changed, dataset, "--shards", 2)
    assert ran.status == 73
    assert "contains another dataset" in ran.err


def test_overwrite_leaves_no_old_file(dataset: Path, tmp_path: Path) -> None:
    own = dataset / "notes.txt"  # neither ours nor in the way
    own.write_text("mine")
    options = ["--shards", 3, "--compression", "gzip"]
    convert("csv", IRIS, dataset, *options, "--overwrite", "--grace", "0")
    assert_whole(dataset)
    assert not (dataset / ".recordmill").exists()
    convert("csv", IRIS, tmp_path / "fresh" / "iris", *options)
    assert own.read_text() == "mine"
    own.unlink()
    assert dataset_of(dataset) == dataset_of(tmp_path / "fresh" / "iris")


def test_overwrite_takes_old_rejects_away(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n3\n")
    output = tmp_path / "out"
    convert("csv", wrong, output, "--max-rejects", "1")
    assert [file.name for file in (output / "rejects").iterdir()]
    convert("csv", IRIS, output, "--overwrite")
    assert [file.name for file in (output / "rejects").iterdir()]
    convert("csv", IRIS, output)
    assert not (output / "rejects").exists()
    assert_whole(output)


def test_missing_shard_is_an_error(dataset: Path) -> None:
    shard = shards_of(dataset)[1]
    shard.unlink()
    before = states(dataset)
    ran = recordmill("convert", "csv", IRIS, dataset, "--shards", 2)
    assert ran.status == 73
    assert f"Error: {shard}: is missing, the manifest records" in ran.err
    assert states(dataset) == before


def test_damaged_manifest_is_an_error(dataset: Path) -> None:
    (dataset / "manifest.json").write_text("{}")
    before = states(dataset)
    for options in ([], ["--overwrite"]):
        ran = recordmill("convert", "csv", IRIS, dataset, *options)
        assert ran.status == 73
        assert "manifest.json: not a recordmill manifest" in ran.err
    assert states(dataset) == before


@pytest.mark.parametrize(
    ("files", "arguments", "status", "message"),
    [
        (
            "out/thesis.txt",
            [IRIS, "./out"],
            73,
            "is not empty (thesis.txt) and does not",
        ),
        ("out", [IRIS, "./out"], 73, "is a file; expected a folder"),
        ("file", [IRIS, "./file/out"], 73, "file'"),
        (
            "file",
            [IRIS, "./out", "--scratch", "./file/scratch"],
            73,
            "cannot create the folder: File exists",
        ),
        (
            "out/iris.csv",
            ["./out/iris.csv", "./out"],
            2,
            "is an input, but is inside the output folder",
        ),
        ("", ["./nothing", "./out"], 65, "nothing: no such file or folder"),
        ("", ["./*.csv", "./out"], 65, "no file matches"),
        ("in/", ["./in", "./out"], 65, "in: the folder contains no files"),
        ("empty.csv", ["./empty.csv", "./out"], 65, "every input file is empty"),
        (
            "header.csv",
            ["./header.csv", "./out"],
            65,
            "no records to write: 0 rows read, 0 rejected",
        ),
        (
            "",
            [IRIS, "./out", "--split-by", "colour"],
            2,
            "--split-by colour: no such column; the input has sepal_len",
        ),
        (
            "",
            [IRIS, "./out", "--scratch", "gs://bucket/scratch"],
            2,
            "--scratch gs://bucket/scratch: expected a local folder",
        ),
    ],
)
def test_refused(
    tmp_path: Path, files: str, arguments: list[Argument], status: int, message: str
) -> None:
    """Nothing is published, and files that were there before stay as they are."""
    path = tmp_path / files
    texts = {"header.csv": "a,b\n", "empty.csv": "", "iris.csv": IRIS.read_text()}
    if files.endswith("/"):
        path.mkdir()
    elif files:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts.get(path.name, "years of work"))
    before = contents(tmp_path)
    own = [f"{tmp_path}/{a}" if str(a)[:2] == "./" else a for a in arguments]
    ran = recordmill("convert", "csv", *own)
    assert (ran.status, ran.out) == (status, "")
    assert message in ran.err
    after = contents(tmp_path)
    assert before.items() <= after.items()
    assert all(".recordmill/" in name for name in after.keys() - before.keys())


@pytest.mark.parametrize(
    ("source", "inputs", "message"),
    [
        ("images", IRIS.parent, "iris.csv: is text with delimiters, not images"),
        ("images", SAMPLES / "images" / "animals", "is not in the folder of a class"),
        ("cifar", IRIS.parent, "use `recordmill convert csv`"),
        ("csv", SAMPLES / "cifar", "data_batch_1.bin: is binary data, not csv"),
    ],
)
def test_other_format(tmp_path: Path, source: str, inputs: Path, message: str) -> None:
    ran = recordmill("convert", source, inputs, tmp_path / "out")
    assert ran.status == 65
    assert message in ran.err
    assert_unpublished(tmp_path / "out")
