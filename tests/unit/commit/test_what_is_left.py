"""What is removed of dead runs, and of versions that were never whole; what stays."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from adversary_runs import NOWHERE, World
from adversary_schedules import with_dataset
from plain_manifests import plain_context, plain_manifest

from recordmill.schemas.errors import BusyError
from recordmill.transforms.commit import staging
from recordmill.transforms.commit.cleanup import clean
from recordmill.transforms.commit.commit import discard_fixed
from recordmill.transforms.commit.staging import (
    acquire_for_commit,
    discard_read_checkpoints,
)
from recordmill.transforms.commit.versions import clear_unfinished
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage import LocalStore, Store, open_store
from recordmill.transforms.tasks.launches import begin_launch
from recordmill.transforms.tasks.workspace import Workspace, work_folder_of

RUN = "0123456789abcdef"
JOB = "job-0123456789ab"
ROWS = "rows-0123456789a"


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return open_store(f"memory://{uuid.uuid4().hex}/out")


def test_what_runs_for_a_store_left_on_this_machine(remote: Store) -> None:
    remote.put_bytes(plain_manifest([]).to_bytes(), "manifest.json")
    begin_launch(Workspace.for_run(remote, JOB), "f" * 32)
    place = Path(work_folder_of(remote.uri))
    for name in ("notes", RUN, ROWS, JOB):
        (place / name / "runs").mkdir(parents=True)
        (place / name / "runs" / "1").write_bytes(b"12345")
    (place / ("0" * 16)).symlink_to(place / "notes")
    mine = {str(place / name / "runs" / "1"): 5 for name in (RUN, ROWS)}
    for dry_run in (True, False):
        found = clean(remote, dry_run=dry_run)
        assert found.files == mine
        assert [launch.name for launch in found.active_launches] == [JOB]
        names = {"notes", JOB, "0" * 16}
        assert {path.name for path in place.iterdir()} == (
            names | {RUN, ROWS} if dry_run else names
        )
    assert len(clean(remote, detached=True).files) == 2  # its sign of life, and here
    assert {path.name for path in place.iterdir()} == {"notes", "0" * 16}


def test_what_was_read_is_forgotten_and_no_more(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    work = Workspace.for_run(store, RUN)
    work.make_folders()
    kept = ["plan.json", "range-1", "exchange"]
    for name in (*kept, "range-1.json", "range-12.json", "shard-train-0.json"):
        work.write_file(f"facts/{name}", b"x")
    discard_read_checkpoints(plain_context(work))
    assert work.list_names("facts") == sorted(kept)


def test_a_version_that_was_never_whole(tmp_path: Path) -> None:
    """All of it goes, but of the one that is made now only what another run left."""
    store = LocalStore(str(tmp_path))
    for version in ("1.0.0", "1.0.1", "1.0.2"):
        for name in ("d-1", f".recordmill/{RUN}/facts/x", ".recordmill/other/y"):
            store.put_bytes(b"x", f"{version}/{name}")
    for version in ("1.0.0", "1.0.1", "1.0.2"):
        assert clear_unfinished(store, version, ".".join("101")) == [RUN]
    assert [*store.list()] == ["1.0.1/.recordmill/other/y", "1.0.1/d-1"]
    assert [path.name for path in tmp_path.iterdir()] == ["1.0.1"]


def test_a_version_whose_run_may_still_publish(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    stay = ["1.0.1/.recordmill/commit-01234567/manifest.json", "1.0.1/d-1"]
    for name in (*stay, f"1.0.1/.recordmill/{RUN}/facts/x"):
        store.put_bytes(b"x", name)
    assert clear_unfinished(store, "1.0.1", "1.0.2") == [RUN]
    assert [*store.list()] == stay
    store.put_bytes(b"x", "1.0.1/manifest.json")
    store.put_bytes(b"x", f"1.0.1/.recordmill/{RUN}/facts/x")
    assert clear_unfinished(store, "1.0.1", "1.0.2") == []


@pytest.mark.parametrize("failures", [0, 1, 5, 6])
def test_tries_to_get_the_lease(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    """A worker that died in this step held it."""
    paused: list[float] = []
    tried = iter([BusyError("busy")] * failures)

    def acquire(store: Store) -> str:
        if error := next(tried, None):
            raise error
        return "the lease"

    monkeypatch.setattr(staging, "acquire", acquire)
    monkeypatch.setattr(staging.time, "sleep", paused.append)
    store = LocalStore(NOWHERE)
    if failures < 6:
        assert str(acquire_for_commit(store)) == "the lease"
    else:
        with pytest.raises(BusyError, match="busy"):
            acquire_for_commit(store)
    assert paused == [20.0] * min(failures, 5)


def test_a_fixed_name_that_a_newer_dataset_does_not_have() -> None:
    """What is taken away as the newer one is published does not come back."""
    world = World()
    with_dataset(world)
    files, store = world.baton.files, world.store
    manifest = read_manifest(store)
    newer = manifest.model_copy(update={"generation": 9, "files": {}})
    cleaner = world.baton.start(
        "cleaner",
        lambda _: discard_fixed(store, manifest.to_bytes(), ["features.json"]),
    )
    while "features.json" in files:
        if cleaner.writes:
            files["manifest.json"] = newer.to_bytes()
        world.baton.turn(cleaner)
    world.baton.finish(cleaner)
    assert "features.json" not in files
