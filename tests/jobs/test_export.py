"""Datasets in files of other formats: the way back, row by row."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from job_tools import IRIS, SAMPLES, Argument, convert, manifest_of, recordmill
from sounds import sound
from webdataset_tools import npy

from recordmill import read_rows
from recordmill.schemas.names import UnsafeNameError
from recordmill.transforms.dataset.export import new_file
from recordmill.transforms.storage import LocalStore

pytestmark = pytest.mark.usefixtures("without_beam")

SCHEMA = """
features:
  id: {dtype: int16}
  matrix: {dtype: float32, shape: [2, 3]}
  boxes: {dtype: float32, shape: [null, 2], optional: true}
  wide: {dtype: int64, shape: [2, null]}
  ragged: {dtype: int64, shape: [null, null]}
  flag: {dtype: bool, optional: true}
  words: {dtype: string, shape: [null]}
  data: {dtype: bytes}
  array: {dtype: uint8, shape: [2, 2], stored: bytes_list}
  open_array: {dtype: float32, shape: [null, 2], stored: bytes_list, optional: true}
  tensor: {dtype: float32, shape: [2], stored: tensor}
  kind: {dtype: int64, classes: [cat, dog], optional: true}
  kinds: {dtype: int64, shape: [null], classes: [cat, dog]}
"""


def row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "matrix": [[n, n + 1, n + 2], [0.5, 1.5, 2.5]],
        "boxes": None if n % 3 == 0 else [[n, k] for k in range(n % 3 - 1)],
        "wide": [[n] * (n % 4), [0] * (n % 4)],
        "ragged": [list(range(k)) for k in range(n % 3)],
        "flag": [True, False, None][n % 3],
        "words": [f"caf\u00e9 {k}" for k in range(n % 3)],
        "data": bytes([0, 255, n % 256]),
        "array": [[n % 256, 1], [2, 3]],
        "open_array": None if n % 4 == 0 else [[k, n] for k in range(n % 4)],
        "tensor": [n, 0.5],
        "kind": [0, 1, None][n % 3],
        "kinds": [0, 1][: n % 3],
    }


KINDS = pa.schema(
    [
        ("id", pa.int16()),
        ("matrix", pa.list_(pa.list_(pa.float32()))),
        ("boxes", pa.list_(pa.list_(pa.float32()))),
        ("wide", pa.list_(pa.list_(pa.int64()))),
        ("ragged", pa.list_(pa.list_(pa.int64()))),
        ("flag", pa.bool_()),
        ("words", pa.list_(pa.string())),
        ("data", pa.binary()),
        ("array", pa.list_(pa.list_(pa.uint8()))),
        ("open_array", pa.list_(pa.list_(pa.float32()))),
        ("tensor", pa.list_(pa.float32())),
        ("kind", pa.int64()),
        ("kinds", pa.list_(pa.int64())),
    ]
)


def make_zoo(folder: Path, rows: int = 300) -> tuple[Path, Path]:
    """Writes a table of every kind of value, and the schema file for it."""
    table, schema = folder / "zoo.parquet", folder / "zoo.yaml"
    pq.write_table(pa.Table.from_pylist([row(n) for n in range(rows)], KINDS), table)
    schema.write_text(SCHEMA)
    return table, schema


def export(name: str, dataset: object, folder: object) -> list[str]:
    ran = recordmill("export", name, str(dataset), str(folder), "--json")
    assert ran.status == 0, ran.err
    files: list[str] = json.loads(ran.out)["files"]
    return files


@pytest.mark.parametrize(
    "options",
    [
        ["--shards", 3],
        ["--compression", "gzip"],
        ["--container", "array_record"],
        ["--payload", "json"],
        ["--no-shuffle", "--shards", 2],
    ],
)
def test_parquet_has_the_rows_that_were_read(
    tmp_path: Path, options: list[Argument]
) -> None:
    table, schema = make_zoo(tmp_path)
    out, folder = tmp_path / "out", tmp_path / "parquet"
    convert("parquet", table, out, "--schema", schema, *options)
    files = export("parquet", out, folder)
    shards = len(manifest_of(out)["splits"]["train"]["shards"])
    assert files == [
        *(f"data/train-{n:05d}-of-{shards:05d}.parquet" for n in range(shards)),
        "_SUCCESS",
    ]
    tables = [pq.read_table(folder / name) for name in files[:-1]]
    for each in tables:
        assert sorted(each.schema.names) == sorted(KINDS.names)
        for kind in KINDS:
            found_kind = str(each.schema.field(kind.name).type)
            assert found_kind.replace("element", "item") == str(kind.type)
    found = list(chain.from_iterable(each.to_pylist() for each in tables))
    order = [found_row["id"] for found_row in found]
    assert order == [int(read["id"]) for read in read_rows(out)]
    assert sorted(found, key=lambda each: each["id"]) == [row(n) for n in range(300)]


def test_steps_of_sequences_are_lists(tmp_path: Path) -> None:
    source, schema = tmp_path / "in.jsonl", tmp_path / "s.yaml"
    lines = [{"n": n, "steps": [[k, n] for k in range(n % 3)]} for n in range(20)]
    source.write_text("\n".join(map(json.dumps, lines)))
    schema.write_text(
        "features:\n  n: {dtype: int64}\n"
        "  steps: {dtype: float32, shape: [2], sequence: true}\n"
    )
    how = ["--schema", schema, "--payload", "sequence_example", "--no-shuffle"]
    convert("jsonl", source, tmp_path / "out", *how)
    (name, _) = export("parquet", tmp_path / "out", tmp_path / "parquet")
    assert pq.read_table(tmp_path / "parquet" / name).to_pylist() == lines
    export("webdataset", tmp_path / "out", tmp_path / "tars")
    with tarfile.open(tmp_path / "tars" / "train-000000.tar") as tar:
        found = [json.load(tar.extractfile(each)) for each in tar]  # type: ignore[arg-type]
    assert found == lines


def test_parquet_of_images_and_labels_comes_back(tmp_path: Path) -> None:
    out, folder, back = tmp_path / "out", tmp_path / "parquet", tmp_path / "back"
    halves: list[Argument] = ["--split", "train=0.6", "--split", "test=0.4"]
    convert("images", SAMPLES / "images", out, *halves)
    export("parquet", out, folder)
    convert("parquet", folder, back)
    assert (back / "label.labels.txt").read_bytes() == (
        out / "label.labels.txt"
    ).read_bytes()
    for split in ("train", "test"):
        want, found = (
            sorted(
                (read["image"], int(read["label"]), read["filename"])
                for read in read_rows(folder, split)
            )
            for folder in (out, back)
        )
        assert want == found


def make_shards(folder: Path) -> None:
    """Writes samples with every kind of file, some of them in some samples alone."""
    images = sorted((SAMPLES / "images").rglob("*.png"))
    folder.mkdir()
    for part in range(2):
        with tarfile.open(folder / f"train-{part}.tar", "w") as tar:
            for n in range(part * 10, part * 10 + 10):
                files = {
                    "left.png": images[n % 3].read_bytes(),
                    "right.png": images[n % 2].read_bytes(),
                    "cls": b"%d" % (n % 3),
                    "txt": f"caf\u00e9 {n}".encode(),
                    "json": json.dumps(
                        {"n": n, "box": {"x": [n, 0.5], "y": {"z": "a/b"}}}
                    ).encode(),
                    "npy": npy(np.full((2, 3), n / 4, np.float32)),
                    "ints.npy": npy(np.arange(n + 1, dtype=np.int64)),
                    "mp4": bytes([0, 255, n]),
                }
                if n % 4 == 0:
                    del files["mp4"], files["right.png"]
                for ending, data in files.items():
                    member = tarfile.TarInfo(f"part/{n:04d}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    shards, out = tmp_path / "shards", tmp_path / "out"
    make_shards(shards)
    convert("webdataset", shards, out, "--shards", 3)
    names = export("webdataset", out, tmp_path / "tars")
    assert names == [*(f"train-{n:06d}.tar" for n in range(3)), "_SUCCESS"]
    convert("webdataset", tmp_path / "tars", tmp_path / "back")
    ran = recordmill("diff", out, tmp_path / "back")
    assert ran.status == 0, ran.out
    read: list[dict[str, bytes]] = []
    for folder in (shards, tmp_path / "tars"):
        read.append({})
        for path in sorted(folder.glob("*.tar")):
            with tarfile.open(path) as tar:
                for member in tar:
                    file = tar.extractfile(member)
                    assert file is not None
                    read[-1][member.name] = file.read()
    before, after = read
    assert before.keys() == after.keys()
    for name, data in before.items():
        if name.endswith(".json"):
            assert json.loads(after[name]) == json.loads(data)
        else:
            assert after[name] == data, name


def test_values_of_tables_are_in_json(tmp_path: Path) -> None:
    convert("csv", IRIS, tmp_path / "out", "--label", "species", "--shards", 2)
    names = export("webdataset", tmp_path / "out", tmp_path / "tars")
    assert names[2:] == ["_SUCCESS", "cls.labels.txt"]
    found: dict[str, bytes] = {}
    for name in names[:2]:
        with tarfile.open(tmp_path / "tars" / name) as tar:
            for member in tar:
                found[member.name] = tar.extractfile(member).read()  # type: ignore[union-attr]
    rows = list(read_rows(tmp_path / "out"))
    assert len(found) == 2 * len(rows)
    for n, read in enumerate(rows):
        assert int(found[f"{n:08d}.cls"]) == read.pop("species")
        assert json.loads(found[f"{n:08d}.json"]) == read


def test_names_of_classes_come_back(tmp_path: Path) -> None:
    table, schema = make_zoo(tmp_path)
    out, tars, back = tmp_path / "out", tmp_path / "tars", tmp_path / "back"
    convert("parquet", table, out, "--schema", schema)
    names = export("webdataset", out, tars)
    assert names[2:] == ["cls.labels.txt", "json.kinds.labels.txt"]
    ran = recordmill("convert", "webdataset", tars, back, "--plan")
    assert "labels files: cls 2 classes, json/kinds 2 classes" in ran.out
    convert("webdataset", tars, back)
    for name in names[2:]:
        labels = (back / name).read_text()
        assert labels == "cat\ndog\n" == (tars / name).read_text()
    shutil.copy(tars / "train-000000.tar", tars / "train-000001.tar")
    convert("webdataset", tars, back, "--append")
    assert len(list(read_rows(back))) == 600
    # A label without a class is a reject.
    (tars / "cls.labels.txt").write_text("cat\n")
    ran = recordmill("convert", "webdataset", tars, tmp_path / "less")
    assert ran.status == 65
    assert "cls: 1 is not a class index (0 to 0)" in ran.err
    convert("webdataset", tars, tmp_path / "less", "--max-rejects", "50%")
    assert recordmill("verify", tmp_path / "less").status == 0


def sounds_in(folder: Path) -> Path:
    for number, form in enumerate(("16.wav", "16.flac", "opus.ogg", "layer3.mp3")):
        (folder / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        data = sound(form, 800)
        (folder / "ab"[number % 2] / f"{number}.{form}").write_bytes(data)
    return folder


def test_audio_is_audio(tmp_path: Path) -> None:
    out, tars, back = tmp_path / "out", tmp_path / "tars", tmp_path / "back"
    convert("audio", sounds_in(tmp_path / "in"), out)
    (name, *_) = export("webdataset", out, tars)
    with tarfile.open(tars / name) as tar:
        found = {member.name.partition(".")[2]: member.size for member in tar}
    sizes = {
        each.suffix[1:]: each.stat().st_size for each in (tmp_path / "in").glob("*/*")
    }
    assert sizes.items() <= found.items()
    assert "audio" not in found
    export("parquet", out, tmp_path / "parquet")
    ran = recordmill("convert", "parquet", tmp_path / "parquet", back, "--plan")
    assert "by metadata: audio audio" in ran.out
    convert("parquet", tmp_path / "parquet", back)
    want, got = (sorted(row["audio"] for row in read_rows(x)) for x in (out, back))
    assert want == got


def test_nothing_is_put_into_the_dataset(tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert("csv", IRIS, out)
    (tmp_path / "link").symlink_to(out)
    for name in ("tfds", "parquet", "webdataset"):
        for target in (out / "more", tmp_path / "link/more/deep", out):
            ran = recordmill("export", name, out, target)
            assert ran.status == 2
            assert "is inside the folder of the dataset" in ran.err
            assert "Choose a folder next to it" in ran.err
        export(name, out, tmp_path / f"out-{name}")
    assert not (out / "more").exists()


def test_keys_that_cannot_be_keys_stay_in_json(tmp_path: Path) -> None:
    keys = ["a", "a", "b.c", "00000003", "", "d/e", "00000001"]
    table = tmp_path / "t.csv"
    table.write_text("key,n\n" + "".join(f'"{k}",{n}\n' for n, k in enumerate(keys)))
    convert("csv", table, tmp_path / "out", "--no-shuffle")
    export("webdataset", tmp_path / "out", tmp_path / "tars")
    with tarfile.open(tmp_path / "tars" / "train-000000.tar") as tar:
        found = {m.name: json.load(tar.extractfile(m)) for m in tar}  # type: ignore[arg-type]
    assert {each["n"] for each in found.values()} == {*range(len(keys))}
    told = {each["n"]: (name, each.get("key")) for name, each in found.items()}
    assert told[0] == ("a.json", None)
    assert told[1] == ("00000001.json", "a")
    assert told[2] == ("00000002.json", "b.c")
    assert told[3] == ("00000003.json", None)
    assert told[5] == ("d/e.json", None)
    assert told[6] == ("00000006.json", "00000001")


def test_what_fits_into_no_file_is_refused_with_a_way_out(tmp_path: Path) -> None:
    table, schema = tmp_path / "t.jsonl", tmp_path / "s.yaml"
    table.write_text('{"a": ["eA==", "eQ=="], "B": "eA==", "b": "eA=="}\n')
    for features, said in (
        (
            "a: {dtype: bytes, shape: [null]}",
            "lists of bytes cannot be stored as a file",
        ),
        ("B: {dtype: bytes}\n  b: {dtype: bytes}", "KEY.b of a sample"),
    ):
        schema.write_text(f"features:\n  {features}\n")
        out = tmp_path / features[0]
        convert("jsonl", table, out, "--schema", schema)
        tars, folder = tmp_path / f"tars-{features[0]}", tmp_path / f"p-{features[0]}"
        ran = recordmill("export", "webdataset", out, tars)
        assert ran.status == 2
        assert said in ran.err
        assert "recordmill export parquet" in ran.err
        assert not (tars / "_SUCCESS").exists()
        assert export("parquet", out, folder)


@pytest.mark.parametrize("name", ["tfds", "parquet", "webdataset"])
def test_nothing_is_written_beside_other_files(tmp_path: Path, name: str) -> None:
    out, full = tmp_path / "out", tmp_path / "full"
    convert("csv", IRIS, out)
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    ran = recordmill("export", name, out, full)
    assert ran.status == 2
    assert "is not empty; expected a new" in ran.err
    assert recordmill("export", name, out, full / "notes.txt").status == 2
    assert [path.name for path in full.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    assert export(name, out, tmp_path / "empty")


@pytest.mark.parametrize("name", ["parquet", "webdataset"])
def test_of_a_damaged_dataset_nothing_looks_finished(tmp_path: Path, name: str) -> None:
    out, folder = tmp_path / "out", tmp_path / "exported"
    convert("csv", IRIS, out, "--shards", 2)
    shard = out / manifest_of(out)["splits"]["train"]["shards"][1]["file"]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    ran = recordmill("export", name, out, folder)
    assert ran.status not in (0, 2)
    assert str(shard) in ran.err.replace("\n", "")
    assert not (folder / "_SUCCESS").exists()
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["tfds", "parquet", "webdataset"])
def test_stores_take_what_folders_take(tmp_path: Path, name: str) -> None:
    MemoryFileSystem.store.clear()
    out, remote = tmp_path / "iris", "memory://bucket/iris"
    convert("csv", IRIS, out, "--name", "iris", "--compression", "gzip")
    convert("csv", IRIS, remote, "--name", "iris", "--compression", "gzip")
    files = export(name, out, tmp_path / "local")
    assert export(name, remote, f"memory://bucket/{name}") == files
    memory = MemoryFileSystem()
    for file in files:
        data = (tmp_path / "local" / file).read_bytes()
        assert memory.cat_file(f"/bucket/{name}/{file}") == data
    ran = recordmill("export", name, out, f"memory://bucket/{name}")
    assert ran.status == 2
    assert "is not empty; expected a new" in ran.err
    MemoryFileSystem.store.clear()


def test_a_key_of_a_sample_leads_to_no_other_folder(tmp_path: Path) -> None:
    """Who unpacks a shard writes to the folder that he names."""
    table = tmp_path / "t.csv"
    table.write_text("key,x\n../../evil,1\n/etc/evil,2\nb/c,3\n")
    convert("csv", table, tmp_path / "out", "--no-shuffle")
    export("webdataset", tmp_path / "out", tmp_path / "tars")
    with tarfile.open(tmp_path / "tars" / "train-000000.tar") as shard:
        assert shard.getnames() == ["00000000.json", "00000001.json", "b/c.json"]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\x"])
def test_an_export_writes_below_its_folder(tmp_path: Path, name: str) -> None:
    target = LocalStore(str(tmp_path / "export"))
    with pytest.raises(UnsafeNameError), new_file(target, name):
        pass
    assert [*tmp_path.iterdir()] == []
