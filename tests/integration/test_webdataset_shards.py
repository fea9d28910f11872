"""Shards that the package webdataset writes: records have what it reads of them itself."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from reader_tools import run_reader

from recordmill import open_dataset
from recordmill.beam_jobs.cli.main import run

# Writes shards from objects that the package encodes, and prints what it decodes.
WRITE_AND_READ = """
import hashlib, json, sys
from pathlib import Path
import numpy as np, webdataset
from PIL import Image

folder = Path(sys.argv[1])
pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
for ending, count in (("tar", 7), ("tar.gz", 2)):
    pattern = str(folder / f"{count}-%03d.{ending}")
    with webdataset.ShardWriter(pattern, maxcount=3, verbose=0) as sink:
        for n in range(count):
            sink.write({
                "__key__": f"part/{count}{n:05d}",
                "jpg": Image.fromarray(pixels + n),
                "left.png": Image.fromarray(pixels[:2] + n),
                "cls": n % 3,
                "txt": f"caf\\u00e9 {n}",
                "json": {"n": n, "box": {"x": [n, 0.5]}},
                "npy": np.full((2, 3), n / 4, np.float32),
                "bin": bytes([0, 255, n]),
            })
shards = sorted(map(str, folder.iterdir()))
read = webdataset.WebDataset(shards, shardshuffle=False).decode(only=[
    "cls", "txt", "json", "npy"])
told = lambda value: (
    hashlib.sha256(value).hexdigest() if isinstance(value, bytes)
    else value.tolist() if isinstance(value, np.ndarray) else value)
print(json.dumps([{key: told(value) for key, value in row.items()} for row in read]))
"""


def test_samples_of_its_writer_are_what_its_reader_reads(tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    expected = json.loads(run_reader(tmp_path, "-c", WRITE_AND_READ, folder))
    assert len(expected) == 9
    out = tmp_path / "out"
    job = ["convert", "webdataset", str(folder), str(out), "--no-shuffle"]
    assert run(job) == 0
    rows = list(open_dataset(str(out), "train"))
    assert len(rows) == 9
    for row, read in zip(rows, expected, strict=True):
        assert row["key"] == read["__key__"]
        assert int(row["cls"]) == read["cls"]
        assert row["txt"] == read["txt"]
        assert int(row["json/n"]) == read["json"]["n"]
        assert row["json/box/x"].tolist() == read["json"]["box"]["x"]
        assert row["npy"].tolist() == read["npy"]
        assert (row["left.png/height"], row["left.png/width"]) == (2, 6)
        for name in ("jpg", "left.png", "bin"):
            assert sha256(row[name]).hexdigest() == read[name]
