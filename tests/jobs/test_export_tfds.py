"""recordmill export tfds: shards under the names by which TFDS finds them.

That TFDS finds all rows there: tests/integration/test_same_rows.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_tools import (
    GOLDEN,
    IRIS,
    convert,
    manifest_of,
    payloads,
    recordmill,
    shards_of,
)

from recordmill.transforms.dataset import tfds as export_tfds


def not_here(*_: Any) -> None:
    raise OSError(18, "Invalid cross-device link")


def exported(output: Path) -> Path:
    folder = output.with_name("exported")
    ran = recordmill("export", "tfds", output, folder)
    assert ran.status == 0, ran.err
    return folder


def splits_of(folder: Path) -> dict[str, list[Path]]:
    """Returns the shards of each split, found as TFDS does: by the pattern."""
    info = json.loads((folder / "dataset_info.json").read_text())
    found = {}
    for split in info["splits"]:
        lengths = [int(length) for length in split["shardLengths"]]
        pattern = split["filepathTemplate"]
        assert pattern == "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        start = f"{info['name']}-{split['name']}.{info['fileFormat']}"
        shards = [
            folder / f"{start}-{number:05d}-of-{len(lengths):05d}"
            for number in range(len(lengths))
        ]
        assert [len(list(payloads(shard))) for shard in shards] == lengths
        found[split["name"]] = shards
    return found


def records(shards: list[Path]) -> list[bytes]:
    return [data for shard in shards for data in payloads(shard)]


def test_appended_parts_become_one(tmp_path: Path) -> None:
    output = tmp_path / "out"
    for part in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        lines = [f"{part * 10 + row},x" for row in range(10)]
        (tmp_path / "in" / f"{part}.csv").write_text("\n".join(["a,b", *lines]))
        options = ["--split", "train=0.5", "--split", "test=0.5", "--shards", 2]
        convert("csv", tmp_path / "in", output, "--append", *options)
    assert not (output / "dataset_info.json").exists()
    splits = splits_of(exported(output))
    assert set(splits) == set(manifest_of(output)["splits"])
    for split, shards in splits.items():
        assert records(shards) == records(shards_of(output, split))
        same = zip(shards, shards_of(output, split), strict=True)
        assert all(one.samefile(other) for one, other in same)  # linked


def test_gzip_is_left_out(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--compression", "gzip", "--shards", 2)
    (shards,) = splits_of(exported(output)).values()
    assert records(shards) == records(shards_of(output))


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    convert("cifar", GOLDEN / "cifar10.bin", output)
    monkeypatch.setattr(export_tfds.os, "link", not_here)
    folder = exported(output)
    (shards,) = splits_of(folder).values()
    assert records(shards) == records(shards_of(output))
    assert not shards[0].samefile(shards_of(output)[0])
    for name in ("features.json", "label.labels.txt"):
        assert (folder / name).read_bytes() == (output / name).read_bytes()


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("change", ["cut", "flip"])
def test_a_damaged_shard_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, change: str
) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--compression", compression)
    (shard,) = shards_of(output)
    data = bytearray(shard.read_bytes())
    if change == "cut":
        del data[-1]
    else:
        data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    monkeypatch.setattr(export_tfds.os, "link", not_here)  # a link is not verified
    ran = recordmill("export", "tfds", output, tmp_path / "exported")
    assert ran.status == 1
    assert str(shard) in ran.err.replace("\n", "")
    assert "recordmill verify" in ran.err
    assert not (tmp_path / "exported" / "dataset_info.json").exists()
    assert recordmill("verify", output).status == 1  # the remedy shows it


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--payload", "json")
    ran = recordmill("export", "tfds", output, tmp_path / "exported")
    assert ran.status == 2
    assert "payload json, and TFDS reads example alone" in ran.err
    assert recordmill("inspect", output, "--tf").status == 0  # the first remedy
    convert("csv", IRIS, tmp_path / "again", "--payload", "example")  # and the other
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    ran = recordmill("export", "tfds", tmp_path / "again", tmp_path / "full")
    assert ran.status == 2
    assert "there is something in it" in ran.err
    again = recordmill("export", "tfds", tmp_path / "again", tmp_path / "new", "--json")
    assert "dataset_info.json" in json.loads(again.out)["files"]
