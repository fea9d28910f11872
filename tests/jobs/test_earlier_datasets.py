"""Datasets and unfinished runs of an earlier commit: verified, appended to, resumed.

What they are and how they were made stands in tests/data/earlier/README.md.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from job_tools import GOLDEN, convert, recordmill

from recordmill.schemas.names import commit_mark, staged_file_name
from recordmill.schemas.text import json_bytes
from recordmill.transforms.exchange.sorted_run_store import LocalSortedRuns

EARLIER = GOLDEN.parent / "earlier"
MODIFIED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
OPTIONS = ("--shards", 2, "--seed", 7)
SOURCES = ("csv", "cifar", "images")
MORE = {"csv": "b.csv", "cifar": "data_batch_2.bin", "images": "dog/e.png"}
COPIED = {"csv": "a.csv", "cifar": "data_batch_1.bin", "images": "dog/d.png"}


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """The inputs with the modification time that the datasets remember."""
    root = tmp_path / "in"
    shutil.copytree(GOLDEN / "images", root / "images")
    for name, copy in (
        ("tutorial.csv", "csv/a.csv"),
        ("cifar10.bin", "cifar/data_batch_1.bin"),
    ):
        (root / copy).parent.mkdir()
        shutil.copyfile(GOLDEN / name, root / copy)
    for file in root.rglob("*"):
        if file.is_file():
            os.utime(file, (MODIFIED, MODIFIED))
    return root


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EARLIER / "whole", tmp_path / "out"))


def shards(folder: Path) -> dict[str, bytes]:
    """The shards, manifest and files for readers; not when and how long a run took.

    Nor the list of inputs, the fingerprint by their content, the entries of metadata
    files and the marks in names: these are other ones by now.
    """
    others = ("run.json", "inputs.jsonl.gz", "inventory.jsonl.gz")
    found = {
        staged_file_name(file.name): file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and file.name not in others
    }
    facts = json.loads(found["manifest.json"])
    facts.pop("files", None)  # none of these inputs has rejects
    facts.pop("generation", None)
    for split in facts["splits"].values():
        for shard in split["shards"]:
            shard["file"] = staged_file_name(shard["file"])
    mark = commit_mark(facts.pop("fingerprint"), 0)
    if "dataset_info.json" in found:
        info = found["dataset_info.json"]
        found["dataset_info.json"] = info.replace(b"." + mark.encode(), b"")
    return found | {"manifest.json": json_bytes(facts)}


@pytest.mark.parametrize("source", SOURCES)
def test_the_same_bytes(source: str, inputs: Path, tmp_path: Path) -> None:
    convert(source, inputs / source, tmp_path / source, *OPTIONS)
    assert shards(tmp_path / source) == shards(EARLIER / "whole" / source)


@pytest.mark.parametrize("source", SOURCES)
def test_verified(source: str, outputs: Path) -> None:
    ran = recordmill("verify", outputs / source, "--deep")
    assert ran.status == 0, ran.err


@pytest.mark.parametrize("source", SOURCES)
def test_nothing_to_do(source: str, inputs: Path, outputs: Path) -> None:
    ran = convert(source, inputs / source, outputs / source, *OPTIONS, "--json")
    assert '"status": "unchanged"' in ran.out


@pytest.mark.parametrize("source", SOURCES)
def test_appended_to(source: str, inputs: Path, outputs: Path) -> None:
    folder = inputs / source
    shutil.copyfile(folder / COPIED[source], folder / MORE[source])
    before = shards(outputs / source)
    convert(source, folder, outputs / source, *OPTIONS, "--append")
    after = shards(outputs / source)
    old = {name for name in before if ".tfrecord" in name}
    assert all(after[name] == before[name] for name in old)
    assert len([name for name in after if ".tfrecord" in name]) > len(old)
    assert recordmill("verify", outputs / source).status == 0


@pytest.mark.parametrize("source", SOURCES)
def test_resumed(
    source: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out" / source
    shutil.copytree(EARLIER / "unfinished" / source, output / ".recordmill")
    [range_checkpoint] = output.glob(".recordmill/*/facts/range-*.json")
    text = range_checkpoint.read_text()
    range_checkpoint.write_text(text.replace("@INPUT@", str(inputs)))

    def refuse(*_: object) -> None:
        raise AssertionError("a finished range was converted again")

    monkeypatch.setattr(LocalSortedRuns, "save", refuse)
    convert(source, inputs / source, output, *OPTIONS)
    assert shards(output) == shards(EARLIER / "whole" / source)
