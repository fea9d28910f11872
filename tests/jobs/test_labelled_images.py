"""Images whose labels and splits stand in folders, tables, names or lists."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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

from recordmill import open_dataset
from recordmill.transforms.sources.images import annotations as finish_notes
from recordmill.transforms.sources.images import tables as label_tables

pytestmark = pytest.mark.usefixtures("without_beam")

JPEG, _ = IMAGES["rgb.jpg"]
TABLE = (
    "file,label,split,age,note\n"
    "0.jpg,cat,train,1,one\n"
    "1.jpg,dog,test,2,two\n"
    "2.jpg,cat,train,3,\n"
    "3.jpg,dog,train,4,four\n"
)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four images in one folder, and their table beside it."""
    monkeypatch.chdir(tmp_path)
    add_images(tmp_path / "photos", range(4))
    (tmp_path / "photos/labels.csv").write_text(TABLE)
    return tmp_path / "photos"


def images(*arguments: Argument) -> Ran:
    return recordmill("convert", "images", *arguments)


def converted(photos: Path, *options: Argument) -> Ran:
    """Converts photos to the folder out beside them."""
    ran = images(photos, photos.parent / "out", *options)
    assert ran.status == 0, ran.err
    return ran


def refused_by(photos: Path, *options: Argument) -> Ran:
    ran = images(photos, photos.parent / "out", *options)
    assert ran.status != 0
    return ran


def add_images(folder: Path, numbers: Iterable[int]) -> None:
    folder.mkdir(exist_ok=True)
    for number in numbers:
        data = JPEG + bytes([number])  # behind the image's end: all differ
        (folder / f"{number}.jpg").write_bytes(data)


def kept(folder: Path) -> dict[str, str]:
    """All files; those of rejects are named after the exchange."""
    found = contents(folder)
    return {
        "rejects" if name.startswith("rejects/") else name: digest
        for name, digest in found.items()
    }


def rows_of(folder: Path, *names: str) -> dict[str, tuple[Any, ...]]:
    """The named features by the name of the image's file."""
    return {
        Path(row["filename"]).name: tuple(row.get(name) for name in names)
        for split in splits_of(folder)
        for row in open_dataset(str(folder), split)
    }


def splits_of(folder: Path) -> dict[str, set[str]]:
    found = json.loads((folder / "manifest.json").read_text())["splits"]
    return {
        name: {
            Path(e.features.feature["filename"].bytes_list.value[0].decode()).name
            for e in examples_of(folder, name)
        }
        for name in found
    }


def test_a_table_gives_labels_splits_and_features(photos: Path) -> None:
    out = photos.parent / "out"
    ran = converted(photos, "--label-table", "labels.csv")
    assert_whole(out)
    assert (out / "label.labels.txt").read_text() == "cat\ndog\n"
    assert rows_of(out, "label", "age", "note") == {
        "0.jpg": (0, 1, "one"),
        "1.jpg": (1, 2, "two"),
        "2.jpg": (0, 3, None),
        "3.jpg": (1, 4, "four"),
    }
    assert splits_of(out) == {"train": {"0.jpg", "2.jpg", "3.jpg"}, "test": {"1.jpg"}}
    told = ran.err + ran.out
    assert "labels in column 'label'" in told
    assert "paths in column 'file'" in told
    assert "by column 'split'" in told
    assert "age int64, note string" in told
    assert "no image in it" not in told  # the table is not passed over


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_every_exchange_gives_the_same_bytes(photos: Path, exchange: str) -> None:
    with (photos / "labels.csv").open("a") as table:
        table.write("4.jpg,cat,train,5,no such image\n")
    limit = ("--label-table", "labels.csv", "--max-rejects", "1", "--name", "photos")
    one, other = photos.parent / "reference", photos.parent / exchange
    assert images(photos, one, "--exchange", "reference", *limit).status == 0
    assert images(photos, other, "--exchange", exchange, *limit).status == 0
    assert kept(one) == kept(other)


def test_what_no_row_and_no_image_stands_for_is_a_reject(photos: Path) -> None:
    (photos / "labels.csv").write_text(
        "path,class\n0.jpg,cat\n1.jpg,\n9.jpg,dog\n2.jpg,dog\n2.jpg,cat\n5.jpg\n"
    )
    out = photos.parent / "out"
    converted(photos, "--label-table", "labels.csv", "--max-rejects", "9")
    assert rows_of(out, "label") == {"0.jpg": (0,)}
    rejects = [
        json.loads(line)
        for file in (out / "rejects").iterdir()
        for line in file.read_text().splitlines()
    ]
    found = {(each["uri"], each["reason"].partition(":")[0]) for each in rejects}
    assert found == {
        ("1.jpg", "its row of labels.csv has no label"),
        ("2.jpg", "2 rows of labels.csv name it, expected one"),
        ("3.jpg", "no row of labels.csv names it"),
        ("labels.csv", "'9.jpg'"),
        ("labels.csv", "expected 2 columns, found 1"),
    }


def test_images_that_no_row_names_may_be_left_out(photos: Path) -> None:
    (photos / "labels.csv").write_text("path,class\n0.jpg,cat\n2.jpg,dog\n")
    out = photos.parent / "out"
    table = ("--label-table", "labels.csv")
    refused = images(photos, out, *table)
    assert "--unlisted leave_out" in refused.err
    ran = converted(photos, *table, "--unlisted", "leave_out")
    assert rows_of(out, "label") == {"0.jpg": (0,), "2.jpg": (1,)}
    assert "2 files (no row of labels.csv names it)" in ran.out + ran.err


def test_boxes_and_several_labels_of_json_lines_beside_the_input(photos: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": "0", "labels": ["b", "a"], "boxes": [[0.5, 1, 2, 3]]},
        {"id": "1", "labels": [], "boxes": []},
        {"id": "2", "labels": ["a"], "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]]},
        {"id": "3", "labels": ["b"], "boxes": [[1, 2, 3, 4]]},
    ]
    table = photos.parent / "apart.jsonl"
    table.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    out = photos.parent / "out"
    converted(photos, "--label-table", "apart.jsonl")
    found = rows_of(out, "label", "boxes")
    assert [list(found[f"{n}.jpg"][0]) for n in range(4)] == [[1, 0], [], [0], [1]]
    assert found["2.jpg"][1] == rows[2]["boxes"]
    inferred = recordmill(
        *("schema", "infer", "images", photos, "--label-table", "apart.jsonl")
    )
    assert "boxes: float32[?,?]" in inferred.out
    again = images(photos, out, "--label-table", "apart.jsonl")
    assert "nothing to do" in again.out + again.err
    table.write_text(table.read_text().replace('["b"]', '["a"]'))
    changed = refused_by(photos, "--label-table", "apart.jsonl")
    assert "1 changed (apart.jsonl)" in changed.err or "apart.jsonl" in changed.err


def test_an_append_brings_its_own_table(photos: Path) -> None:
    out = photos.parent / "out"
    tables = ("--label-table", "*.csv")
    assert images(photos, out, *tables).status == 0
    add_images(photos, (4, 5))
    (photos / "more.csv").write_text(
        "file,label,split,age,note\n4.jpg,dog,test,5,five\n5.jpg,cat,train,,x\n"
    )
    converted(photos, *tables, "--append", "--max-rejects", "1")
    found = rows_of(out, "label", "age")
    assert found["4.jpg"] == (1, 5)
    assert len(found) == 5
    reasons = recordmill("rejects", out).out
    assert "has no value, but all other rows of the dataset do" in reasons
    (photos / "third.csv").write_text("file,label\n0.jpg,dog\n")
    refused = refused_by(photos, *tables, "--append")
    assert "change its annotations in the dataset" in refused.err
    add_images(photos, (6,))
    (photos / "third.csv").write_text("file,label,split,age,note\n6.jpg,emu,test,5,x\n")
    refused = images(photos, out, *tables, "--append")
    assert "'emu' is a new class" in refused.err


def test_names_give_labels_and_features(photos: Path) -> None:
    (photos / "labels.csv").unlink()
    for number, name in enumerate(["cat_1.jpg", "dog_2.jpg", "cat_10.jpg", "odd.jpg"]):
        (photos / f"{number}.jpg").rename(photos / name)
    out = photos.parent / "out"
    pattern = ("--label-pattern", r"(?P<label>[a-z]+)_(?P<id>\d+)\.jpg")
    converted(photos, *pattern, "--max-rejects", "1")
    assert rows_of(out, "label", "id") == {
        "cat_1.jpg": (0, 1),
        "dog_2.jpg": (1, 2),
        "cat_10.jpg": (0, 10),
    }
    assert "does not match" in recordmill("rejects", out).out
    refused = images(photos, photos.parent / "no", "--label-pattern", "(?P<label>x)")
    assert "such as (?P<label>[^_]+)_.*" in refused.err
    way_out = ("--label-pattern", r"(?P<label>[^_]+)_.*\.jpg", "--max-rejects", "1")
    assert images(photos, photos.parent / "way", *way_out).status == 0


def test_no_labels_at_all_and_splits_of_lists(photos: Path) -> None:
    (photos / "labels.csv").unlink()
    (photos.parent / "train.txt").write_text(
        "0.jpg\n\n1\n./2.jpg\n".replace("1\n", "1.jpg\n")
    )
    (photos.parent / "val.txt").write_text("3.jpg\n2.jpg\n7.jpg\n")
    out = photos.parent / "out"
    converted(
        photos,
        "--label-from",
        "none",
        "--split-lists",
        "train=train.txt,val=val.txt",
        "--max-rejects",
        "2",
    )
    assert splits_of(out) == {"train": {"0.jpg", "1.jpg"}, "val": {"3.jpg"}}
    assert not (out / "label.labels.txt").exists()
    reasons = recordmill("rejects", out).out
    lists = "train.txt, val.txt"
    assert (
        f"its lines of {lists} put it into several splits: keep it in only one of"
    ) in reasons
    assert "7.jpg" in reasons
    one = (
        "--label-from",
        "none",
        "--split-lists",
        "train=train.txt",
        "--max-rejects=9",
    )
    converted(photos, *one, "--overwrite")
    assert "no line of train.txt names it" in recordmill("rejects", out).out


def test_a_label_that_the_file_of_classes_does_not_name(photos: Path) -> None:
    out = photos.parent / "out"
    given = ("--label-table", "labels.csv", "--label-map")
    (photos / "map.txt").write_text("cat\n")
    ran = refused_by(photos, *given, "map.txt")
    assert "1.jpg: its label 'dog' is not in" in ran.err
    (photos / "map.csv").write_text("id,name\n1,cat\n0,dog\n")
    ran = converted(photos, *given, "map.csv")
    assert (out / "label.labels.txt").read_text() == "dog\ncat\n"


def test_folders_are_still_splits_beside_a_table(photos: Path) -> None:
    for name in ("train", "test"):
        (photos / name).mkdir()
    for number in range(4):
        target = photos / ("test" if number == 1 else "train") / f"{number}.jpg"
        (photos / f"{number}.jpg").rename(target)
    (photos / "labels.csv").write_text(
        TABLE.replace("split", "fold").replace("\n1.jpg", "\n1.jpg")
    )
    out = photos.parent / "out"
    converted(photos, "--label-table", "labels.csv")
    assert splits_of(out)["test"] == {"1.jpg"}
    assert rows_of(out, "fold")["1.jpg"] == ("test",)


HALVES = "--split train=0.5 --split b=0.5 --table-split-column"


@pytest.mark.parametrize(
    ("wrong", "told", "way_out"),
    [
        (f"{HALVES} note", "--table-split-column none", f"{HALVES} none"),
        (
            "--split-column split",
            "for a column of --label-table use --table-split-column",
            "--table-split-column split",
        ),
        ("--label-from none", "--label-column none", "--label-column none"),
    ],
)
def test_ways_out(photos: Path, wrong: str, told: str, way_out: str) -> None:
    table = ("--label-table", "labels.csv")
    (photos / "labels.csv").write_text(
        TABLE.replace("2.jpg,cat,train,3,", "2.jpg,cat,train,3,x")
    )
    assert told in refused_by(photos, *table, *wrong.split()).err
    converted(photos, *table, *way_out.split())


def test_a_table_that_is_too_large_is_converted_in_parts(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the message says: each part has its own table, and is appended."""
    monkeypatch.setattr(label_tables, "MAX_BYTES", len(TABLE) - 1)
    out = photos.parent / "out"
    tables = ("--label-table", "*.csv", "--append")
    refused = images(photos, out, *tables)
    assert refused.status == 65
    assert "convert the files in parts, each with a separate table, and append" in (
        refused.err
    )
    (photos / "labels.csv").unlink()
    head, *lines = TABLE.splitlines(keepends=True)
    for name in ("2.jpg", "3.jpg"):
        (photos / name).unlink()
    (photos / "1.csv").write_text(head + "".join(lines[:2]))
    assert images(photos, out, *tables).status == 0
    add_images(photos, (2, 3))
    (photos / "2.csv").write_text(head + "".join(lines[2:]).replace(",3,", ",3,x"))
    converted(photos, *tables)
    assert rows_of(out, "label") == {
        "0.jpg": (0,),
        "1.jpg": (1,),
        "2.jpg": (0,),
        "3.jpg": (1,),
    }


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("test", "its files are in 2 splits, expected at most 1: use --table-split-"),
        ("no/split", "is in the split 'no/split', expected letters, digits"),
        ("test\0", r"is in the split 'test\x00', expected letters, digits"),
    ],
)
def test_a_column_that_is_not_one_of_splits(
    wrong: str, told: str, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish_notes, "MAX_SPLITS", 1)
    (photos / "labels.csv").write_text(TABLE.replace("test", wrong))
    out, table = photos.parent / "out", ("--label-table", "labels.csv")
    refused = images(photos, out, *table)
    assert refused.status == 65
    assert told in refused.err
    assert "--table-split-column none if that column does not contain" in refused.err
    converted(photos, *table, "--table-split-column", "none")
    assert {row[0] for row in rows_of(out, "split").values()} == {"train", wrong}


def test_numbers_as_labels_are_named_or_kept(photos: Path) -> None:
    """Both ways out of numbers that do not count from 0."""
    table = TABLE.replace("cat", "3").replace("dog", "7")
    (photos / "labels.csv").write_text(table)
    given = ("--label-table", "labels.csv")
    warned = images(photos, photos.parent / "a", *given)
    assert (
        "class '3' gets the label 0. Name them with --label-map, or use " in warned.err
    )
    (photos / "map.csv").write_text("id,name\n3,cat\n7,dog\n")
    named = images(photos, photos.parent / "b", *given, "--label-map=map.csv")
    assert "Name them with" not in named.err
    assert "(class 'cat' has the number 3)" in named.err
    assert (photos.parent / "b/label.labels.txt").read_text() == "cat\ndog\n"
    plain = ("--label-column", "none")
    kept = images(photos, photos.parent / "c", *given, *plain)
    assert "consecutive from 0" not in kept.err
    assert rows_of(photos.parent / "c", "label")["1.jpg"] == (7,)


def test_files_of_classes_that_are_wrong_are_mended(photos: Path) -> None:
    given = ("--label-table", "labels.csv", "--label-map", "map.txt")
    for wrong, told in {
        b"cat\n": "add it there",
        b"cat\ndog\ncat\n": "class name 'cat' is given twice",
        b"cat\nd\xf6g\n": "class names are not UTF-8",
        b"": "has no class names; expected one per line",
    }.items():
        (photos / "map.txt").write_bytes(wrong)
        refused = images(photos, photos.parent / "out", *given)
        assert refused.status == 65
        assert told in refused.err
    (photos / "map.txt").write_bytes(b"cat\ndog\n")
    converted(photos, *given)


def test_a_schema_reads_lists_of_csv(photos: Path) -> None:
    (photos / "labels.csv").write_text(
        "file;label;boxes;code\n0.jpg;cat;[[0, 0.5, 1, 1]];007\n1.jpg;dog;[];08\n"
    )
    schema = photos.parent / "schema.yaml"
    schema.write_text(
        "features:\n"
        "  image: {picture: {}}\n"
        "  filename: string\n"
        "  label: {dtype: int64, classes: [cat, dog]}\n"
        "  boxes: {dtype: float32, shape: [null, 4], cell: json}\n"
        "  code: string\n"
    )
    out = photos.parent / "out"
    table = ("--label-table", "labels.csv", "--unlisted", "leave_out")
    converted(photos, *table, "--schema", schema)
    found = rows_of(out, "boxes", "code")
    assert found["0.jpg"][0].tolist() == [[0, 0.5, 1, 1]]
    assert found["1.jpg"][0].shape == (0, 4)
    assert {row[1] for row in found.values()} == {"007", "08"}


# As OpenImages has them: a row for each box, rows of an image not side by side.
BOXES = (
    "ImageID,label,xmin,ymin,crowd,split\n"
    "0,dog,0.5,0.25,0,train\n"
    "2,cat,0,0.5,1,test\n"
    "0,cat,0.125,1,0,train\n"
    "1,dog,0.75,0.5,1,train\n"
    "0,dog,0.25,0,1,train\n"
)


def test_a_row_for_each_box_becomes_lists(photos: Path) -> None:
    (photos / "labels.csv").write_text(BOXES)
    out = photos.parent / "out"
    table: list[Argument] = ["--label-table", "labels.csv", "--path-column", "ImageID"]
    refused = images(photos, out, *table)
    assert "3 rows of labels.csv name it, expected one" in refused.err
    assert "or use --table-rows object" in refused.err  # the way out
    job: list[Argument] = [*table, "--table-rows", "object", "--unlisted", "leave_out"]
    converted(photos, *job)
    assert recordmill("verify", out, "--deep").status == 0
    found = rows_of(out, "label", "xmin", "ymin", "crowd")
    assert {name: [list(each) for each in row] for name, row in found.items()} == {
        "0.jpg": [[1, 0, 1], [0.5, 0.125, 0.25], [0.25, 1, 0], [0, 0, 1]],
        "1.jpg": [[1], [0.75], [0.5], [1]],
        "2.jpg": [[0], [0], [0.5], [1]],
    }
    assert {n: len(f) for n, f in splits_of(out).items()} == {"train": 2, "test": 1}
    # A schema file declares lists.
    schema = photos.parent / "schema.yaml"
    schema.write_text(
        "features:\n  image: {picture: {}}\n  filename: string\n  xmin: 'float32[]'\n"
        "  label: {dtype: int64, classes: [cat, dog], shape: [null]}\n"
    )
    converted(photos, *job, "--schema", schema, "--overwrite")
    assert list(rows_of(out, "xmin")["0.jpg"][0]) == [0.5, 0.125, 0.25]


def test_boxes_that_lack_something_are_rejects_of_their_image(photos: Path) -> None:
    (photos / "labels.csv").write_text(
        "path,label,x,split\n0.jpg,cat,1,a\n0.jpg,,2,a\n1.jpg,dog,,b\n1.jpg,cat,4,b\n"
        "2.jpg,dog,5,a\n2.jpg,dog,6,b\n3.jpg,dog,7,a\n3.jpg,dog,8,a\n"
    )
    out = photos.parent / "out"
    job: list[Argument] = ["--label-table", "labels.csv", "--table-rows", "object"]
    converted(photos, *job, "--max-rejects", 3)
    assert list(rows_of(out, "x")["3.jpg"][0]) == [7, 8]
    told = recordmill("rejects", out, "--json").out
    assert "its row of labels.csv has no label" in told
    assert "a row of it has no value in column 'x'" in told
    assert "its rows of labels.csv put it into several splits" in told


@pytest.mark.parametrize(
    ("name", "table", "told"),
    [
        ("t.csv", "file,label\n", "has no rows, only a header (file, label); expected"),
        ("t.csv", "0.jpg,cat\n", "if that line is a row, add a header above it"),
        ("t.csv", "", "is empty; expected a header and a row for each file"),
        ("t.jsonl", "", "is empty; expected JSON objects, one per line, for each file"),
        ("t.jsonl", "\n", "only blank lines"),
        ("t.csv", "file,label\na,b,c\n", "no row (1 row) can be read; the first, at"),
    ],
)
def test_a_table_without_rows_is_named_with_a_way_out(
    photos: Path, name: str, table: str, told: str
) -> None:
    (photos / name).write_text(table)
    job: list[Argument] = [photos, photos.parent / "out"]
    ran = images(*job, "--label-table", name)
    assert ran.status == 65
    assert f"{photos}/{name}: " in ran.err
    assert told in ran.err
    if name == "t.csv":
        assert "use --label-from none in place of --label-table" in ran.err
    if "above" in told:
        assert images(*job, "--label-from", "none").status == 0
        (photos / name).write_text(f"file,label\n{table}")
        more = ("--label-table", name, "--unlisted", "leave_out", "--overwrite")
        assert images(*job, *more).status == 0


CONTRADICTIONS = {  # what is typed, and what is told
    "--table-rows object": "--table-rows object requires --label-table",
    "--label-table labels.csv --table-rows object --label-separator |": (
        "leave out one of them"
    ),
    "--path-column x": "--path-column is a column of --label-table",
    "--label-table l.csv --label-from 1": "cannot be combined",
    "--label-table l.csv --label-pattern (?P<label>x)": "cannot be combined",
    "--split-lists a=a.txt --split-from 1": "cannot be combined",
    "--split-lists a.txt": "expected SPLIT=FILE",
    "--label-pattern [": "regular expression",
    "--label-pattern x": "named groups",
    "--unlisted leave_out": "--unlisted requires",
    "--label-from none --label-map m.txt": "there are no labels",
    "--label-table none.csv": "--label-table: none.csv: no such file",
    "--label-table labels.csv --label-column x": "has no column 'x'",
    "--label-table labels.csv --path-column note": "no path (4 rows) names an image",
}


def test_what_contradicts_itself_is_refused(photos: Path) -> None:
    for typed, told in CONTRADICTIONS.items():
        assert told in refused_by(photos, *typed.split()).err


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


def test_splits_above_classes(tmp_path: Path) -> None:
    data = write(tmp_path / "in", *IMAGENET)
    ran = convert("images", data, tmp_path / "out", "--json")
    assert labels(tmp_path / "out") == {
        "train": {"train/n01/1.JPEG": "n01", "train/n02/2.JPEG": "n02"},
        "val": {"val/n01/3.JPEG": "n01", "val/n02/4.JPEG": "n02"},
    }
    assert understood(ran)["facts"] == {
        "splits by folder": "train 2, val 2",
        "classes": "2 (n01 2, n02 2)",
        "images": ".jpeg 4",
        "images when read": "decoded by TFDS",
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
    assert (
        "the input defines a split 'val', and the job has a split of the same" in told
    )
    assert "or use --split-from none" in told
    data = write(tmp_path / "in2", "val/a/1.jpg", "test/a/2.jpg")
    told = refused(data, tmp_path / "out", "--split", "train=1/2", "--split", "x=1/2")
    assert "`--split` has no rows to divide" in told.replace(
        "--split has", "`--split` has"
    )
    convert("images", data, tmp_path / "out", "--split-from", "none")  # the way out
    assert classes(tmp_path / "out") == ["test", "val"]


def test_flat_split_folders_are_asked_for(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "train/1.jpg", "test/2.jpg")
    told = refused(data, tmp_path / "out")
    assert "'test', 'train' are named like splits, but contain files" in told
    assert "use --split-from 1 with --label-from none for files" in told
    convert("images", data, tmp_path / "out", "--split-from", "none")
    assert classes(tmp_path / "out") == ["test", "train"]
    convert(
        "images", data, tmp_path / "none", "--split-from", 1, "--label-from", "none"
    )
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
    assert "--label-table for labels in a table" in told
    assert "--label-from none for files without labels" in told
    convert("images", data, tmp_path / "out", "--label-from", 0)
    assert classes(tmp_path / "out") == ["pets"]
    convert("images", data, tmp_path / "none", "--label-from", "none")


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
    assert "contains another dataset" in told
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
    assert "classes named like splits: " in told
    (data / "more" / "a" / "7.jpg").unlink()
    assert recordmill("verify", tmp_path / "out").status == 0


def test_more_beside_a_folder_that_held_all_is_not_appended(tmp_path: Path) -> None:
    data = write(tmp_path / "in", "pets/cat/1.jpg", "pets/dog/2.jpg")
    job = (data, tmp_path / "out", "--append")
    convert("images", *job)
    assert classes(tmp_path / "out") == ["cat", "dog"]
    write(data, "more/emu/3.jpg")
    told = refused(*job)
    assert (
        "1.jpg: is in class 'cat' in the dataset, but with the new files it is" in told
    )


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
    assert "skipped: 1 file (.txt, no image content), such as dog/notes.txt" in ran.out
    convert("images", data, tmp_path / "out")
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["understood"]["passed_over"] == [
        {"reason": ".txt, no image content", "files": 1, "example": "dog/notes.txt"}
    ]
    assert len(labels(tmp_path / "out")["train"]) == 3


# Rows of an import file, and the (split, label) that each image should get.
IMPORTED = {
    "with uses": (
        "TRAIN,gs://b/photos/0.jpg,cat\nVALIDATE,gs://b/photos/1.jpg,dog\n"
        "TEST,gs://b/photos/2.jpg,dog\nTRAIN,gs://b/photos/3.jpg,cat\n",
        [("train", "cat"), ("validation", "dog"), ("test", "dog"), ("train", "cat")],
    ),
    "unassigned": (
        "UNASSIGNED,gs://b/photos/0.jpg,cat\ntest,gs://b/photos/1.jpg,dog\n"
        "UNASSIGNED,gs://b/photos/2.jpg,dog\nTest,gs://b/photos/3.jpg,cat\n",
        [("train", "cat"), ("test", "dog"), ("train", "dog"), ("test", "cat")],
    ),
    "without uses": (
        "".join(f"gs://b/photos/{i}.jpg,{label}\n" for i, label in enumerate("abab")),
        [("train", label) for label in "abab"],
    ),
}


def splits_and_labels(out: Path) -> list[tuple[str, str]]:
    """Of each image, in the order of their names."""
    found = {
        row["filename"]: (split, names[row["label"]])
        for split in manifest_of(out)["splits"]
        for names in [(out / "label.labels.txt").read_text().split()]
        for row in open_dataset(out, split)
    }
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("case", IMPORTED)
def test_import_files_of_vertex_ai(photos: Path, case: str) -> None:
    """They have no header, URIs of where the images were, and words of their own."""
    text, expected = IMPORTED[case]
    (photos.parent / "import.csv").write_text(text)
    converted(photos, "--label-table", photos.parent / "import.csv")
    assert splits_and_labels(photos.parent / "out") == expected


def test_json_lines_of_vertex_ai(photos: Path) -> None:
    """As its documentation has them (prepare data, classification)."""
    uses = ["training", "test", "validation", "training"]
    lines = [
        {
            "imageGcsUri": f"gs://b/photos/{number}.jpg",
            "classificationAnnotation": {"displayName": "dog" if number else "cat"},
            "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": use},
        }
        for number, use in enumerate(uses)
    ]
    table = photos.parent / "import.jsonl"
    table.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    converted(photos, "--label-table", table)
    assert splits_and_labels(photos.parent / "out") == [
        ("train", "cat"),
        ("test", "dog"),
        ("validation", "dog"),
        ("train", "dog"),
    ]


def test_a_header_is_none_of_an_import_file(photos: Path) -> None:
    """Nor is a table with addresses in another column."""
    rows = "".join(f"{i}.jpg,cat,https://example.com/{i}\n" for i in range(4))
    (photos / "labels.csv").write_text(f"file,label,seen_at\n{rows}")
    converted(photos, "--label-table", "labels.csv")
    assert ints(photos.parent / "out", "label") == [0] * 4


def test_import_file_that_begins_with_a_mark_and_without_use(photos: Path) -> None:
    """A byte order mark, and a first image that is in no split."""
    rows = ["", "TEST", "", "TRAIN"]
    lines = [f"{use},gs://b/photos/{i}.jpg,cat\n" for i, use in enumerate(rows)]
    table = photos.parent / "import.csv"
    table.write_text("".join(lines), encoding="utf-8-sig")
    converted(photos, "--label-table", table)
    splits = [split for split, _ in splits_and_labels(photos.parent / "out")]
    assert splits == ["train", "test", "train", "train"]
