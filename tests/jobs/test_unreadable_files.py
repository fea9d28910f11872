"""Broken links and names that are not UTF-8: rejects, errors, or passed over."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from job_tools import (
    GOLDEN,
    Argument,
    assert_whole,
    convert,
    ints,
    manifest_of,
    recordmill,
)
from pixel_zoo import IMAGES

JPEG, _ = IMAGES["rgb.jpg"]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Three images; a broken link and a name that is not UTF-8 beside them."""
    folder = tmp_path / "pets"
    for name in ("cat/1.jpg", "cat/2.jpg", "dog/3.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(JPEG)
    (folder / "cat" / "gone.jpg").symlink_to("nowhere.jpg")
    Path(os.fsdecode(os.fsencode(folder) + b"/dog/caf\xe9.jpg")).write_bytes(JPEG)
    return folder


@pytest.mark.parametrize("exchange", ["reference", "scratch", "engine"])
def test_images_become_rejects(tmp_path: Path, pets: Path, exchange: str) -> None:
    job: list[Argument] = [pets, tmp_path / "out", "--exchange", exchange]
    ran = recordmill("convert", "images", *job)
    assert ran.status != 0
    assert "2 of 5 rows rejected (limit 0)" in ran.err
    convert("images", *job, "--max-rejects", 2)
    assert manifest_of(tmp_path / "out")["rows_rejected"] == 2
    assert sorted(ints(tmp_path / "out", "label")) == [0, 0, 1]
    told = recordmill("rejects", tmp_path / "out").out
    assert "a link to nothing (nowhere.jpg is missing)" in told
    assert "the file's name is not UTF-8" in told
    assert "cat/gone.jpg" in told
    assert_whole(tmp_path / "out")


def test_appended_and_resumed(tmp_path: Path, pets: Path) -> None:
    job: list[Argument] = [pets, tmp_path / "out", "--append", "--max-rejects", 2]
    convert("images", *job)
    (pets / "dog" / "4.jpg").write_bytes(JPEG)
    convert("images", *job)
    ran = convert("images", *job, "--json")
    assert json.loads(ran.out)["status"] == "unchanged"
    assert manifest_of(tmp_path / "out")["rows_read"] == 6


def test_what_is_no_image_is_passed_over(tmp_path: Path, pets: Path) -> None:
    (pets / "cat" / "gone.jpg").rename(pets / "notes.txt")
    Path(os.fsdecode(os.fsencode(pets) + b"/dog/caf\xe9.jpg")).rename(
        pets / "dog/5.jpg"
    )
    ran = convert("images", pets, tmp_path / "out", "--json")
    assert json.loads(ran.out)["understood"]["passed_over"] == [
        {
            "reason": "a link to nothing, not named as an image",
            "files": 1,
            "example": "notes.txt",
        }
    ]


@pytest.mark.parametrize(
    ("link", "is_input"),
    [("readme.html", False), ("data_batch_2.bin", True), ("batches.meta.txt", True)],
)
def test_cifar(tmp_path: Path, link: str, is_input: bool) -> None:
    (tmp_path / "in").mkdir()
    data = (GOLDEN / "cifar10.bin").read_bytes()
    (tmp_path / "in" / "data_batch_1.bin").write_bytes(data)
    (tmp_path / "in" / link).symlink_to("nowhere")
    ran = recordmill("convert", "cifar", tmp_path / "in", tmp_path / "out")
    assert (ran.status != 0) is is_input
    if is_input:
        assert f"{link}: a link to nothing (nowhere is missing)" in ran.err
    else:
        assert_whole(tmp_path / "out")


def test_csv_takes_every_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a\n1\n")
    (tmp_path / "in" / "b.csv").symlink_to("nowhere")
    ran = recordmill("convert", "csv", tmp_path / "in", tmp_path / "out")
    assert ran.status != 0
    assert "b.csv: a link to nothing (nowhere is missing)" in ran.err


def test_pipes_are_never_opened(tmp_path: Path, pets: Path) -> None:
    shutil.rmtree(pets / "dog")
    (pets / "cat" / "gone.jpg").unlink()
    os.mkfifo(pets / "cat" / "3.jpg")
    os.mkfifo(pets / "notes")
    job: list[Argument] = [pets, tmp_path / "out"]
    ran = convert("images", *job, "--max-rejects", 1, "--json")
    assert json.loads(ran.out)["understood"]["passed_over"] == [
        {"reason": "a pipe, not named as an image", "files": 1, "example": "notes"}
    ]
    told = recordmill("rejects", tmp_path / "out").out
    assert "a pipe (not a regular file: move it out of the input)" in told
    convert("images", *job, "--max-rejects", 1)
    (pets / "cat" / "3.jpg").rename(tmp_path / "3.jpg")  # the way out
    convert("images", *job, "--overwrite")


def test_pipes_beside_tables(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("a\nb.csv\n")
    os.mkfifo(folder / "b.csv")
    for arguments in (
        ["convert", "csv", folder, tmp_path / "out"],
        ["schema", "infer", "csv", folder],
    ):
        ran = recordmill(*arguments)
        assert ran.status == 65
        assert f"{folder}/b.csv: a pipe (not a regular file" in ran.err
    for arguments in (
        ["convert", "csv", folder / "b.csv", tmp_path / "out"],
        ["schema", "infer", "csv", folder / "b.csv"],
    ):
        ran = recordmill(*arguments)
        assert ran.status == 65
        assert f"{folder}/b.csv: is a pipe, expected a file or a folder" in ran.err
    schema = tmp_path / "schema.yaml"
    schema.write_text("features:\n  a: {dtype: bytes, bytes_from: path}\n")
    job: list[Argument] = [folder / "a.csv", tmp_path / "out", "--schema", schema]
    for more in ([], ["--files-root", folder]):
        ran = recordmill("convert", "csv", *job, *more)
        assert "'b.csv' is not a file" in ran.err
    ran = recordmill("convert", "csv", *job, "--files-root", folder / "b.csv")
    assert f"--files-root: {folder}/b.csv: is a pipe" in ran.err
    (folder / "b.csv").rename(tmp_path / "b.csv")  # the way out
    convert("csv", folder, tmp_path / "out")
