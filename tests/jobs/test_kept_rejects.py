"""Rejects are kept as well as shards: counted, checksummed, made anew if lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from job_tools import SAMPLES, assert_whole, convert, manifest_of, recordmill
from same_dataset import dataset_of

from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.progress_reader import FinishedTasks
from recordmill.transforms.tasks.workspace import Workspace

OPTIONS = ("--shards", 2, "--max-rejects", "50%")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("in") / "t.csv"
    lines = [f"{n},{n}" if n % 10 else f"{n}" for n in range(1, 101)]
    file.write_text("\n".join(["a,b", *lines, ""]))
    return file


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in") / "images"
    shutil.copytree(SAMPLES / "images", folder)
    for name in ("one.jpg", "two.jpg"):
        (folder / "medicine" / name).write_text(f"{name} is no image\n")
    return folder


def lose(file: Path) -> None:
    file.unlink()


def change(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"position": ', b'"position":1'))


def lose_a_line(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))


DAMAGES = [lose, change, lose_a_line]


def disk_is_full(*_: object) -> None:
    raise OSError("disk is full")


@pytest.mark.parametrize("damage", DAMAGES)
def test_lost_ones_are_seen_and_made_anew(
    table: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    output = tmp_path / "out"
    convert("csv", table, output, *OPTIONS)
    assert manifest_of(output)["rejects"]["rows"] == 10
    before = dataset_of(output)
    [file] = (output / "rejects").iterdir()
    damage(file)
    found = verify_dataset(str(output)).problems
    assert [(problem.file, problem.kind) for problem in found] == [
        ("rejects", "damage")
    ]
    assert verify_dataset(str(output), full=False).ok == (damage is change)
    if damage is not change:
        ran = recordmill("rejects", output)
        lost = 1 if damage is lose_a_line else 10
        assert f"{lost} of the 10 rejects " in ran.err
        assert "Convert again with --overwrite" in ran.err
    ran = convert("csv", table, output, *OPTIONS, "--overwrite", "--json")
    assert json.loads(ran.out)["status"] == "done"
    assert dataset_of(output) == before
    assert_whole(output)
    assert recordmill("rejects", output).err == ""


def test_made_anew_with_another_exchange(images: Path, tmp_path: Path) -> None:
    """Its rejects are in files of other names; the old ones are not counted again."""
    output = tmp_path / "out"
    job = ("images", images, output, *OPTIONS)
    convert(*job, "--exchange", "reference")
    before = dataset_of(output)
    old = {file.name for file in (output / "rejects").iterdir()}
    next((output / "rejects").iterdir()).write_bytes(b"")
    convert(*job, "--exchange", "scratch", "--overwrite", "--grace", "0")
    assert_whole(output)
    assert not old & {file.name for file in (output / "rejects").iterdir()}
    after = dataset_of(output)
    assert {n: after[n] for n in after if not n.startswith("rejects")} == {
        n: before[n] for n in before if not n.startswith("rejects")
    }


def test_every_exchange_gives_the_same_manifest(
    images: Path, table: Path, tmp_path: Path
) -> None:
    for source, inputs, exchanges in (
        ("images", images, ("scratch", "reference", "engine")),
        ("csv", table, ("scratch", "engine")),
    ):
        manifests = []
        for exchange in exchanges:
            output = tmp_path / exchange / source
            convert(source, inputs, output, *OPTIONS, "--exchange", exchange)
            manifests.append((output / "manifest.json").read_bytes())
            assert_whole(output)
        assert set(manifests) == {manifests[0]}
        assert json.loads(manifests[0])["rejects"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("exchange", ["scratch", "reference", "engine"])
def test_a_resumed_run_makes_lost_ones_anew(
    images: Path, tmp_path: Path, exchange: str, damage: Callable[[Path], None]
) -> None:
    output = tmp_path / "out"
    job = ["convert", "images", images, output, *OPTIONS, "--exchange", exchange]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", disk_is_full)
        assert recordmill(*job).status == 1
    for file in output.glob(".recordmill/*/rejects/*.jsonl"):
        damage(file)
    ran = recordmill(*job)
    assert ran.status == 0, ran.err
    assert_whole(output)
    assert manifest_of(output)["rejects"]["rows"] == 2


def test_lost_between_the_last_range_and_the_commit(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is published; the same command mends it, as the message says."""
    from recordmill.transforms.commit import staging

    build = staging.build_manifest

    def lose_and_build(context, *arguments):  # type: ignore[no-untyped-def]
        for file in tmp_path.glob("out/.recordmill/*/rejects/*.jsonl"):
            file.unlink()
        return build(context, *arguments)

    job = ["convert", "csv", table, tmp_path / "out", *OPTIONS]
    with monkeypatch.context() as patch:
        patch.setattr(staging, "build_manifest", lose_and_build)
        ran = recordmill(*job)
    assert ran.status == 1
    assert "rejects: 0 bytes, expected" in ran.err
    assert "run again to write them anew" in ran.err
    assert recordmill(*job).status == 0
    assert_whole(tmp_path / "out")


def test_appended_ones_are_added(table: Path, tmp_path: Path) -> None:
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    shutil.copyfile(table, folder / "a.csv")
    job = ("csv", folder, output, *OPTIONS)
    convert(*job)
    shutil.copyfile(table, folder / "b.csv")
    convert(*job, "--append")
    facts = manifest_of(output)
    assert facts["rows_rejected"] == 20
    assert facts["rejects"]["rows"] == 20
    assert_whole(output)
    next((output / "rejects").iterdir()).unlink()
    [problem] = verify_dataset(str(output)).problems
    assert problem.message == "10 rejects, expected 20"


@pytest.mark.parametrize("exchange", ["scratch", "reference", "engine"])
def test_counted_while_the_run_goes_on(
    images: Path, tmp_path: Path, exchange: str
) -> None:
    """Once each, whether a range, a shard or a second reading finds them."""
    output = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", disk_is_full)
        job = ["convert", "images", images, output, *OPTIONS, "--exchange", exchange]
        assert recordmill(*job).status == 1
    [folder] = output.glob(".recordmill/[0-9a-f]*")
    workspace = Workspace.of(LocalStore(str(output)), folder.name)
    finished = FinishedTasks(workspace)
    finished.look(now=True)
    assert finished.rows_rejected() == 2
    assert finished.rows_rejected() == 2
