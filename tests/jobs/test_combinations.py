"""Options of several features in one job: what each of them tells stays true."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from job_tools import SAMPLES, Argument, convert, ints, recordmill

IMAGES = SAMPLES / "images"
TABLE = SAMPLES / "labelled" / "pictures.csv"
SPLITS: list[Argument] = ["--split", "train=0.5", "--split", "test=0.5"]
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
    clash = SPLITS if by != "names" else ["--split", "train=0.5", "--split", "t=0.5"]
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
    assert "--label: part is the column of --split-column, too" in ran.err
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
    assert "; not test, train by the names of files" in ran.out + ran.err
