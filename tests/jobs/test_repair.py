"""Damage of a dataset: what verify says of it, and that the ways out it names work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from job_tools import (
    IRIS,
    SAMPLES,
    Ran,
    assert_whole,
    convert,
    manifest_of,
    recordmill,
    shards_of,
)
from same_dataset import dataset_of

from recordmill.transforms.commit import commit as committing
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.storage import open_store

JOB = ("images", SAMPLES / "images")
OPTIONS = ("--shards", 2, "--name", "zoo")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("whole") / "zoo"
    convert(*JOB, output, *OPTIONS)
    return output


@pytest.fixture
def dataset(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "zoo"))


def lose(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def change(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


DAMAGES = [lose, cut, change]


def problem_files(folder: Path, *, full: bool = True) -> set[str]:
    found = verify_dataset(str(folder), full=full).problems
    assert {problem.kind for problem in found} <= {"damage"}
    return {problem.file for problem in found}


def convert_again(folder: Path, *options: str) -> Ran:
    return recordmill("convert", *JOB, folder, *OPTIONS, *options)


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_is_looked_at(dataset: Path, damage: Callable[[Path], None]) -> None:
    """All but the manifest itself, and what differs from run to run."""
    unnamed = {"manifest.json", "run.json", "inventory.jsonl.gz"}
    files = {file.name for file in dataset.iterdir()} - unnamed
    assert len(files) == 2 + 5
    for name in sorted(files):
        kept = (dataset / name).read_bytes()
        damage(dataset / name)
        assert problem_files(dataset) == {name}
        assert problem_files(dataset, full=False) == (
            set() if damage is change else {name}
        )
        (dataset / name).write_bytes(kept)
    assert not problem_files(dataset)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["shard", "metadata"])
def test_overwrite_makes_a_damaged_dataset_anew(
    whole: Path, dataset: Path, which: str, damage: Callable[[Path], None]
) -> None:
    names = (
        [shards_of(dataset)[1].name]
        if which == "shard"
        else list(manifest_of(dataset)["files"])
    )
    for name in names:
        damage(dataset / name)
    ran = recordmill("verify", dataset)
    assert ran.status == 1
    assert "is damaged. Convert again with --overwrite to make it anew" in ran.out
    ran = convert_again(dataset, "--overwrite", "--json")
    assert json.loads(ran.out)["status"] == "done", ran.err
    assert dataset_of(dataset) == dataset_of(whole)
    assert_whole(dataset)


def test_overwrite_leaves_a_whole_dataset(dataset: Path) -> None:
    (dataset / "zoo-train.tfrecord-00007-of-00009").write_bytes(b"not ours")
    before = {file: file.stat().st_ino for file in dataset.iterdir()}
    ran = convert_again(dataset, "--overwrite", "--json")
    assert json.loads(ran.out)["status"] == "unchanged", ran.err
    assert {file: file.stat().st_ino for file in dataset.iterdir()} == before


def test_plan_says_that_it_is_replaced(dataset: Path) -> None:
    cut(shards_of(dataset)[0])
    ran = convert_again(dataset, "--overwrite", "--plan", "--json")
    assert json.loads(ran.out)["verdict"] == "replace"


def test_a_manifest_that_contradicts_itself(whole: Path, dataset: Path) -> None:
    facts = manifest_of(dataset)
    facts["rows_read"] += 1
    (dataset / "manifest.json").write_text(json.dumps(facts))
    assert recordmill("verify", dataset).status == 1
    assert convert_again(dataset, "--overwrite").status == 0
    assert dataset_of(dataset) == dataset_of(whole)


def test_killed_while_it_is_made_anew(
    whole: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are moved, but not the manifest."""
    lose(shards_of(dataset)[0])
    with monkeypatch.context() as patch:
        patch.setattr(committing, "require_stored", _fail)
        assert convert_again(dataset, "--overwrite").status == 1
    ran = convert_again(dataset, "--overwrite")
    assert ran.status == 0, ran.err
    assert dataset_of(dataset) == dataset_of(whole)
    assert_whole(dataset)


def _fail(*_: object, **__: object) -> None:
    raise OSError("killed")


def test_a_stray_file_is_named_and_deleted(dataset: Path) -> None:
    stray = dataset / "zoo-train.tfrecord-00007-of-00009"
    stray.write_bytes(b"")
    ran = recordmill("verify", dataset)
    assert ran.status == 1
    assert "Delete those that the table names" in ran.out
    assert "--overwrite" not in ran.out
    stray.unlink()
    assert recordmill("verify", dataset).status == 0


@pytest.mark.parametrize("way", ["--overwrite", "remove"])
def test_the_ways_out_of_a_lost_shard(dataset: Path, way: str) -> None:
    lose(shards_of(dataset)[0])
    ran = convert_again(dataset)
    assert ran.status == 73
    assert (
        "The dataset is damaged: convert again with --overwrite, or remove its folder "
        "and convert again"
    ) in ran.err
    if way == "remove":
        shutil.rmtree(dataset)
    assert convert_again(dataset, *([way] if way != "remove" else [])).status == 0
    assert_whole(dataset)


def test_the_way_out_where_versions_are_chosen(tmp_path: Path) -> None:
    job = ("csv", IRIS, tmp_path / "out", "--dataset-version", "auto")
    convert(*job)
    lose(shards_of(tmp_path / "out" / "1.0.0")[0])
    ran = recordmill("verify", tmp_path / "out" / "1.0.0")
    assert (
        "Where --dataset-version auto chose its version, remove its folder" in ran.out
    )
    shutil.rmtree(tmp_path / "out" / "1.0.0")
    convert(*job)
    assert_whole(tmp_path / "out" / "1.0.0")
    assert (
        json.loads((tmp_path / "out" / "latest.json").read_bytes())["path"] == "1.0.0"
    )


def test_an_append_keeps_the_entries(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copyfile(IRIS, folder / "a.csv")
    job = ("csv", folder, tmp_path / "out")
    convert(*job)
    first: dict[str, Any] = manifest_of(tmp_path / "out")["files"]
    shutil.copyfile(IRIS, folder / "b.csv")
    convert(*job, "--append")
    files = manifest_of(tmp_path / "out")["files"]
    assert files.keys() == (first.keys() | {"inputs-a00001.jsonl.gz"}) - {
        "dataset_info.json",  # TFDS reads one part only
        "features.json",
    }
    assert files["inputs.jsonl.gz"] == first["inputs.jsonl.gz"]
    for name in files:
        assert (tmp_path / "out" / name).exists()
    assert_whole(tmp_path / "out")
    lose(tmp_path / "out" / "inputs.jsonl.gz")
    assert problem_files(tmp_path / "out") == {"inputs.jsonl.gz"}
    assert recordmill("convert", *job, "--append").status == 73
    convert(*job, "--overwrite")
    assert_whole(tmp_path / "out")


def test_in_a_store() -> None:
    output = f"memory://repair-{uuid4().hex}/zoo"
    convert(*JOB, output, *OPTIONS)
    store = open_store(output)
    shard = next(name for name in store.list() if ".tfrecord" in name)
    store.delete([shard])
    store.put_bytes(b"", "features.json")
    files = {problem.file for problem in verify_dataset(output, full=False).problems}
    assert files == {shard, "features.json"}
    convert(*JOB, output, *OPTIONS, "--overwrite")
    assert verify_dataset(output).ok


def test_records_that_were_written_so(tmp_path: Path) -> None:
    """Only other inputs help: the same ones would be written in the same way."""
    folder = Path(shutil.copytree(SAMPLES / "images", tmp_path / "in"))
    whole = next(folder.rglob("*.jpg"))
    cut_one = whole.parent / "cut.jpg"
    cut_one.write_bytes(whole.read_bytes()[:-500])
    job = ("images", folder, tmp_path / "out", "--check-images", "header")
    convert(*job)
    ran = recordmill("verify", tmp_path / "out", "--deep")
    assert ran.status == 1
    assert (
        "Mend the inputs or the schema, and convert again with --overwrite" in ran.out
    )
    assert "is damaged" not in ran.out
    cut_one.write_bytes(whole.read_bytes())
    convert(*job, "--overwrite")
    assert recordmill("verify", tmp_path / "out", "--deep").status == 0
