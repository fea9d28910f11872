"""recordmill clean: dead runs leave nothing, datasets and living runs are safe."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from job_tools import IRIS, Ran, assert_whole, contents, convert, recordmill
from killed_runs import failing
from store_servers import Place

from recordmill.schemas.names import staged_file_name
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import acquire

# It does what S3 does, in one process: the contract of stores and test_remote_output
# show that.
pytestmark = pytest.mark.not_on("memory")

RUN = "0123456789abcdef"
HEX = uuid.UUID(int=7).hex
# What recordmill never named lies where its own files lie, and looks a bit like them.
FOREIGN = [
    ".recordmill/notes",
    f".recordmill/.notes.{HEX}",
    f".recordmill/probes-{HEX}",
    ".recordmill/0123456789abcde/run.log",
    f".recordmill/{RUN}f/run.log",
    f".secret.{HEX}",
    f".iris.csv.{HEX}",
    f".manifest.json.{HEX[:-1]}",
    f"rejects/.notes.txt.{HEX}",
    f"below/.manifest.json.{HEX}",
    f"below/.recordmill/{RUN}/runs/range-0",
    f"1.0.0/.recordmill/{RUN}/staging/iris-train.tfrecord-00000-of-00001",
    "iris-train.tfrecord-00000-of-00002",
    "iris-train.0123456.tfrecord-00000-of-00002",
    "roses-train.01234567.tfrecord-00000-of-00002",
    # Of a commit that may still be done.
    "iris-train.g00007-01234567.tfrecord-00000-of-00002",
]
OWN = [
    f".recordmill/probe-{HEX}",
    ".recordmill/manifest.json",
    f".recordmill/{RUN}/run.log",
    f".recordmill/{RUN}/runs/.range-0.{HEX}",
    f".recordmill/{RUN}/staging/anything",
    f".recordmill/swap/.lock.{0:032}",
    f".recordmill/swap/.manifest.json.{HEX}",
    f".recordmill/commit-g00001-01234567/.manifest.json.{HEX}",
    f".recordmill/commit-g00001-01234567/files/.features.json.{HEX}",
    f".manifest.json.{HEX}",
    f".run-a00001.json.{HEX}",
    f".label.labels.txt.{HEX}",
    f".iris-train.tfrecord-00000-of-00002.{HEX}",
    f".iris-train.tfrecord-a00001-00000-of-00002.{HEX}",
    f".iris-train-00000-of-00002.tfrecord.gz.{HEX}",
    f"rejects/.range-0.jsonl.{HEX}",
]
# Of a swap: the next one there removes them.
SWAPS = [
    f".recordmill/.recordmill/swap/.lock.{0:032}",
    f".recordmill/lock/.recordmill/swap/.lease.json.{HEX}",
]
# Of a commit that failed; a store copied them late.
LATE = ["iris-train.01234567.tfrecord-00000-of-00002", "rejects/01234567-range-0.jsonl"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run_in(place: Place, command: str, *arguments: Any) -> Any:
    reach: list[str] = []
    for name, value in place.options.to_dict().items():
        reach += ["--storage-option", f"output:{name}={value}"]
    return recordmill(command, *arguments, *reach)


def test_what_a_dead_run_left_goes(store_place: Place, cache: Path) -> None:
    job = ("csv", IRIS, store_place.root, "--name", "iris")
    assert run_in(store_place, "convert", *job).status == 0
    before = store_place.store.list()
    with failing("stage"):
        ran = run_in(store_place, "convert", *job, "--seed", 2, "--overwrite")
    assert ran.status == 1
    assert store_place.store.list() != before
    cleaned = run_in(store_place, "clean", store_place.root, "--json")
    assert cleaned.status == 0, cleaned.err
    assert json.loads(cleaned.out)["files"] > 3
    assert store_place.store.list() == before
    assert not [path for path in cache.rglob("*") if path.is_file()]
    again = run_in(store_place, "clean", store_place.root, "--json")
    assert json.loads(again.out) == {"files": 0, "bytes": 0}


def test_half_published_is_left_to_its_job(tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    with failing("commit"):
        assert recordmill("convert", "csv", IRIS, folder).status == 1
    before = contents(folder)
    ran = recordmill("clean", folder)
    assert ran.status == 73
    assert "Run its command again to finish it" in ran.err
    assert contents(folder) == before
    convert("csv", IRIS, folder)
    assert_whole(folder)


def put(folder: Path, names: list[str]) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def unmarked(name: str) -> str:
    """A name without the mark of a commit; foreign names stay as they are."""
    return staged_file_name(name)


def clean(folder: Path, *options: str) -> dict[str, Any]:
    ran: Ran = recordmill("clean", folder, "--json", *options)
    assert ran.status == 0, ran.err
    facts: dict[str, Any] = json.loads(ran.out)
    return facts


def test_only_what_is_its_own_goes(tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    convert("csv", IRIS, folder)
    put(folder, FOREIGN)
    before = contents(folder)
    put(folder, OWN + LATE + SWAPS)
    everything = contents(folder)
    planned = clean(folder, "--dry-run")
    assert contents(folder) == everything
    assert sorted(planned["names"]) == sorted(OWN + LATE + SWAPS)
    cleaned = clean(folder)
    assert contents(folder) == before
    num_bytes = sum(map(len, OWN + LATE))
    assert (cleaned["files"], cleaned["bytes"]) == (len(OWN + LATE), num_bytes)
    assert clean(folder)["files"] == 0


def test_a_run_removes_no_more_when_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    convert("csv", IRIS, folder)
    # A swap of the manifest empties its own folder.
    foreign = [name for name in FOREIGN if not name.startswith(".recordmill/swap/")]
    put(folder, foreign)
    before = contents(folder)
    put(folder, OWN)
    convert("csv", IRIS, folder, "--seed", 2, "--overwrite", "--grace", "0")
    assert set(map(unmarked, contents(folder))) == set(map(unmarked, before))
    assert all(contents(folder)[name] == before[name] for name in foreign)


def test_a_folder_that_is_nobodys_dataset_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    own = [name for name in OWN if not name.startswith(".recordmill")]
    put(folder, [*own, ".recordmill/notes", "letters/love.txt"])
    before = contents(folder)
    for options in ([], ["--dry-run"]):
        assert clean(folder, *options)["files"] == 0
    assert contents(folder) == before
    missing = recordmill("clean", tmp_path / "nothing")
    assert (missing.status, "nothing: no such folder" in missing.err) == (65, True)
    assert not (tmp_path / "nothing").exists()


def test_a_dead_first_run_goes_without_a_manifest(tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    put(folder, [*FOREIGN, *OWN])
    clean(folder)
    assert set(contents(folder)) == set(FOREIGN)


def test_a_link_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    convert("csv", IRIS, folder)
    put(tmp_path / "mine", ["run.log"])
    (folder / ".recordmill").mkdir()
    link = folder / ".recordmill" / RUN
    link.symlink_to(tmp_path / "mine")
    ran = recordmill("clean", folder)
    assert ran.status == 73
    assert f"{link}: is a symbolic link" in ran.err
    assert (tmp_path / "mine" / "run.log").exists()
    link.unlink()  # as the message suggests
    assert clean(folder)["files"] == 0


def test_a_run_at_work_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    put(folder, OWN)
    with acquire(LocalStore(str(folder))):
        before = contents(folder)
        for options in ([], ["--dry-run"]):
            assert recordmill("clean", folder, *options).status == 75
        assert contents(folder) == before


@pytest.mark.parametrize("ended_by", ["the same command", "clean", "another command"])
def test_folders_whose_last_file_is_gone(tmp_path: Path, ended_by: str) -> None:
    """As a kill leaves them between the removal of a file and that of its folder."""
    output = tmp_path / "iris"
    convert("csv", IRIS, output)
    assert not (output / ".recordmill").exists()
    for name in ("commit-g00001-01234567/files", "lock", "swap"):
        (output / ".recordmill" / name).mkdir(parents=True)
    if ended_by == "clean":
        assert recordmill("clean", output).status == 0
    else:
        more = ["--overwrite", "--shards", "2"] if ended_by == "another command" else []
        convert("csv", IRIS, output, *more)
    left = {path.name for path in (output / ".recordmill").glob("*/**")}
    assert not left & {"commit-g00001-01234567", "files", "lock", "swap"}
    assert_whole(output)


def test_the_locks_of_other_versions_go(tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    convert("csv", IRIS, folder)
    put(folder, [".recordmill/lock/000001.json"])
    assert clean(folder)["files"] == 1
    assert not (folder / ".recordmill").exists()
    assert_whole(folder)
