"""Each step of a commit: what it accepts, what it refuses, and what lies there then."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from adversary_runs import World
from adversary_schedules import with_dataset
from plain_manifests import plain_manifest

from recordmill.schemas.errors import BusyError, OutputRefusedError
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import parse_rejects_commit_id
from recordmill.transforms.commit.check_output import check_output
from recordmill.transforms.commit.commit import (
    REPLACED_DIGEST_NAME,
    CommitRecord,
    clean_up,
    commit,
    fixed_names,
    is_clean,
    is_staged,
    manifest_digest,
    require_stored,
    unnamed_files,
    unnamed_files_of_part,
)
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage import LocalStore, RemoteStore
from recordmill.transforms.storage.clouds import RemoteFile
from recordmill.transforms.storage.lease import acquire
from recordmill.transforms.storage.store import Level
from recordmill.transforms.tasks.leftovers import find_leftovers
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tfrecord import crc32c

OLD = "d-train.tfrecord-00000-of-00001"
NEW = "d-train.0123abcd.tfrecord-00000-of-00001"


def workspace_in(store: LocalStore) -> Workspace:
    return Workspace.for_run(store, "0123456789abcdef")


@pytest.mark.parametrize("appended", [0, 1, 2, 3])
def test_names_beside_the_shards(appended: int) -> None:
    manifest = plain_manifest([], appended=appended)
    parts = ["", "-a00001", "-a00002", "-a00003"][: appended + 1]
    unnamed = [
        name
        for part in parts
        for name in (f"inventory{part}.jsonl.gz", f"run{part}.json")
    ]
    assert unnamed_files(manifest) == unnamed
    assert fixed_names(manifest) == [
        *("dataset_info.json", "features.json", "schema.pbtxt"),
        *(f"inputs{part}.jsonl.gz" for part in parts),
        *unnamed,
    ]
    assert unnamed_files_of_part(manifest) == unnamed[-1:]  # it lists no inputs
    lists = {f"inputs{parts[-1]}.jsonl.gz": {"bytes": 1, "crc32c": "00000000"}}
    listing = plain_manifest([], appended=appended, files=lists)
    assert unnamed_files_of_part(listing) == unnamed[-2:]


@pytest.mark.parametrize(
    ("seen", "now"), [(None, None), (1, 1), (1, 2), (2, 1), (None, 1), (1, None)]
)
def test_only_the_commit_is_left(
    tmp_path: Path, seen: int | None, now: int | None
) -> None:
    store = LocalStore(str(tmp_path))
    work = workspace_in(store)
    datasets = {n: plain_manifest([NEW], seed=n).to_bytes() for n in (1, 2)}
    digest = manifest_digest(datasets[seen] if seen else None)
    store.put_bytes(digest.encode(), work.store_name(REPLACED_DIGEST_NAME))
    if now:
        store.put_bytes(datasets[now], "manifest.json")
    store.put_bytes(b"x" * 34, work.store_name(f"staging/{OLD}"))
    store.put_bytes(b"{}", work.store_name("staging/run.json"))
    assert not is_staged(work)
    staged = plain_manifest([NEW], seed=3, fingerprint="0123abcd" * 4).to_bytes()
    store.put_bytes(staged, work.store_name("staging/manifest.json"))
    assert is_staged(work) is (seen == now)


@dataclass(frozen=True)
class SummedStore(LocalStore):
    """A local store that tells one checksum of each file, as some stores keep them."""

    crc: int = 0

    def list_level(self, folder: str = "") -> Level:
        level = super().list_level(folder)
        return replace(level, checksums=dict.fromkeys(level.files, self.crc))


@pytest.mark.parametrize("moved", [False, True])
def test_only_what_is_whole_is_taken_for_staged(tmp_path: Path, moved: bool) -> None:
    """By sizes and checksums that the store keeps; what a commit has moved counts."""
    store = SummedStore(str(tmp_path), crc=0xABC)
    work = workspace_in(store)
    name = NEW if moved else work.store_name(f"staging/{OLD}")
    before = OLD.replace("0-of", "1-of")  # of a part before
    manifest = plain_manifest([before, NEW], fingerprint="0123abcd" * 4)
    data = manifest.to_bytes()
    store.put_bytes(data, work.store_name("staging/manifest.json"))
    store.put_bytes(b"{}", work.store_name("staging/run.json"))
    assert not is_staged(work)
    for size in (33, 35, 34):
        store.put_bytes(b"x" * size, name)
        assert is_staged(work) is (size == 34)
    for crc in (0, 0xABB, 0xABD):
        assert not is_staged(replace(work, store=SummedStore(str(tmp_path), crc=crc)))
    store.delete([work.store_name("staging/run.json")])
    assert not is_staged(work)


def test_the_commit_is_done_already(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    published = plain_manifest([NEW], fingerprint="5" * 32)
    store.put_bytes(published.to_bytes(), "manifest.json")
    work = workspace_in(store)
    assert commit(work) == published
    assert commit(work, plain_manifest([], fingerprint="5" * 31 + "5")) == published
    for other in ("0" * 32, "f" * 32):
        with pytest.raises(BusyError, match="another run published a dataset here"):
            commit(work, plain_manifest([NEW], fingerprint=other))
    assert store.list().keys() == {"manifest.json"}


@dataclass(frozen=True)
class CountedStore(LocalStore):
    """A local store that tells sizes and checksums as they are given."""

    level: Level = field(default_factory=lambda: Level({}, (), {}))

    def list_level(self, folder: str = "") -> Level:
        return self.level


@pytest.mark.parametrize(
    ("sizes", "checksums", "told"),
    [
        ({NEW: 34}, {}, ""),
        ({NEW: 34, "notes.txt": 5}, {NEW: 0xABC, "notes.txt": 1}, ""),
        ({}, {}, "is missing, the manifest records 34 bytes"),
        ({NEW: 33}, {NEW: 0xABC}, "has 33 bytes, the manifest records 34 bytes"),
        ({NEW: 35}, {NEW: 0xABC}, "has 35 bytes, the manifest records 34 bytes"),
        (
            {NEW: 34},
            {NEW: 0xABB},
            "has CRC-32C 00000abb, the manifest records 00000abc",
        ),
        (
            {NEW: 34},
            {NEW: 0xABD},
            "has CRC-32C 00000abd, the manifest records 00000abc",
        ),
        ({NEW: 34}, {NEW: 0}, "has CRC-32C 00000000, the manifest records 00000abc"),
    ],
)
def test_what_a_store_has(
    tmp_path: Path, sizes: Mapping[str, int], checksums: Mapping[str, int], told: str
) -> None:
    level = Level(dict(sizes), (), {}, dict(checksums))
    store = CountedStore(str(tmp_path), level=level)
    if not told:
        require_stored(store, plain_manifest([NEW]))
        return
    with pytest.raises(OutputRefusedError) as caught:
        require_stored(store, plain_manifest([NEW]))
    assert str(caught.value).startswith(f"{tmp_path}/{NEW}: ")
    assert told in str(caught.value)
    assert "convert again with `overwrite=true`" in str(caught.value)


@pytest.mark.parametrize("mark", ["00000000", "0123abcd", "ffffffff"])
def test_whose_shard_is_missing(tmp_path: Path, mark: str) -> None:
    """One that was put there just now is made again; one of a part before is damage."""
    file = NEW.replace("0123abcd", mark)
    with pytest.raises((BusyError, OutputRefusedError)) as caught:
        require_stored(
            *(CountedStore(str(tmp_path)), plain_manifest([file])), own_mark="0123abcd"
        )
    assert isinstance(caught.value, BusyError) is (mark == "0123abcd")
    assert ("The dataset is damaged" in str(caught.value)) is (mark != "0123abcd")


@pytest.mark.parametrize("key", ["b", "c", "d", "e", "f"])
def test_rejects_of_an_earlier_try(key: str) -> None:
    """By another exchange they were in other files; those of other parts stay."""
    world = World()
    with_dataset(world)
    run, files = world.append(key), world.baton.files
    while not any(file.endswith("/staging/manifest.json") for file in files):
        world.baton.turn(run)
    (staged,) = (file for file in files if file.endswith("/staging/manifest.json"))
    mark = Manifest.from_bytes(files[staged], "x").commit_id
    earlier = f"rejects/{mark}-a00001-range-7.jsonl"
    files[earlier] = b"x" * 58
    world.baton.finish(run)
    assert isinstance(run.result, Manifest), run.error
    assert earlier not in files
    rejects = [name for name in files if name.startswith("rejects/")]
    assert len({parse_rejects_commit_id(name) for name in rejects}) == len(rejects) == 2
    world.check_end()


@pytest.mark.parametrize("by_append", [True, False])
def test_files_of_a_replaced_dataset_stay_until_the_next_run(by_append: bool) -> None:
    """Whoever reads it goes on; of its commit only its manifest stays."""
    world = World()
    with_dataset(world)
    files = world.baton.files
    first = read_manifest(world.store)
    other = world.publish("y", overwrite=True)
    world.baton.finish(other)
    assert isinstance(other.result, Manifest)
    assert {*first.shard_files, *other.result.shard_files} <= files.keys()
    records = [name for name in files if name.startswith(".recordmill/")]
    assert records == [f".recordmill/commit-{other.result.commit_id}/replaced.json"]
    clean_up(world.store, end_grace=False)
    third = world.publish("z", overwrite=True)
    world.baton.pause_before(third, "swap manifest.json")
    world.baton.kill(third)
    assert {*first.shard_files} <= files.keys()
    if by_append:
        appending = world.append("b")
        world.baton.finish(appending)
        assert isinstance(appending.result, Manifest)
        assert not [name for name in files if name.startswith(".recordmill/")]
    else:
        clean_up(world.store)
    assert files.keys().isdisjoint(first.shard_files)


def test_fixed_names_are_swapped_in_order() -> None:
    """dataset_info.json names the shards: it is the first to be the new dataset's."""
    world = World()
    with_dataset(world)
    run, swaps = world.publish("y", overwrite=True), []
    while run.is_alive:
        if run.what.startswith("swap ") and run.what not in swaps:
            swaps.append(run.what)
        world.baton.turn(run)
    assert swaps[:2] == ["swap manifest.json", "swap dataset_info.json"]
    assert swaps[2:] == sorted(swaps[2:])


def test_other_fixed_names_are_swapped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store each takes five answers: one after the other, 2 s at 50 ms each."""
    store = RemoteStore(f"memory://{uuid.uuid4().hex}")
    work = Workspace.for_run(store, "0123456789abcdef")
    described = dict.fromkeys(("features.json", "schema.pbtxt"), b"{}")
    entries = {
        name: {"bytes": len(data), "crc32c": f"{crc32c(data):08x}"}
        for name, data in described.items()
    }
    staged = plain_manifest([], files=entries, fingerprint="0123abcd" * 4).to_bytes()
    others = {**described, "run.json": b"{}"}
    for name, data in {**others, "manifest.json": staged}.items():
        store.put_bytes(data, work.store_name(f"staging/{name}"))
    store.put_bytes(b"", work.store_name(REPLACED_DIGEST_NAME))
    all_are_there, swap = threading.Barrier(len(others)), RemoteFile.swap

    def swap_with_others(file: RemoteFile, data: bytes, seen: bytes | None) -> bool:
        if file.path.rpartition("/")[2] in others:
            all_are_there.wait(600)  # broken by the first one that waits alone
        return swap(file, data, seen)

    monkeypatch.setattr(RemoteFile, "swap", swap_with_others)
    commit(work)
    assert {name: store.read(name) for name in others} == others


def test_few_answers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is asked side by side, as by `for_each`, the longest counts: 50 ms each."""
    waits, ask = 0, RemoteStore._with_file

    def asked(*what: Any) -> Any:
        nonlocal waits
        waits += 1
        return ask(*what)

    def for_each(
        store: RemoteStore, action: Any, arguments: Iterable[Any]
    ) -> list[Any]:
        nonlocal waits
        before, longest, results = waits, waits, []
        for item in arguments:
            waits = before
            results.append(action(item))
            longest = max(longest, waits)
        waits = longest
        return results

    store = RemoteStore(f"memory://{uuid.uuid4().hex}")
    work = Workspace.for_run(store, "0123456789abcdef")
    described = dict.fromkeys(("dataset_info.json", "features.json"), b"{}")
    entries = {
        name: {"bytes": len(data), "crc32c": f"{crc32c(data):08x}"}
        for name, data in described.items()
    }
    mark = {"files": entries, "fingerprint": "0123abcd" * 4}
    staged = plain_manifest([NEW], **mark).to_bytes()
    files = {**described, "run.json": b"{}", OLD: b"x" * 34, "manifest.json": staged}
    store.put_all({work.store_name(f"staging/{name}"): files[name] for name in files})
    store.put_bytes(b"", work.store_name(REPLACED_DIGEST_NAME))
    monkeypatch.setattr(RemoteStore, "_with_file", asked)
    monkeypatch.setattr(RemoteStore, "for_each", for_each)
    found = []
    for act in (
        lambda: check_output(store, "0" * 32, overwrite=True),
        lambda: commit(work),
        lambda: find_leftovers(store),
        lambda: acquire(store, settle_seconds=0).__exit__(None, None, None),
    ):
        waits = 0
        act()
        found.append(waits)
    assert found == [2, 25, 2, 8]


@pytest.mark.parametrize("recorded", [0, 6])
@pytest.mark.parametrize("others", ["y", "yz"])
def test_data_that_come_after_another_commit(others: str, recorded: int) -> None:
    """They go at once, even if the other run has removed the record that names them."""
    world = World()
    with_dataset(world)
    job, files = world.detach("d", overwrite=True), world.baton.files
    while not any(name.endswith("/staging/manifest.json") for name in files):
        world.baton.turn(job)
    while not job.writes or sum("/commit-" in name for name in files) < recorded:
        world.baton.turn(job)  # it is to write the record of its commit, or has done so
    theirs = set[str]()
    for key in others:
        run = world.publish(key, overwrite=True)
        world.baton.finish(run)
        theirs |= files.keys()
    world.baton.pause_before(job, "swap manifest.json")
    placed = {name for name in files if "g00001-" in name} - theirs
    assert len(placed) >= 4
    world.baton.finish(job)
    assert isinstance(job.error, BusyError)
    assert files.keys().isdisjoint(placed)
    world.check_end()


@pytest.mark.parametrize("generation", [0, 1, 2, 3])
def test_a_record_of_a_commit_that_is_over(tmp_path: Path, generation: int) -> None:
    """One that is not over may still be done: nothing is to be cleaned for it."""
    store = LocalStore(str(tmp_path))
    manifest = plain_manifest([], generation=2)
    assert is_clean(store, manifest)
    other = plain_manifest([], generation=generation, fingerprint="5" * 32)
    CommitRecord(store, other.commit_id).write(other.to_bytes(), None, {})
    assert is_clean(store, manifest) is (generation > 2)
