"""The program that `recordmill inspect --tf` prints loads every kind of dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from interop_tools import run_in_interop
from job_tools import GOLDEN, IRIS, Argument, convert, manifest_of, recordmill
from pixel_zoo import IMAGES

# What a batch and a whole split have, printed behind what the program itself prints.
MORE = """
with open({manifest!r}) as file:
    SPLITS = json.load(file)["splits"]
print(json.dumps({{split: len(list(load_dataset(split))) for split in SPLITS}}))
"""
TABLE = """\
id,tags,score,when
7,a;b,0.5,2026-11-20
8,c,,2026-11-21
9,a;c;d,1.5,2026-11-22
"""
SCHEMA = """\
features:
  id: int64
  tags: {dtype: string, shape: [null], separator: ";"}
  score: {dtype: float32, optional: true}
  when: {dtype: int64, unit: d}
"""
STEPS = (
    "features:\n  tags: {dtype: string, separator: ';', sequence: true}\n  id: int64\n"
)
OPTIONAL = """\
features:
  id: int64
  image: {bytes_from: path, picture: {}, optional: true}
"""
RAW = "features:\n  tags: string\n"
LISTS = """\
features:
  id: int64
  words: {dtype: string, shape: [null, null], cell: json}
  boxes: {dtype: float32, shape: [null, 4], cell: json}
  exact: {dtype: float64, shape: [2], separator: " ", stored: tensor}
  grid: {dtype: uint16, shape: [2, null], cell: json, stored: bytes_list}
  half: {dtype: float16, optional: true}
"""
LIST_ROWS = """\
id,words,boxes,exact,grid,half
1,"[[""a""],[""b"",""c""]]","[[0,1,2,3]]",0.5 1,"[[1,2],[3,4]]",0.5
2,[],[],1 2,"[[1],[3]]",
3,"[[],[""d""]]","[[0,1,2,3],[4,5,6,7]]",1 2,"[[],[]]",2
"""
RAGGED_STEPS = """\
features:
  words: {dtype: string, shape: [null], cell: json, sequence: true}
  id: int64
"""
# A driver that runs the printed programs of all files in one process.
ALL = """
import json, runpy, sys
for name in sys.argv[1:]:
    names = runpy.run_path(name + ".py", run_name="__main__")
    with open(name + "/manifest.json") as file:
        splits = json.load(file)["splits"]
    found = {split: len(list(names["load_dataset"](split))) for split in splits}
    assert found == {split: entry["records"] for split, entry in splits.items()}, name
    print(name)
"""


def loaded(output: Path) -> list[str]:
    """Runs the printed program; returns its lines, the last with counts by split."""
    ran = recordmill("inspect", output, "--tf")
    assert ran.status == 0, ran.err
    manifest = output / "manifest.json"
    program = output.parent / "load.py"
    program.write_text(ran.out + MORE.format(manifest=str(manifest)))
    lines = run_in_interop(output.parent, program).splitlines()
    counts = {n: s["records"] for n, s in manifest_of(output)["splits"].items()}
    assert json.loads(lines[-1]) == counts
    return lines[:-1]


def test_images_of_any_size_and_channels(tmp_path: Path) -> None:
    images = ("rgb.jpg", "gray.png", "rgba.png", "rgb.bmp")
    for number, name in enumerate(images):
        path = tmp_path / "in" / "ab"[number % 2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(IMAGES[name][0])
    golden = Path(__file__).parents[1] / "samples" / "images"
    convert("images", tmp_path / "in", tmp_path / "out", "--shards", 2)
    (line,) = loaded(tmp_path / "out")
    assert "'image': TensorShape([4, None, None, 3])" in line
    convert("images", golden, tmp_path / "golden")
    assert "'image': TensorShape(" in loaded(tmp_path / "golden")[0]


def test_images_that_no_op_decodes(tmp_path: Path) -> None:
    for name in ("rgb.jpg", "rgb.tif"):
        (tmp_path / "in" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / "a" / name).write_bytes(IMAGES[name][0])
    convert("images", tmp_path / "in", tmp_path / "out")
    assert "dtype=tf.string" not in recordmill("inspect", tmp_path / "out", "--tf").out
    assert "'image': TensorShape([2])" in loaded(tmp_path / "out")[0]


def test_cifar(tmp_path: Path) -> None:
    convert("cifar", GOLDEN / "cifar10.bin", tmp_path / "out")
    code = recordmill("inspect", tmp_path / "out", "--tf").out
    assert 'LABEL_NAMES = ["0", "1", ' in code
    assert "32, 32, 3])" in loaded(tmp_path / "out")[0]


@pytest.mark.parametrize(
    ("schema", "options", "expected"),
    [
        (SCHEMA, ["--compression", "gzip"], "'tags': TensorShape([3, None])"),
        (SCHEMA, ["--payload", "json"], "'score': TensorShape([3])"),
        (STEPS, ["--payload", "sequence_example"], "'tags': TensorShape([3, None])"),
        (RAW, ["--payload", "raw"], "(3,)"),
    ],
)
def test_tables(
    tmp_path: Path, schema: str, options: list[Argument], expected: str
) -> None:
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "schema.yaml").write_text(schema)
    job: list[Any] = [tmp_path / "table.csv", tmp_path / "out"]
    convert("csv", *job, "--schema", tmp_path / "schema.yaml", *options)
    assert expected in loaded(tmp_path / "out")[0]


def test_images_that_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(IMAGES["rgb.jpg"][0])
    (tmp_path / "table.csv").write_text("id,image\n1,1.jpg\n2,\n3,1.jpg\n")
    (tmp_path / "schema.yaml").write_text(OPTIONAL)
    job: list[Any] = [tmp_path / "table.csv", tmp_path / "out"]
    convert("csv", *job, "--schema", tmp_path / "schema.yaml")
    assert "'image': TensorShape([3, None])" in loaded(tmp_path / "out")[0]


def test_splits_and_the_folder_as_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    convert("csv", IRIS, "iris", "--split", "train=0.8", "--split", "test=0.2")
    assert "'species': TensorShape([32])" in loaded(tmp_path / "iris")[0]
    assert 'folder="iris"' in recordmill("inspect", "iris", "--tf").out


def test_every_kind_is_loaded_as_printed(tmp_path: Path) -> None:
    """Payloads, names of features, lists, tensors, appends, many classes."""
    samples = Path(__file__).parents[1] / "samples"
    (tmp_path / "lists.csv").write_text(LIST_ROWS)
    (tmp_path / "lists.yaml").write_text(LISTS)
    (tmp_path / "steps.yaml").write_text(RAGGED_STEPS)
    names = [f"class {number}" for number in range(150)]
    (tmp_path / "many.csv").write_text("\n".join(["name", *names]))
    classes = json.dumps({"features": {"name": {"classes": names}}})
    (tmp_path / "many.yaml").write_text(classes)
    kinds: dict[str, list[Argument]] = {
        "raw images": ["images", samples / "images", "--payload", "raw"],
        "json images": ["images", samples / "images", "--payload", "json"],
        "imagenet": ["images", samples / "images", "--feature-names", "imagenet"],
        "tutorial": ["images", samples / "images", "--feature-names", "tutorial"],
        "raw cifar": ["cifar", samples / "cifar", "--payload", "raw"],
        "json cifar": ["cifar", samples / "cifar", "--payload", "json"],
        "steps": ["csv", "lists.csv", "--payload", "sequence_example"],
        "lists": ["csv", "lists.csv", "--schema", "lists.yaml"],
        "many": ["csv", "many.csv", "--schema", "many.yaml"],
        "appended": ["csv", "growing", "--append"],
    }
    kinds["steps"] += ["--schema", "steps.yaml"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        Path("growing").mkdir()
        for name, (source, *options) in kinds.items():
            parts = 2 if name == "appended" else 1
            for part in range(parts):
                Path("growing", f"{part}.csv").write_text("a,b\n1,x\n2,y\n")
                convert(str(source), options[0], name, *options[1:])
            Path(f"{name}.py").write_text(recordmill("inspect", name, "--tf").out)
    printed = run_in_interop(tmp_path, "-c", ALL, *kinds).splitlines()
    assert [line for line in printed if line in kinds] == list(kinds)
