"""WebDataset shards by the command: features, rejects, appends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from archive_tools import compressed_tar_of, tar_of
from job_tools import convert, examples_of, manifest_of, payloads, recordmill, shards_of
from pixel_zoo import IMAGES
from webdataset_tools import npy

from recordmill import open_dataset

JPEG, PNG = IMAGES["rgb.jpg"][0], IMAGES["rgb.png"][0]


def sample(n: int) -> dict[str, bytes]:
    """The files of a sample that has all kinds."""
    return {
        f"d/{n}.jpg": JPEG,
        f"d/{n}.left.PNG": PNG,
        f"d/{n}.cls": b"%d\n" % n,
        f"d/{n}.txt": f"caf\xe9 {n}".encode(),
        f"d/{n}.json": b'{"key": "%d", "box": {"x": [1, 2.5]}}' % n,
        f"d/{n}.npy": npy(np.arange(6, dtype=">u2").reshape(2, 3) + n),
        f"d/{n}.mp4": b"\0\xff",
    }


def joined(*samples: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for each in samples for name, data in each.items()}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return list(open_dataset(str(folder), "train"))


def test_each_kind_of_file_is_a_feature(tmp_path: Path) -> None:
    """A bad sample costs itself; the text of one is missing."""
    bad = {**sample(2), "d/2.cls": b"cat"}
    fewer = {name: data for name, data in sample(3).items() if "txt" not in name}
    members = {"__info__": b"{}", **joined(sample(1), bad, fewer, sample(4))}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.tar").write_bytes(tar_of(members))
    (tmp_path / "in/b.tgz").write_bytes(compressed_tar_of(sample(5), "gzip"))
    (tmp_path / "in/notes.txt").write_text("x")
    ran = convert(
        *("webdataset", tmp_path / "in", tmp_path / "out", "--no-shuffle"),
        *("--max-rejects", 1),
    )
    assert "cls: found b'cat', expected an integer" in ran.err
    assert "__info__" in ran.err + ran.out
    assert "notes.txt" in ran.err + ran.out
    rows = rows_of(tmp_path / "out")
    assert [int(row["cls"]) for row in rows] == [1, 3, 4, 5]
    assert [row["txt"] for row in rows] == ["caf\xe9 1", None, "caf\xe9 4", "caf\xe9 5"]
    first = rows[0]
    assert (first["key"], first["json/key"]) == ("d/1", "1")
    assert first["json/box/x"].tolist() == [1, 2.5]
    assert first["npy"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (first["jpg/height"], first["left.png/width"]) == (5, 7)
    example = next(examples_of(tmp_path / "out")).features.feature
    assert example["left.png"].bytes_list.value[0] == PNG
    assert example["mp4"].bytes_list.value[0] == b"\0\xff"
    features = {f["name"]: f for f in manifest_of(tmp_path / "out")["features"]}
    assert features["jpg"]["content"] == "picture"
    assert features["jpg"]["shape"] == [None, None, None]
    assert [name for name, f in features.items() if f["optional"]] == ["txt"]
    checked = recordmill("verify", tmp_path / "out", "--deep")
    assert checked.status == 0, checked.err


def test_shards_are_appended(tmp_path: Path) -> None:
    """To what the dataset has: a sample without a value of it is a reject."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    (folder / "b.tar").write_bytes(tar_of(joined(sample(1), sample(2))))
    convert("webdataset", folder, out)
    first = [list(payloads(path)) for path in shards_of(out)]
    fewer = {name: data for name, data in sample(4).items() if "cls" not in name}
    (folder / "a.tar").write_bytes(tar_of(joined(sample(3), fewer)))
    ran = convert("webdataset", folder, out, "--append", "--max-rejects", 1)
    assert "cls: missing; every record of the dataset has it" in ran.err
    assert {row["key"] for row in rows_of(out)} == {"d/1", "d/2", "d/3"}
    assert [list(payloads(path)) for path in shards_of(out)][: len(first)] == first
    checked = recordmill("verify", out, "--deep")
    assert checked.status == 0, checked.err


def test_a_schema_takes_what_samples_differ_in(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    objects = {"1.json": b'{"a": 1, "o": [{}]}', "2.json": b'{"b": "new", "a": 2.5}'}
    shard.write_bytes(tar_of(objects))
    ran = recordmill("convert", "webdataset", shard, tmp_path / "out")
    assert "'json/o': lists of objects" in ran.err
    assert "(--schema)" in ran.err
    (tmp_path / "s.yaml").write_text("features:\n  json/a: float32\n  key: string\n")
    convert(
        *("webdataset", shard, tmp_path / "out", "--no-shuffle"),
        *("--schema", tmp_path / "s.yaml"),
    )
    rows = rows_of(tmp_path / "out")
    assert [(row["key"], float(row["json/a"])) for row in rows] == [
        ("1", 1),
        ("2", 2.5),
    ]
    shard.write_bytes(tar_of({"1.json": b'{"a": 3}', "1.id": b"not a number"}))
    ran = recordmill("convert", "webdataset", shard, tmp_path / "other")
    assert "id: found b'not a number', expected an integer" in ran.err
    assert "columns that it does not name (--schema)" in ran.err
    convert("webdataset", shard, tmp_path / "b", "--schema", tmp_path / "s.yaml")
    assert [float(row["json/a"]) for row in rows_of(tmp_path / "b")] == [3]


def test_columns_are_labels_and_splits(tmp_path: Path) -> None:
    """Beside images, whose type flags are not those of columns."""
    shard = tmp_path / "a.tar"
    shard.write_bytes(tar_of(joined(*map(sample, range(3)))))
    roles = ("--label", "txt", "--split-column", "json/key")
    convert("webdataset", shard, tmp_path / "out", *roles)
    names = (tmp_path / "out/txt.labels.txt").read_text().splitlines()
    found = {
        (split, names[int(row["txt"])])
        for split in manifest_of(tmp_path / "out")["splits"]
        for row in open_dataset(str(tmp_path / "out"), split)
    }
    assert found == {(f"{n}", f"caf\xe9 {n}") for n in range(3)}
