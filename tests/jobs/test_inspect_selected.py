"""recordmill inspect: chosen examples, images as files, and counts of classes."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import Argument, convert, recordmill
from PIL import Image
from small_dataset import IMAGES, write_dataset

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.dataset import reader
from recordmill.transforms.statistics import class_counts as counting

ROWS = [
    {
        "id": number,
        "kind": "abc"[number % 3],
        "tags": f"t{number % 4};x",
        "size": number / 2,
    }
    for number in range(40)
]
SCHEMA = """\
features:
  id: int64
  kind: {classes: [a, b, c]}
  tags: {dtype: string, shape: [null], separator: ";"}
  size: {dtype: float16, optional: true}
"""


@pytest.fixture(scope="module", params=["example", "sequence_example", "json"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("selected")
    lines = ["id,kind,tags,size", *(",".join(map(str, row.values())) for row in ROWS)]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    (folder / "schema.yaml").write_text(SCHEMA)
    options = ["--split", "train=0.6", "--split", "test=0.4", "--shards", 2]
    options += ["--schema", folder / "schema.yaml", "--payload", request.param]
    convert("csv", folder / "rows.csv", folder / "out", "--no-shuffle", *options)
    return folder / "out"


def shown(dataset: Path, *options: Argument) -> list[dict[str, Any]]:
    ran = recordmill("inspect", dataset, "--json", *options)
    assert ran.status == 0, ran.err
    examples: list[dict[str, Any]] = json.loads(ran.out)["examples"]
    return examples


def ids(dataset: Path, *options: Argument) -> list[int]:
    return [each["features"]["id"] for each in shown(dataset, *options)]


def test_splits_and_places(dataset: Path) -> None:
    train = ids(dataset, "--split", "train", "--head", 100)
    test = ids(dataset, "--split", "test", "--examples", 100)
    assert sorted(train + test) == list(range(40))
    assert ids(dataset, "--examples", 100) == train + test
    assert ids(dataset, "--split", "test", "--index", 3) == test[3:4]
    for index in (0, len(train) - 1, len(train), 39):  # in every shard
        assert ids(dataset, "--index", index) == (train + test)[index : index + 1]


@pytest.mark.parametrize(
    ("conditions", "is_wanted"),
    [
        (["kind=b"], lambda row: row["kind"] == "b"),
        (["kind=1"], lambda row: row["kind"] == "b"),
        (["id=7"], lambda row: row["id"] == 7),
        (["size=2.5"], lambda row: row["size"] == 2.5),
        (["tags=t3"], lambda row: row["tags"].startswith("t3;")),
        (["tags=t3", "kind=a"], lambda row: row["id"] % 4 == 3 and row["kind"] == "a"),
        (["id=40"], lambda row: False),
    ],
)
def test_conditions(dataset: Path, conditions: list[str], is_wanted: Any) -> None:
    options = [word for text in conditions for word in ("--where", text)]
    found = ids(dataset, "--head", 100, *options)
    assert sorted(found) == [row["id"] for row in ROWS if is_wanted(row)]


def test_what_is_not_there(dataset: Path) -> None:
    for typed, told in {
        "--split dev": "no split 'dev'; the dataset has 'train', 'test'",
        "--index 40": "no example 40: the dataset has 40 records, counted from 0",
        "--where colour=red": "--where: no feature 'colour'; expected FEATURE=VALUE, and one of",
        "--where kind=d": "'d' is not a value of 'kind' (expected int64 or a class",
        "--where id=1 --index 1": "--index and --where cannot be combined",
    }.items():
        ran = recordmill("inspect", dataset, *typed.split())
        assert ran.status == 2
        assert told in ran.err
        assert ran.out == ""


TEXT = FeatureSpec("text", Kind.BYTES, dtype="string")


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "zoo")
    return tmp_path / "zoo"


def pixels_of(data: bytes | Path) -> np.ndarray[Any, Any]:
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    return np.asarray(Image.open(file))


def test_images_are_written(zoo: Path, tmp_path: Path) -> None:
    """Of files and of arrays, as PNG; each with its path below the example."""
    folder = tmp_path / "images"
    ran = recordmill("inspect", zoo, "--image", folder, "--index", 4)
    assert (ran.status, ran.err) == (0, "")
    shard = json.loads((zoo / "manifest.json").read_bytes())["splits"]["train"]
    written = sorted(folder.iterdir())
    assert [path.name for path in written] == [
        f"{shard['shards'][1]['file']}.1.{number}.png" for number in range(2)
    ]
    lines = ran.out.splitlines()[-2:]
    assert [line.partition(": ")[2] for line in lines] == list(map(str, written))
    pixels = {
        line.partition(": ")[0]: pixels_of(path)
        for line, path in zip(lines, written, strict=True)
    }
    assert (pixels["image/encoded"] == pixels_of(IMAGES[4])).all()
    assert pixels.popitem()[1].shape == (2, 3)


def test_json_has_the_files(zoo: Path, tmp_path: Path) -> None:
    options = ["--split", "train", "--where", "sure=true", "--head", 2, "--json"]
    ran = recordmill("inspect", zoo, "--image", tmp_path / "images", *options)
    examples = json.loads(ran.out)["examples"]
    images = [example["images"]["image/encoded"][0] for example in examples]
    shown = [pixels_of(Path(image["file"])) for image in images]
    assert [(image["height"], image["width"]) for image in images] == [
        pixels.shape[:2] for pixels in shown
    ]
    assert len(shown) == 2
    assert (shown[1] == pixels_of(IMAGES[3])).all()
    without = json.loads(recordmill("inspect", zoo, *options).out)["examples"]
    assert [set(example) & {"images"} for example in without] == [set(), set()]


def test_images_that_cannot_be_written(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = recordmill("inspect", zoo, "--image", tmp_path / "file")
    assert (ran.status, "cannot write: File exists" in ran.err) == (1, True)


def test_a_dataset_without_images(zoo: Path, tmp_path: Path) -> None:
    manifest = json.loads((zoo / "manifest.json").read_bytes())
    manifest["features"] = [f for f in manifest["features"] if f["name"] == "count"]
    (zoo / "manifest.json").write_text(json.dumps(manifest))
    ran = recordmill("inspect", zoo, "--image", tmp_path / "images")
    assert "writes images, but no feature contains images" in ran.err
    assert not (tmp_path / "images").exists()


def test_classes_are_counted(zoo: Path) -> None:
    """Of labels all classes; of texts, if there are few different ones."""
    classes = json.loads(recordmill("inspect", zoo, "--json").out)["classes"]
    assert classes["image/class/label"] == {
        "train": {"cat": 4, "dog [red]": 3},
        "test": {"cat": 1, "dog [red]": 1},
    }
    assert classes["sure"] == {
        "train": {"false": 4, "true": 3},
        "test": {"false": 1, "true": 1},
    }
    assert classes["note"] == {"train": {"ok": 3}, "test": {"ok": 1}}
    # Not "text": each is there once.
    assert set(classes) == {"image/class/label", "sure", "note"}
    shown = recordmill("inspect", zoo).out
    assert re.search(r"dog \[red\] +3 +1 +4\b", shown)


def test_large_datasets_are_counted_if_asked(
    zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting.counts_if_small, "__defaults__", (100,))
    monkeypatch.setattr(counting, "MAX_TEXTS", 3)
    assert json.loads(recordmill("inspect", zoo, "--json").out)["classes"] is None
    assert "--counts to read the whole dataset" in recordmill("inspect", zoo).out
    facts = json.loads(recordmill("inspect", zoo, "--json", "--counts").out)
    assert set(facts["classes"]) == {"image/class/label", "sure", "note"}


def test_counting_takes_little_memory(
    zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that turns out to be no label is given up with the window that shows it."""
    wanted: list[set[str]] = []
    only = reader.ReadableShard.select_schema

    def noted(shard: reader.ReadableShard, names: Collection[str]) -> Schema:
        wanted.append(set(names))
        return only(shard, names)

    monkeypatch.setattr(reader.ReadableShard, "select_schema", noted)
    monkeypatch.setattr(counting, "MAX_TEXTS", 2)
    monkeypatch.setattr(reader, "WINDOW_RECORDS", 1)
    monkeypatch.setattr(counting, "MAX_TEXT_FEATURES", 3)
    recordmill("inspect", zoo, "--counts")
    label = {"image/class/label"}
    assert wanted[0] == label | {"sure", "text", "note"}
    assert wanted[3:] == [label | {"sure", "note"}] * 6
    monkeypatch.setattr(counting, "counted_features", lambda _: [TEXT])
    monkeypatch.setattr(counting, "MAX_TEXTS", 1)
    del wanted[:]
    assert recordmill("inspect", zoo, "--counts").status == 0
    assert wanted == [{"text"}] * 2, "there is nothing to count any more"
    monkeypatch.undo()
    monkeypatch.setattr(reader.ReadableShard, "select_schema", noted)
    del wanted[:]
    monkeypatch.setattr(reader, "WINDOW_RECORDS", 1)
    monkeypatch.setattr(counting, "MAX_TEXT_FEATURES", 2)
    recordmill("inspect", zoo, "--counts")
    assert wanted == [label] * 9


def test_a_damaged_dataset_is_shown_without_counts(zoo: Path) -> None:
    manifest = Manifest.from_bytes((zoo / "manifest.json").read_bytes(), "")
    shard = zoo / manifest.splits["test"].shards[0].file
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert json.loads(recordmill("inspect", zoo, "--json").out)["classes"] is None
    assert recordmill("inspect", zoo, "--counts").status == 1


def test_the_lines_of_the_end_work_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder whose name a shell would cut in two, and Python would not take."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("kind,size\n" + "cat,1\ndog,2\n" * 5)
    ran = convert(
        "csv", "rows.csv", "it's here/my rows", "--split", "a=0.5", "--split", "b=0.5"
    )
    lines = ran.err.splitlines()
    assert any(line.startswith("  time: prepare ") for line in lines)
    assert "  classes of kind: cat 5, dog 5" in lines
    typed = [line.partition(": ")[2] for line in lines if ": recordmill " in line]
    commands = [line.split()[1] for line in typed]
    assert commands == ["inspect", "report", "inspect"]
    for line in typed:
        words = line.partition(" > ")[0]
        shown = recordmill(*shlex.split(words)[1:])
        assert shown.status == 0, shown.err
    code = "\n".join(line[4:] for line in lines if line.startswith("    "))
    rows: list[object] = []
    exec(code, {"print": rows.append})
    assert 0 < len(rows) < 10


def test_names_that_come_once_are_no_classes(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("name,kind\nAnna,cat\nBen,dog\nCleo,cat\nDan,cat\n")
    ran = convert("csv", table, tmp_path / "out")
    assert [line for line in ran.err.splitlines() if "classes of" in line] == [
        "  classes of kind: cat 3, dog 1"
    ]
