"""Tables beside images and audio that no option names are asked about, not passed over."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from job_tools import manifest_of, recordmill
from pixel_zoo import IMAGES
from sounds import sound

from recordmill import open_dataset

pytestmark = pytest.mark.usefixtures("without_beam")

JPEG, _ = IMAGES["rgb.jpg"]


class Tree(NamedTuple):
    """Files, tables among them, and what is found in the dataset by way of the table."""

    source: str
    files: str  # their names
    tables: Mapping[str, str]
    named: str  # how the error names the table, and its columns
    expected: dict[str, object]  # the text or the class of each file, by its name
    feature: str = "label"
    unlisted: str = ""  # files that have no row


def rows(head: str, *lines: str) -> str:
    return "".join(f"{line}\n" for line in (head, *lines))


def json_lines(*captions: str) -> str:
    lines = ({"file_name": f"{i}.jpg", "text": each} for i, each in enumerate(captions))
    return "".join(f"{json.dumps(line)}\n" for line in lines)


TREES = {
    "Hugging Face's imagefolder": Tree(
        "images",
        "0.jpg 1.jpg",
        {"metadata.csv": rows("file_name,label", "0.jpg,cat", "1.jpg,dog")},
        "--label-table metadata.csv;",
        {"0.jpg": "cat", "1.jpg": "dog"},
    ),
    "its folders of splits, with captions": Tree(
        "images",
        "train/0.jpg train/1.jpg test/0.jpg",
        {
            "train/metadata.jsonl": json_lines("a cat", "a dog"),
            "test/metadata.jsonl": json_lines("an owl"),
        },
        "--label-table '**/metadata.jsonl' with --label-column none (",
        {"train/0.jpg": "a cat", "train/1.jpg": "a dog", "test/0.jpg": "an owl"},
        "text",
    ),
    "its audiofolder": Tree(
        "audio",
        "data/0.wav data/1.wav",
        {"metadata.csv": rows("file_name,said", "data/0.wav,one", "data/1.wav,two")},
        "--label-table metadata.csv with --label-column none (",
        {"data/0.wav": "one", "data/1.wav": "two"},
        "said",
    ),
    "Kaggle's train.csv": Tree(
        "images",
        "train/0a.jpg train/0b.jpg test/0c.jpg",
        {
            "sample_submission.csv": rows("id,breed", "0c,pug"),
            "train.csv": rows("id,breed", "0a,pug", "0b,husky"),
        },
        "--label-table train.csv with --label-column none (or that of the labels, of 'breed')",
        {"train/0a.jpg": "pug", "train/0b.jpg": "husky"},
        "breed",
        unlisted="test/0c.jpg",
    ),
    "an import file of Vertex AI": Tree(
        "images",
        "images/0.jpg images/1.jpg",
        {
            "import.csv": rows(
                "TRAIN,gs://b/images/0.jpg,cat", "TEST,gs://b/images/1.jpg,dog"
            )
        },
        "--label-table import.csv;",
        {"images/0.jpg": "cat", "images/1.jpg": "dog"},
    ),
    "UrbanSound8K": Tree(
        "audio",
        "audio/fold1/7-3-0-0.wav audio/fold2/9-2-0-0.wav",
        {
            "metadata/UrbanSound8K.csv": rows(
                "slice_file_name,fsID,fold,classID,class",
                "7-3-0-0.wav,7,1,3,dog_bark",
                "9-2-0-0.wav,9,2,2,siren",
            )
        },
        "--label-table metadata/UrbanSound8K.csv with --path-column slice_file_name;",
        {"audio/fold1/7-3-0-0.wav": "dog_bark", "audio/fold2/9-2-0-0.wav": "siren"},
    ),
    "ESC-50": Tree(
        "audio",
        "audio/1-0-A-0.wav audio/2-0-A-1.wav",
        {
            "meta/esc50.csv": rows(
                "filename,fold,target,category",
                "1-0-A-0.wav,1,0,dog",
                "2-0-A-1.wav,2,1,rain",
            )
        },
        "--label-table meta/esc50.csv;",
        {"audio/1-0-A-0.wav": "dog", "audio/2-0-A-1.wav": "rain"},
    ),
    "Common Voice": Tree(
        "audio",
        "clips/a_1.mp3 clips/a_2.mp3",
        {
            "test.tsv": rows("client_id\tpath\tsentence", "x\ta_2.mp3\tTwo."),
            "train.tsv": rows("client_id\tpath\tsentence", "x\ta_1.mp3\tOne."),
            "validated.tsv": rows(
                "client_id\tpath\tsentence", "x\ta_1.mp3\tOne.", "x\ta_2.mp3\tTwo."
            ),
        },
        "--label-table train=train.tsv,test=test.tsv with --label-column none (",
        {"clips/a_1.mp3": "One.", "clips/a_2.mp3": "Two."},
        "sentence",
    ),
    "a name that a shell and options read otherwise": Tree(
        "images",
        "a=1/0.jpg a=1/1.jpg",
        {"a=1/my, table.csv": rows("a file,label", "0.jpg,cat", "1.jpg,dog")},
        "--label-table 'a?1/my? table.csv' with --path-column 'a file';",
        {"a=1/0.jpg": "cat", "a=1/1.jpg": "dog"},
    ),
}


def write(folder: Path, tree: Tree) -> None:
    for number, name in enumerate(tree.files.split()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = "layer3.mp3" if name.endswith(".mp3") else "16.wav"
        path.write_bytes(
            JPEG + bytes([number])
            if tree.source == "images"
            else sound(kind, 2000 + number)
        )
    for name, text in tree.tables.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def found_in(out: Path, feature: str) -> dict[str, object]:
    rows = {
        row["filename"]: row[feature]
        for split in manifest_of(out)["splits"]
        for row in open_dataset(str(out), split)
    }
    if feature != "label":
        return rows
    names = (out / "label.labels.txt").read_text().split()
    return {name: names[label] for name, label in rows.items()}


def way_out(message: str, option: str) -> list[str]:
    """Returns an option that a message names, and those "with" it, as a shell reads them."""
    found = re.search(
        rf"{option} ('[^']+'|[^ ;]+)( with --\S+ ('[^']+'|[^ ;]+))*", message
    )
    assert found
    return shlex.split(found[0].replace(" with ", " "))


@pytest.mark.parametrize("case", TREES)
def test_a_table_that_names_the_files_is_asked_about(tmp_path: Path, case: str) -> None:
    tree = TREES[case]
    write(tmp_path / "in", tree)
    job = ("convert", tree.source, tmp_path / "in", tmp_path / "out")
    ran = recordmill(*job)
    assert ran.status == 65
    assert not (tmp_path / "out").exists()
    assert f"use {tree.named}" in ran.err

    options = way_out(ran.err, "--label-table")
    if tree.unlisted:
        options += way_out(ran.err, "--unlisted")
    assert recordmill(*job, *options).status == 0
    assert found_in(tmp_path / "out", tree.feature) == tree.expected

    for option in ("--label-from parent", "--label-from none"):
        assert option in ran.err
        told = recordmill(*job, *option.split(), "--overwrite")
        assert told.status == 0, told.err
    named = [*tree.expected, *tree.unlisted.split()]
    assert found_in(tmp_path / "out", "filename").keys() == {*named}
    left_out = recordmill(*job, *way_out(ran.err, "--exclude"), "--overwrite")
    assert "names this table" not in left_out.err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "prices.csv",
            rows("id,price,sold_on", "7,1.5,2024-05-01", "8,2.5,2024-05-02"),
        ),
        ("classes.csv", rows("id,name", "0,cat", "1,dog")),  # a label map
        ("class_codes.csv", rows("class_id,class_name", "0,cat", "1,dog")),
        ("empty.csv", ""),
        ("broken.jsonl", '{"file_name": "cat/0.jpg"\n'),
        ("notes.tsv", 'a\tb\n"c'),
    ],
)
def test_other_tables_are_passed_over(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path / "in", Tree("images", "cat/0.jpg dog/1.jpg", {name: text}, "", {}))
    ran = recordmill("convert", "images", tmp_path / "in", tmp_path / "out")
    assert ran.status == 0
    assert f"), such as {name}" in ran.err  # skipped
    assert found_in(tmp_path / "out", "label") == {
        "cat/0.jpg": "cat",
        "dog/1.jpg": "dog",
    }


def test_a_table_longer_than_its_first_rows(tmp_path: Path) -> None:
    """The row in which the first bytes end is not whole."""
    lines = [f'0.jpg,"{"x" * 700}"', *[f'{n}.jpg,"{"y" * 997}"' for n in range(1, 40)]]
    table = {"metadata.csv": rows("file_name,said", *lines)}
    write(tmp_path / "in", Tree("images", "0.jpg 1.jpg", table, "", {}))
    ran = recordmill("convert", "images", tmp_path / "in", tmp_path / "out")
    assert "column 'file_name' names images, such as '0.jpg'" in ran.err


def test_an_append_keeps_to_what_the_dataset_has(tmp_path: Path) -> None:
    """Its folders are its classes, whatever lies beside them now."""
    given, job = tmp_path / "in", ("images", tmp_path / "in", tmp_path / "out")
    write(given, Tree("images", "cat/0.jpg dog/1.jpg", {}, "", {}))
    assert recordmill("convert", *job).status == 0
    table = {"metadata.csv": rows("file_name,label", "cat/0.jpg,a", "cat/2.jpg,b")}
    write(given, Tree("images", "cat/0.jpg dog/1.jpg cat/2.jpg", table, "", {}))
    ran = recordmill("convert", *job, "--append")
    assert ran.status == 0, ran.err
    assert found_in(tmp_path / "out", "label")["cat/2.jpg"] == "cat"


def test_boxes_of_an_imagefolder_are_left_out_and_told(tmp_path: Path) -> None:
    """Their name is that of boxes of COCO, which are no pixels; renamed they are kept."""
    boxes = [[[1, 2, 3, 4.5]], [[1, 2, 3, 4.5], [5, 6, 7, 8]]]

    def table(name: str) -> str:
        lines = (
            {
                "file_name": f"{at}.jpg",
                name: {"bbox": each, "categories": [0] * len(each)},
            }
            for at, each in enumerate(boxes)
        )
        return "".join(f"{json.dumps(line)}\n" for line in lines)

    tables = {"metadata.jsonl": table("objects")}
    write(tmp_path / "in", Tree("images", "0.jpg 1.jpg", tables, "", {}))
    job = ("convert", "images", tmp_path / "in", tmp_path / "out")
    options = way_out(recordmill(*job).err, "--label-table")
    ran = recordmill(*job, *options)
    assert ran.status == 0
    assert "column 'objects/bbox' of metadata.jsonl is left out" in ran.err
    assert "Rename the column to keep it [reserved-column]" in ran.err
    assert found_in(tmp_path / "out", "objects/categories").keys() == {"0.jpg", "1.jpg"}
    (tmp_path / "in/metadata.jsonl").write_text(table("found"))
    assert recordmill(*job, *options, "--overwrite").status == 0
    kept = found_in(tmp_path / "out", "found/bbox")
    assert [[*map(list, kept[f"{at}.jpg"])] for at in range(2)] == boxes
