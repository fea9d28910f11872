"""Another program writes right before a run does, again and again: both stay whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from adversary_runs import World
from adversary_schedules import with_dataset
from job_tools import states

from recordmill.schemas.errors import BusyError, OutputError
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.commit.cleanup import clean_held
from recordmill.transforms.commit.commit import (
    CommitRecord,
    discard_fixed,
    shut_out_commits,
)
from recordmill.transforms.commit.versions import move_latest
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage import LocalStore


@dataclass(frozen=True)
class RivalStore(LocalStore):
    """A local store in which something happens right before each swap."""

    rival: Callable[[str], None] = lambda _: None

    def swap(self, data: bytes, name: str, *, expected_content: bytes | None) -> bool:
        self.rival(name)
        return super().swap(data, name, expected_content=expected_content)

    def discard(self, name: str, *, expected_content: bytes) -> bool:
        self.rival(name)
        return super().discard(name, expected_content=expected_content)


@pytest.fixture
def dataset(tmp_path: Path, iris: Path) -> Path:
    return shutil.copytree(iris, tmp_path / "iris")


def test_a_fixed_name_that_another_program_writes(dataset: Path) -> None:
    written: list[str] = []

    def write(name: str) -> None:
        written.append(name)
        (dataset / name).write_text(f"{len(written)}")

    store = RivalStore(str(dataset), write)
    manifest = (dataset / "manifest.json").read_bytes()
    with pytest.raises(
        OutputError, match=r"features\.json: another program writes to it; run again"
    ):
        discard_fixed(store, manifest, ["features.json"])
    assert written == ["features.json"] * 20
    assert (dataset / "features.json").read_text() == "20"
    discard_fixed(LocalStore(str(dataset)), manifest, ["features.json"])  # run again
    assert not (dataset / "features.json").exists()


def test_a_fixed_name_is_given_back_to_a_newer_dataset(dataset: Path) -> None:
    """The manifest changes between the look and the removal of a file that it has."""
    path = dataset / "manifest.json"
    manifest, features = path.read_bytes(), (dataset / "features.json").read_bytes()
    newer = Manifest.from_bytes(manifest, "x").model_copy(update={"generation": 9})

    def publish(name: str) -> None:
        path.write_bytes(newer.to_bytes())

    discard_fixed(RivalStore(str(dataset), publish), manifest, ["features.json"])
    assert (dataset / "features.json").read_bytes() == features


@pytest.mark.parametrize("seed", [0, 3, 9])
def test_a_fixed_name_of_a_newer_dataset_stays(dataset: Path, seed: int) -> None:
    """Also if only its seed is another one, below or above that of the old one."""
    path = dataset / "manifest.json"
    newer = Manifest.from_bytes(path.read_bytes(), "x")
    old = newer.model_copy(update={"seed": 3})
    path.write_bytes(newer.model_copy(update={"seed": seed}).to_bytes())
    before = states(dataset).get(str(dataset / "features.json"))
    discard_fixed(LocalStore(str(dataset)), old.to_bytes(), ["features.json"])
    after = states(dataset).get(str(dataset / "features.json"))
    assert after == (before if seed != 3 else None)


def test_latest_json_that_another_program_writes(dataset: Path) -> None:
    manifest = read_manifest(LocalStore(str(dataset)))
    written: list[str] = []

    def write(name: str) -> None:
        written.append(name)
        (dataset / name).write_text(json.dumps({"version": f"0.0.{len(written)}"}))

    store = RivalStore(str(dataset), write)
    with pytest.raises(
        BusyError, match=r"latest\.json: another program writes to it; run again"
    ):
        move_latest(store, manifest)
    assert written == ["latest.json"] * 20
    move_latest(LocalStore(str(dataset)), manifest)  # run again
    assert '"1.0.0"' in (dataset / "latest.json").read_text()


def test_commits_are_shut_out_once_no_other_is_done(dataset: Path) -> None:
    """Cleaning finds a commit that may still be done, and is overtaken by another."""
    path, store = dataset / "manifest.json", LocalStore(str(dataset))
    manifest = read_manifest(store)
    waiting = manifest.model_copy(update={"generation": manifest.generation + 3})
    record = CommitRecord(store, waiting.commit_id)
    record.write(waiting.to_bytes(), path.read_bytes(), {})
    other = manifest.model_copy(update={"fingerprint": "0" * 32})

    def publish(name: str) -> None:
        path.write_bytes(other.to_bytes())

    with pytest.raises(BusyError, match="another run has just published; clean again"):
        shut_out_commits(RivalStore(str(dataset), publish))
    assert read_manifest(store) == other
    clean_held(store, lambda: None, detached=False)  # clean again
    assert read_manifest(store).generation > waiting.generation
    assert not (dataset / ".recordmill").exists()


def test_an_append_to_a_dataset_that_is_replaced_meanwhile() -> None:
    world = World()
    with_dataset(world)
    appending = world.append("b")
    while not any("/staging/" in name for name in world.baton.files):
        world.baton.turn(appending)
    other = world.publish("y", overwrite=True)
    world.baton.finish(other)
    world.baton.finish(appending)
    assert isinstance(appending.error, BusyError)
    assert "changed since this run began, because another run" in str(appending.error)
    assert read_manifest(world.store) == other.result
    world.check_end()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_dataset_that_comes_between_two_steps_of_a_detached_job(
    overwrite: bool,
) -> None:
    """Wherever that is, the job replaces only what it saw as it was launched."""
    for step in range(1000):
        world = World()
        if overwrite:
            with_dataset(world)
        job = world.detach("b", overwrite=overwrite)
        for _ in range(step):
            if job.is_alive:
                world.baton.turn(job)
        if not job.is_alive:
            break
        world.baton.finish(world.publish("y", overwrite=True))
        world.baton.finish(job)
        world.check_end()
