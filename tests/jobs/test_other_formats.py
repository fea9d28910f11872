"""Content of another format than the one that is named, and a scheme that lacks a slash."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from archive_tools import zip_of
from frames import frame
from job_tools import IRIS, SAMPLES, recordmill
from pixel_zoo import IMAGES
from tfrecord_tools import example
from webdataset_tools import npy

pytestmark = pytest.mark.usefixtures("without_beam")

TYPED = SAMPLES / "typed"
FILES = {
    "a.png": IMAGES["rgb.png"][0],
    "a.jpg": IMAGES["rgb.jpg"][0],
    "a.wav": (SAMPLES / "sounds/tone/0.wav").read_bytes(),
    "a.csv": b"a,b\n1,2\n3,4\n",
    "a.jsonl": b'{"a": 1}\n{"a": 2}\n',
    "a.parquet": (TYPED / "iris.parquet").read_bytes(),
    "a.arrow": (TYPED / "iris.arrow").read_bytes(),
    "a.xlsx": zip_of({"sheet.xml": IMAGES["rgb.png"][0]}),
    "a.bin": bytes(range(255, 0, -1)) * 9,
    "a.jsonl.gz": gzip.compress(b'{"a": 1}\n{"a": 2}\n'),
    "a.idx3-ubyte": b"\0\0\x08\1\0\0\0\2\1\2",
    "a.npy": npy(np.arange(6).reshape(3, 2)),
    "a.tfrecord": frame([example({"a": 1})]),
    "a.json": b'[\n {"a": 1},\n {"a": 2}\n]\n',
    "a.html": b"<!DOCTYPE html>\n<html><body>a, b</body></html>\n",
    "a.sqlite": b"SQLite format 3\0" + bytes(84),
}


TABLES = "export it to CSV or Parquet first"
EXPORTS = {
    "a ZIP file, such as an Excel file": "unpack it, or save each sheet",
    "an SQLite database": "export it to CSV first, e.g. sqlite3 -header -csv FILE",
    "JSON that is not JSON Lines": "convert it to JSON Lines first, e.g. jq -c",
}


@pytest.mark.parametrize(
    ("source", "name", "what", "other"),
    [
        ("csv", "a.jpg", "an image (jpeg)", "images"),
        ("csv", "a.jsonl", "JSON Lines", "jsonl"),
        ("csv", "a.parquet", "a Parquet file", "parquet"),
        ("csv", "a.xlsx", "a ZIP file, such as an Excel file", ""),
        ("csv", "a.bin", "binary data", ""),
        ("jsonl", "a.png", "an image (png)", "images"),
        ("jsonl", "a.arrow", "an Arrow file", "arrow"),
        ("jsonl", "a.csv", "text with delimiters", "csv"),
        ("parquet", "a.csv", "text with delimiters", "csv"),
        ("parquet", "a.arrow", "an Arrow file", "arrow"),
        ("arrow", "a.csv", "text with delimiters", "csv"),
        ("arrow", "a.jsonl", "JSON Lines", "jsonl"),
        ("parquet", "a.jsonl.gz", "JSON Lines", "jsonl"),
        ("csv", "a.idx3-ubyte", "an IDX file", "idx"),
        ("csv", "a.json", "JSON that is not JSON Lines", ""),
        ("csv", "a.html", "HTML or XML", ""),
        ("jsonl", "a.sqlite", "an SQLite database", ""),
        ("images", "a.csv", "text with delimiters", "csv"),
        ("images", "a.wav", "an audio file", "audio"),
        ("audio", "a.jpg", "an image (jpeg)", "images"),
        ("csv", "a.wav", "an audio file", "audio"),
        ("cifar", "a.npy", "a NumPy array", "numpy"),
        ("idx", "a.tfrecord", "a TFRecord file", "tfrecord"),
        ("numpy", "a.parquet", "a Parquet file", "parquet"),
        ("tfrecord", "a.jsonl.gz", "JSON Lines", "jsonl"),
        ("webdataset", "a.png", "an image (png)", "images"),
    ],
)
def test_content_of_another_format(
    tmp_path: Path, source: str, name: str, what: str, other: str
) -> None:
    path = tmp_path / "cat" / name
    path.parent.mkdir()
    path.write_bytes(FILES[name])
    told = f"{path}: is {what}, not {source}: "
    told += f"use `recordmill convert {other}`" if other else EXPORTS.get(what, TABLES)
    ran = recordmill("convert", source, path, tmp_path / "out")
    assert (ran.status, told in ran.err) == (65, True), ran.err
    ran = recordmill("schema", "infer", source, path)
    assert (ran.status, told in ran.err) == (65, True), ran.err
    if other:  # the way out
        of_images = ("--label-from", "none") if other in ("images", "audio") else ()
        ran = recordmill("convert", other, path, tmp_path / "out", *of_images)
        assert ran.status == 0, ran.err


def test_other_errors_stay_as_they_are(tmp_path: Path) -> None:
    """Also those of compressed files, in which nobody has looked."""
    twice = b"a,a\n1,2\n"
    for name, data in (("t.csv", twice), ("t.csv.gz", gzip.compress(twice))):
        (tmp_path / name).write_bytes(data)
        ran = recordmill("convert", "csv", tmp_path / name, tmp_path / "out")
        assert ran.status
        assert "use `recordmill convert" not in ran.err


def test_deep_brackets_are_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"[" * 5000 + b",b\n1,2\n")
    ran = recordmill("convert", "csv", tmp_path / "t.csv", tmp_path / "out")
    assert ran.status == 0, ran.err


def test_what_lies_beside_the_data_hides_no_error(tmp_path: Path) -> None:
    """Content is of another format only if nothing of the right one is there."""
    place, out = tmp_path / "in", tmp_path / "out"
    place.mkdir()
    (place / "labels.csv").write_text("name,label\nb.png\n")
    for name in "bc":
        (place / f"{name}.png").write_bytes(IMAGES["rgb.png"][0])
    ran = recordmill("convert", "images", place, out, "--label-table", "labels.csv")
    assert ran.status
    assert "labels.csv" in ran.err
    assert "use `recordmill convert" not in ran.err


def test_a_scheme_that_lacks_a_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for places in ((IRIS, "s3:/bucket/out"), ("gs:/bucket/in.csv", "out")):
        ran = recordmill("convert", "csv", *places)
        name = next(each for each in places if ":/" in str(each))
        assert ran.status == 2
        assert f"{name}: has one slash after " in ran.err
        assert f"as in {name[:2]}://bucket/" in ran.err
    assert list(tmp_path.iterdir()) == []
    ran = recordmill("convert", "csv", IRIS, "./s3:/bucket/out")  # the way out
    assert ran.status == 0, ran.err
    assert Path("s3:/bucket/out/manifest.json").exists()
