"""Hugging Face datasets and webdataset read what `recordmill export` writes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from job_tools import SAMPLES, convert, recordmill
from reader_tools import run_reader
from sounds import sound

from recordmill import read_rows

READ_PARQUET = """
import hashlib, json, sys
import datasets

found = datasets.load_dataset(sys.argv[1])
features = next(iter(found.values())).features
plain = found.cast_column("image", datasets.Image(decode=False))
print(json.dumps({
    "names": features["label"].names,
    "image": type(features["image"]).__name__,
    "sizes": {split: [row["image"].size for row in rows] for split, rows in found.items()},
    "rows": {
        split: [
            [hashlib.sha256(row["image"]["bytes"]).hexdigest(), row["label"], row["filename"]]
            for row in rows
        ]
        for split, rows in plain.items()
    },
}))
"""
READ_AUDIO = """
import hashlib, json, sys
import datasets

(found,) = datasets.load_dataset(sys.argv[1]).values()
feature = type(found.features["audio"]).__name__
plain = found.cast_column("audio", datasets.Audio(decode=False))
sums = [hashlib.sha256(row["audio"]["bytes"]).hexdigest() for row in plain]
print(json.dumps([feature, sums]))
"""
READ_TARS = """
import hashlib, json, sys
import webdataset

read = webdataset.WebDataset(sys.argv[1:], shardshuffle=False).decode(
    only=["cls", "json"])
for row in read:
    image = row.get("png") or row.get("jpg")
    print(json.dumps([row["__key__"], hashlib.sha256(image).hexdigest(), row["cls"],
                      row["json"]["filename"]]))
"""
HALVES = ["--split", "part_a=0.6", "--split", "part_b=0.4", "--compression", "gzip"]


def rows_of(folder: Path, split: str) -> list[list[object]]:
    return [
        [sha256(row["image"]).hexdigest(), int(row["label"]), row["filename"]]
        for row in read_rows(folder, split)
    ]


def test_datasets_reads_images_and_class_labels(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / "parquet"
    convert("images", SAMPLES / "images", out, *HALVES)
    assert recordmill("export", "parquet", out, folder).status == 0
    found = json.loads(run_reader(tmp_path, "-c", READ_PARQUET, folder))
    assert found["image"] == "Image"
    assert found["names"] == (out / "label.labels.txt").read_text().split()
    expected = {split: rows_of(out, split) for split in ("part_a", "part_b")}
    assert found["rows"] == expected
    assert found["sizes"] == {
        split: [[row["width"], row["height"]] for row in read_rows(out, split)]
        for split in expected
    }


def test_datasets_reads_audio(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / "parquet"
    (tmp_path / "in/a").mkdir(parents=True)
    for number, form in enumerate(("16.wav", "16.flac", "vorbis.ogg", "layer3.mp3")):
        (tmp_path / f"in/a/{number}.{form}").write_bytes(sound(form))
    convert("audio", tmp_path / "in", out)
    assert recordmill("export", "parquet", out, folder).status == 0
    feature, sums = json.loads(run_reader(tmp_path, "-c", READ_AUDIO, folder))
    assert feature == "Audio"
    assert sums == [sha256(row["audio"]).hexdigest() for row in read_rows(out)]


def test_webdataset_reads_images_labels_and_values(tmp_path: Path) -> None:
    out, folder = tmp_path / "out", tmp_path / "tars"
    convert("images", SAMPLES / "images", out, *HALVES, "--shards", 2)
    assert recordmill("export", "webdataset", out, folder).status == 0
    for split in ("part_a", "part_b"):
        tars = sorted(folder.glob(f"{split}-*.tar"))
        assert len(tars) == 2
        read = run_reader(tmp_path, "-c", READ_TARS, *tars).splitlines()
        keys, rows = [], []
        for key, *row in map(json.loads, read):
            keys.append(key)
            rows.append(row)
        assert keys == [f"{number:08d}" for number in range(len(keys))]
        assert rows == rows_of(out, split)
