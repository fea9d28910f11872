"""What other tools wrote into names, folders and metadata of an input is read or asked for.

Each test is an input as its users have it, made by the tool that makes it where one is
here. Tables of Delta and Iceberg: tests/integration/test_lakehouse_tables.py.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from archive_tools import tar_of
from job_tools import Argument, convert, manifest_of, recordmill
from object_trees import Pictured, coco_tree
from PIL import Image

from recordmill import open_dataset

pytestmark = pytest.mark.usefixtures("without_beam")


def png(number: int, mode: str = "RGB") -> bytes:
    """An image of 6 by 4 pixels, drawn by Pillow."""
    Image.new(mode, (6, 4), number).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def write(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return folder


def rows_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each split."""
    splits = manifest_of(folder)["splits"]
    return {split: [*open_dataset(folder, split)] for split in splits}


def ids_of(folder: Path) -> dict[str, list[int]]:
    found = rows_of(folder)
    return {
        split: sorted(int(row["id"]) for row in rows) for split, rows in found.items()
    }


def asked(told: str, *job: Argument) -> str:
    """Makes sure that a job is refused; returns its message."""
    ran = recordmill("convert", *job)
    assert ran.status == 65, ran.err
    assert told in ran.err
    return ran.err


def test_test_rows_do_not_leak_into_training(tmp_path: Path) -> None:
    """Files of the Hub, of Kaggle, of folders and of WebDataset."""
    of_hub = tmp_path / "parquet"
    of_hub.mkdir()
    for n, split in enumerate(("train", "test", "validation")):
        name = f"{split}-00000-of-00001.parquet"
        pq.write_table(pa.table({"id": [n, n + 10]}), of_hub / name)
    of_kaggle = write(
        tmp_path / "csv",
        {
            "train.csv": "id,label\n1,a\n2,b\n",
            "test.csv": "id,label\n3,a\n",
            "sample_submission.csv": "id,label\n3,a\n",
        },
    )
    write(
        tmp_path / "jsonl",
        {"train/a.jsonl": '{"id": 1}\n', "test/a.jsonl": '{"id": 2}'},
    )
    shards = {
        f"{split}-000000.tar": tar_of({"0.id": b"%d" % n})
        for n, split in enumerate(("train", "val"))
    }
    write(tmp_path / "webdataset", shards)
    expected = {
        "parquet": {"train": [0, 10], "test": [1, 11], "validation": [2, 12]},
        "csv": {"train": [1, 2], "test": [3]},
        "jsonl": {"train": [1], "test": [2]},
        "webdataset": {"train": [0], "val": [1]},
    }
    said = asked(
        "in no split (sample_submission.csv)", "csv", of_kaggle, tmp_path / "out"
    )
    (way_out,) = re.findall(r"with (--exclude \S+),", said)
    for source, ids in expected.items():
        more = shlex.split(way_out) if source == "csv" else []
        ran = convert(source, tmp_path / source, tmp_path / f"out-{source}", *more)
        assert "splits by file: train 1 file" in ran.err
        assert ids_of(tmp_path / f"out-{source}") == ids
    # A test file of a competition lacks the label.
    write(of_kaggle, {"test.csv": "id\n3\n"})
    job: list[Argument] = ["csv", of_kaggle, *shlex.split(way_out)]
    said = asked("leave out the file without label", *job, tmp_path / "out")
    (way_out,) = re.findall(r"use (--exclude \S+)\. ", said)
    convert(*["csv", *job[1:], *shlex.split(way_out)], tmp_path / "labelled")
    assert ids_of(tmp_path / "labelled") == {"train": [1, 2]}


@pytest.mark.parametrize(
    "name",
    ["a$b", "it's", r"a\b", "a;b", "a&b", "a(b)", "a<b>|c", "a b", 'a"b', "a,b", "a: b #c"],
)  # fmt: skip
def test_files_of_odd_names_are_left_out_as_told(tmp_path: Path, name: str) -> None:
    """The option that the error names, as a shell reads it, and as a job file has it."""
    given = {"train.csv": "id\n1\n", "test.csv": "id\n2\n", f"{name}.csv": "id\n3\n"}
    write(tmp_path / "in", given)
    job = tmp_path / "job.yaml"
    job.write_text("source: csv\ninputs: in\noutput: in-file\n")
    said = asked("in no split", "csv", tmp_path / "in", tmp_path / "out")
    (way_out,) = re.findall(r"with (--exclude .+), or name them", said)
    convert("csv", tmp_path / "in", tmp_path / "out", *shlex.split(way_out))
    (line,) = re.findall(r"with (exclude: .+), or name", recordmill("run", job).err)
    job.write_text(f"{job.read_text()}{line}\n")
    assert recordmill("run", job).status == 0
    for out in ("out", "in-file"):
        assert ids_of(tmp_path / out) == {"train": [1], "test": [2]}


@pytest.mark.parametrize("name", ["a`b", "a*b", "a\x01b"])
def test_names_that_no_option_can_have_are_not_told(tmp_path: Path, name: str) -> None:
    given = {"train.csv": "id\n1\n", "test.csv": "id\n2\n", f"{name}.csv": "id\n3\n"}
    write(tmp_path / "in", given)
    said = asked("in no split", "csv", tmp_path / "in", tmp_path / "out")
    assert "Leave out the others with --exclude, or name" in said
    convert("csv", tmp_path / "in", tmp_path / "out", "--exclude", "/a?b.csv")


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv"])
def test_hive_partitions_are_columns(form: str, tmp_path: Path) -> None:
    """As PyArrow writes them; it reads the same."""
    table = pa.table({"id": [1, 2, 3], "label": ["cat", "a/b", None]})
    hive = pa.dataset.partitioning(pa.schema([("label", pa.string())]), flavor="hive")
    given, out = tmp_path / "in", tmp_path / "out"
    pa.dataset.write_dataset(table, given, format=form, partitioning=hive)
    assert "columns by folder: label" in convert(form, given, out).err
    read = pa.dataset.dataset(given, format=form, partitioning=hive).to_table()
    found = [(row["id"], row["label"]) for row in rows_of(out)["train"]]
    expected = [(row["id"], row["label"]) for row in read.to_pylist()]
    assert sorted(found) == sorted(expected) == [(1, "cat"), (2, "a/b"), (3, None)]


def test_masks_are_no_class(tmp_path: Path) -> None:
    files = {f"images/{n}.png": png(n) for n in range(3)}
    files |= {f"masks/{n}.png": png(n, "L") for n in range(3)}
    ran = convert("images", write(tmp_path / "in", files), tmp_path / "out")
    assert "masks" in ran.err
    (rows,) = rows_of(tmp_path / "out").values()
    assert sorted(row["masks"] for row in rows) == sorted(
        files[f"masks/{n}.png"] for n in range(3)
    )
    assert "label" not in rows[0]


CLASSES = ["dog", "cat"]  # the order of the metadata, not of the alphabet
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": CLASSES},
}


def of_hugging_face(numbers: list[int]) -> pa.Table:
    """A table as `datasets` makes it: metadata say what is an image and what a class."""
    files = [{"bytes": png(n), "path": f"{n}.png"} for n in numbers]
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    labels = pa.array([n % 2 for n in numbers])
    told = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    made = pa.table({"image": pa.array(files, kind), "label": labels})
    return made.replace_schema_metadata(told)


def test_images_and_classes_of_hugging_face(tmp_path: Path) -> None:
    """In Parquet, and in a folder of `DatasetDict.save_to_disk`."""
    (tmp_path / "parquet").mkdir()
    saved = write(
        tmp_path / "arrow",
        {"dataset_dict.json": '{"splits": ["unsupervised", "test"]}'},
    )
    expected = {}
    for split, numbers in (("unsupervised", [0, 1]), ("test", [2, 3, 4])):
        made = of_hugging_face(numbers)
        pq.write_table(made, tmp_path / f"parquet/{split}-00000-of-00001.parquet")
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        info = {"features": FEATURES}
        names = {"state.json": json.dumps(state), "dataset_info.json": json.dumps(info)}
        write(saved / split, names)
        file = saved / split / "data-00000-of-00001.arrow"
        with pa.ipc.new_stream(file, made.schema) as writer:
            writer.write_table(made)
        expected[split] = sorted((png(n), n % 2) for n in numbers)
    said = asked("1 file in no split (unsupervised/", "arrow", saved, tmp_path / "out")
    (way_out,) = re.findall(r"a split with (--split-from \d)", said)
    for source in ("parquet", "arrow"):
        out = tmp_path / f"out-{source}"
        more = shlex.split(way_out) if source == "arrow" else []
        convert(source, tmp_path / source, out, *more)
        assert (out / "label.labels.txt").read_text().split() == CLASSES
        found = {
            split: sorted((row["image"], row["label"]) for row in rows)
            for split, rows in rows_of(out).items()
        }
        assert found == expected
        assert rows_of(out)["test"][0]["image/height"] == 4


VOC = """<annotation><filename>0.jpg</filename><size><width>8</width><height>4</height>
<depth>3</depth></size><object><name>dog</name><bndbox><xmin>2</xmin><ymin>1</ymin>
<xmax>6</xmax><ymax>3</ymax></bndbox></object></annotation>"""


def test_boxes_of_three_tools_are_the_same(tmp_path: Path) -> None:
    """COCO, Pascal VOC and YOLO of one box, as fractions of the image."""
    Image.new("RGB", (8, 4)).save(file := io.BytesIO(), "JPEG")
    image = file.getvalue()
    box = {"bbox": [2, 1, 4, 2], "category_id": 7}
    coco_tree(tmp_path / "coco", [Pictured("0.jpg", image, (4, 8), [box])])
    write(
        tmp_path / "voc",
        {
            "JPEGImages/0.jpg": image,
            "Annotations/0.xml": VOC,
            "ImageSets/Main/train.txt": "0\n",
        },
    )
    write(
        tmp_path / "yolo",
        {
            "images/train/0.jpg": image,
            "labels/train/0.txt": "1 0.5 0.5 0.5 0.5\n",
            "data.yaml": "train: images/train\nnames: [cat, dog]\n",
        },
    )
    for name in ("coco", "voc", "yolo"):
        convert("images", tmp_path / name, tmp_path / f"out-{name}")
        ((row,),) = rows_of(tmp_path / f"out-{name}").values()
        assert np.ravel(row["objects/bbox"]).tolist() == [0.25, 0.25, 0.75, 0.75]
        (labels,) = (tmp_path / f"out-{name}").glob("*label*.labels.txt")
        assert labels.read_text().split()[int(row["objects/label"][0])] == "dog"


def test_addresses_of_a_bucket_in_cells(tmp_path: Path) -> None:
    """An import file of Vertex AI, and a table whose cells name files."""
    photos = write(tmp_path / "photos", {f"{n}.png": png(n) for n in range(2)})
    uris = [f"gs://bucket/photos/{n}.png" for n in range(2)]
    table = f"TRAIN,{uris[0]},cat\nTEST,{uris[1]},dog\n"
    (tmp_path / "import.csv").write_text(table)
    by_table = ("--label-table", tmp_path / "import.csv")
    convert("images", photos, tmp_path / "out", *by_table)
    labels = {
        split: row["label"] for split, (row,) in rows_of(tmp_path / "out").items()
    }
    assert labels == {"train": 0, "test": 1}
    # As a table it has no header, which a warning says, with the way out.
    ran = convert("csv", tmp_path / "import.csv", tmp_path / "warned")
    assert "use --header none, and name its columns" in ran.err
    options = ("--header", "none", "--columns", "use,image,label")
    convert("csv", tmp_path / "import.csv", tmp_path / "table", *options)
    rows = rows_of(tmp_path / "table")["train"]
    assert sorted(row["image"] for row in rows) == uris


def test_lines_and_sounds_are_read(tmp_path: Path) -> None:
    write(tmp_path / "text", {"prose.txt": "one\ngr\u00fcn\n\n"})
    convert("text", tmp_path / "text", tmp_path / "out-text")
    texts = [row["text"] for row in rows_of(tmp_path / "out-text")["train"]]
    assert sorted(texts) == ["", "gr\u00fcn", "one"]
    for label in ("dog", "cat"):
        (tmp_path / "audio" / label).mkdir(parents=True)
        with wave.open(str(tmp_path / f"audio/{label}/0.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", "NONE"))
            sound.writeframes(label.encode() * 20)
    convert("audio", tmp_path / "audio", tmp_path / "out-audio")
    rows = rows_of(tmp_path / "out-audio")["train"]
    assert {row["label"]: row["frames"] for row in rows} == {0: 30, 1: 30}
    assert all(row["sample_rate"] == 8000 for row in rows)
