"""Splits and classes of images by their folders, as the command makes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_tools import (
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
)
from pixel_zoo import IMAGES

JPEG, _ = IMAGES["rgb.jpg"]
IMAGENET = ("train/n01/1.JPEG", "train/n02/2.JPEG", "val/n01/3.JPEG", "val/n02/4.JPEG")


def write(folder: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(JPEG + bytes([number]))  # all differ
    return folder


def classes(output: Path) -> list[str]:
    return (output / "label.labels.txt").read_text().split()


def labels(output: Path) -> dict[str, dict[str, str]]:
    """The class of each file name, for each split."""
    found: dict[str, dict[str, str]] = {}
    for split in manifest_of(output)["splits"]:
        found[split] = {
            example.features.feature["filename"].bytes_list.value[0].decode(): classes(
                output
            )[example.features.feature["label"].int64_list.value[0]]
            for example in examples_of(output, split)
        }
    return found


def refused(*arguments: Argument) -> str:
    ran = recordmill("convert", "images", *arguments)
    assert ran.status != 0
    return ran.err


def understood(ran: Ran) -> dict[str, object]:
    told: dict[str, object] = json.loads(ran.out)["understood"]
    return told


@pytest.mark.parametrize("exchange", ["reference", "scratch", "engine"])
def test_splits_above_classes(tmp_path: Path, exchange: str) -> None:
    data = write(tmp_path / "in", *IMAGENET)
    ran = convert("images", data, tmp_path / "out", "--exchange", exchange, "--json")
    assert labels(tmp_path / "out") == {
        "train": {"train/n01/1.JPEG": "n01", "train/n02/2.JPEG": "n02"},
        "val": {"val/n01/3.JPEG": "n01", "val/n02/4.JPEG": "n02"},
    }
    assert understood(ran)["facts"] == {
        "splits by folder": "train 2, val 2",
        "classes": "2 (n01 2, n02 2)",
        "images": ".jpeg 4",
        "readers get": "decoded images (TFDS)",
    }
    assert_whole(tmp_path / "out")


def test_the_split_keeps_its_own_name(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "Training/a/1.jpg", "Testing/b/2.jpg")
    convert("images", data, tmp_path / "out")
    assert {split: len(rows) for split, rows in labels(tmp_path / "out").items()} == {
        "Testing": 1,
        "Training": 1,
    }


def test_splits_of_the_job_divide_the_train_folder(tmp_path: Path) -> None:
    names = [f"{split}/a/{n}.jpg" for split in ("train", "test") for n in range(30)]
    data = write(tmp_path / "in", *names)
    split = ("--split", "train=1/2", "--split", "val=1/2")
    convert("images", data, tmp_path / "out", *split)
    found = labels(tmp_path / "out")
    assert len(found["test"]) == 30
    assert len(found["train"]) + len(found["val"]) == 30
    assert all(path.startswith("train/") for path in {**found["train"], **found["val"]})
    assert min(map(len, found.values())) > 5


def test_splits_that_contradict_the_folders(tmp_path: Path) -> None:
    data = write(tmp_path / "in", *IMAGENET)
    split = ("--split", "train=1/2", "--split", "val=1/2")
    told = refused(data, tmp_path / "out", *split)
    assert "the input has a split 'val' by itself, and the job has one of that" in told
    assert "or use --split-from none" in told
    data = write(tmp_path / "in2", "val/a/1.jpg", "test/a/2.jpg")
    told = refused(data, tmp_path / "out", "--split", "train=1/2", "--split", "x=1/2")
    assert "`--split` has nothing to divide" in told.replace(
        "--split has", "`--split` has"
    )
    convert("images", data, tmp_path / "out", "--split-from", "none")  # the way out
    assert classes(tmp_path / "out") == ["test", "val"]


def test_flat_split_folders_are_classes_with_a_warning(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "train/1.jpg", "test/2.jpg")
    ran = convert("images", data, tmp_path / "out")
    assert "warning: classes named like splits: 'test', 'train'" in ran.out + ran.err
    assert classes(tmp_path / "out") == ["test", "train"]
    way_out = ("--split-from", 1, "--label-from", 0)
    convert("images", data, tmp_path / "out2", *way_out)
    assert labels(tmp_path / "out2") == {
        "test": {"test/2.jpg": "in"},
        "train": {"train/1.jpg": "in"},
    }


def test_images_without_class_folders(tmp_path: Path) -> None:
    data = write(tmp_path / "pets", "1.jpg", "2.jpg")
    told = refused(data, tmp_path / "out")
    assert "1.jpg: is not in the folder of a class" in told
    assert "use --label-from 0 to make one class of each input" in told
    convert("images", data, tmp_path / "out", "--label-from", 0)
    assert classes(tmp_path / "out") == ["pets"]


def test_classes_are_counted_from_each_input(tmp_path: Path) -> None:
    write(tmp_path / "in", "2025/cat/1.jpg", "2025/dog/2.jpg", "2026/cat/3.jpg")
    inputs = [tmp_path / "in" / year for year in ("2025", "2026")]
    convert("images", *inputs, tmp_path / "out", "--name", "pets")
    assert labels(tmp_path / "out")["train"] == {
        "2025/cat/1.jpg": "cat",
        "2025/dog/2.jpg": "dog",
        "2026/cat/3.jpg": "cat",
    }
    convert("images", f"{tmp_path}/in/20*", tmp_path / "glob", "--name", "pets")
    assert contents(tmp_path / "glob") == contents(tmp_path / "out")
    # The same files in another reading are another dataset.
    told = refused(tmp_path / "in", tmp_path / "out", "--name", "pets")
    assert "holds another dataset" in told
    convert("images", tmp_path / "in", tmp_path / "years", "--name", "pets")
    told = refused(*inputs, tmp_path / "years", "--name", "pets")
    assert "which folders are read as splits and as classes" in told


def test_folders_of_classes_as_inputs(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "cat/1.jpg", "cat/kitten/2.jpg", "dog/3.jpg")
    name = ("--name", "pets")
    convert("images", data, tmp_path / "out", *name)
    convert("images", data / "cat", data / "dog", tmp_path / "out2", *name)
    assert contents(tmp_path / "out") == contents(tmp_path / "out2")


def test_more_in_splits_is_appended(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "train/a/1.jpg", "train/b/2.jpg", "test/a/3.jpg")
    job = (data, tmp_path / "out", "--append")
    convert("images", *job)
    write(data, "test/b/5.jpg", "val/b/6.jpg")  # more, and another split
    convert("images", *job)
    found = labels(tmp_path / "out")
    assert found["val"] == {"val/b/6.jpg": "b"}
    assert found["test"] == {"test/a/3.jpg": "a", "test/b/5.jpg": "b"}
    assert sorted(ints(tmp_path / "out", "label", "train")) == [0, 1]
    write(data, "more/a/7.jpg")
    told = refused(*job)
    assert "3.jpg: is in class 'a' of split 'test' in the dataset, but with" in told
    (data / "more" / "a" / "7.jpg").unlink()
    assert recordmill("verify", tmp_path / "out").status == 0


def test_junk_does_not_make_another_dataset(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "cat/1.jpg", "dog/2.jpg")
    convert("images", data, tmp_path / "out")
    write(data, "cat/Thumbs.db", "dog/.DS_Store", "__MACOSX/cat/1.jpg", "desktop.ini")
    ran = convert("images", data, tmp_path / "out", "--json")
    assert json.loads(ran.out)["status"] == "unchanged"


def test_the_plan_tells_what_is_passed_over(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "cat/1.jpg", "dog/2.jpg", "dog/3.jfif")
    (data / "dog" / "notes.txt").write_text("text")
    ran = recordmill("convert", "images", data, tmp_path / "out", "--plan")
    assert "classes: 2 (cat 1, dog 2)" in ran.out
    assert (
        "passed over: 1 file (.txt, no image in it), such as dog/notes.txt" in ran.out
    )
    convert("images", data, tmp_path / "out")
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["understood"]["passed_over"] == [
        {"reason": ".txt, no image in it", "files": 1, "example": "dog/notes.txt"}
    ]
    assert len(labels(tmp_path / "out")["train"]) == 3
