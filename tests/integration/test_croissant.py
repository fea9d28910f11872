"""mlcroissant accepts the card of a dataset, and reads what needs no TFRecord reader."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from job_tools import SAMPLES, convert, manifest_of
from reader_tools import run_reader

READ = """
import json, sys
import mlcroissant as mlc

dataset = mlc.Dataset(sys.argv[1])
metadata = dataset.metadata
plain = lambda value: value.decode() if isinstance(value, bytes) else value
print(json.dumps({
    "errors": sorted(metadata.ctx.issues.errors),
    "warnings": sorted(metadata.ctx.issues.warnings),
    "name": metadata.name, "version": metadata.version, "url": metadata.url,
    "description": metadata.description, "license": metadata.license,
    "cite": metadata.cite_as,
    "files": [[f.content_url, f.sha256] for f in metadata.distribution],
    "records": {
        each.uuid: [
            {key: plain(value) for key, value in row.items()}
            for row in dataset.records(each.uuid)
        ]
        for each in metadata.record_sets
    },
}))
"""


def test_mlcroissant_accepts_it(tmp_path: Path) -> None:
    out = tmp_path / "photos"
    texts = {
        "description": "Ten photos\n\nof café",
        "license": "https://spdx.org/licenses/CC0-1.0.html",
        "citation": "@misc{photos}",
        "homepage": "https://example.org/photos",
        "contact": "me@example.org",
    }
    words = [word for name, text in texts.items() for word in (f"--{name}", text)]
    halves = ["--split", "train=0.7", "--split", "dev=0.3", "--shards", 2]
    convert("images", SAMPLES / "images", out, "--card", *words, *halves)
    found = json.loads(run_reader(tmp_path, "-c", READ, out / "croissant.json"))
    assert found["errors"] == []
    # The same run gives the same bytes, so no date is in it.
    assert len(found["warnings"]) == 1
    assert "datePublished" in found["warnings"][0]
    assert (found["name"], found["version"]) == ("photos", "1.0.0")
    assert found["url"] == texts["homepage"]
    assert found["description"] == texts["description"]
    assert found["license"] == [texts["license"]]
    assert found["cite"] == texts["citation"]
    shards = sorted(path.name for path in out.glob("*tfrecord*"))
    assert sorted(name for name, _ in found["files"]) == shards
    for name, digest in found["files"]:
        assert digest == sha256((out / name).read_bytes()).hexdigest()
    splits = manifest_of(out)["splits"]
    assert found["records"] == {
        "splits": [
            {"splits/name": name, "splits/records": split["records"]}
            for name, split in splits.items()
        ],
        "label/classes": [
            {"label/classes/name": name, "label/classes/value": value}
            for value, name in enumerate(
                (out / "label.labels.txt").read_text().splitlines()
            )
        ],
    }


def test_nothing_has_to_be_said(tmp_path: Path) -> None:
    out = tmp_path / "iris"
    convert("csv", SAMPLES / "iris" / "iris.csv", out, "--card")
    found = json.loads(run_reader(tmp_path, "-c", READ, out / "croissant.json"))
    assert found["errors"] == []
