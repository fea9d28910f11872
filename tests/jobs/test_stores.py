"""Datasets and inputs in stores: the same bytes as on disk, whole or not at all."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest
from append_tools import GROWING, write_rows
from flaky_store import Flaky
from fsspec.implementations.memory import MemoryFileSystem
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    payloads,
    recordmill,
    shards_of,
)
from killed_runs import WRITING, failing, replaced
from source_cases import make_cifar
from store_servers import SECRET, Place, display_path
from store_tools import local_files, options_of, published, to_store

from recordmill.schemas.names import staged_file_name
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.sources.arrays import fixed_records
from recordmill.transforms.storage import clouds, open_store
from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tfrecord import crc32c

pytestmark = pytest.mark.usefixtures("cache")


def test_a_store_gets_what_a_folder_gets(
    store_place: Place, tmp_path: Path, cache: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,x\n2,y\n3\n4,z\n")
    job = ["--shards", 2, "--max-rejects", 1, "--name", "rows", "--index"]
    convert("csv", rows, tmp_path / "local", *job)
    ran = to_store(store_place, "csv", rows, job)
    assert ran.status == 0, ran.err
    assert published(store_place) == local_files(tmp_path / "local")
    again = to_store(store_place, "csv", rows, [*job, "--json"])
    assert json.loads(again.out)["status"] == "unchanged"
    assert not [path for path in cache.rglob("*") if path.is_file()]
    reach = options_of(store_place.options)
    for command in (["verify"], ["verify", "--deep"], ["inspect"], ["inspect", "--tf"]):
        ran = recordmill(*command, store_place.root, *reach)
        assert ran.status == 0, ran.err


def test_another_dataset_is_replaced_only_if_asked(
    store_place: Place, tmp_path: Path
) -> None:
    name = ["--name", "iris"]
    assert to_store(store_place, "csv", IRIS, [*name, "--shards", 3]).status == 0
    before = published(store_place)
    refused = to_store(store_place, "csv", IRIS, [*name, "--shards", 2])
    assert refused.status == 73
    assert "replace it with --overwrite" in refused.err
    assert published(store_place) == before
    job = [*name, "--shards", 2, "--overwrite"]
    assert to_store(store_place, "csv", IRIS, job).status == 0
    convert("csv", IRIS, tmp_path / "local", *name, "--shards", 3)
    convert("csv", IRIS, tmp_path / "local", *job)
    assert published(store_place) == local_files(tmp_path / "local")
    old = [n for n in before if ".tfrecord" in n and n in published(store_place)]
    assert len(old) == 3  # for those who read them, until the next run
    convert("csv", IRIS, tmp_path / "local", *job)
    again = to_store(store_place, "csv", IRIS, [*job, "--json"])
    assert json.loads(again.out)["status"] == "unchanged"
    assert published(store_place) == local_files(tmp_path / "local")
    assert not set(old) & set(published(store_place))


def test_no_secret_in_what_is_left_of_a_failed_run(
    store_place: Place, tmp_path: Path, cache: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,x\n2\n")
    ran = to_store(store_place, "csv", rows, [])
    assert ran.status == 65
    assert "manifest.json" not in store_place.store.list()
    left = [path for path in cache.rglob("*") if path.is_file()]
    assert store_place.kind == "local" or left
    texts = [ran.err.encode(), *(path.read_bytes() for path in left)]
    texts += [store_place.store.read(name) for name in store_place.store.list()]
    assert not any(SECRET.encode() in text for text in texts)


def test_goes_on_from_what_is_finished(store_place: Place, tmp_path: Path) -> None:

    job = ["--shards", 3, "--name", "images", "--index"]
    with failing("stage"):
        ran = to_store(store_place, "images", SAMPLES / "images", job)
    assert ran.status == 1
    staged = {n: store_place.store.modified_time(n) for n in store_place.store.list()}
    assert len([name for name in staged if ".tfrecord" in name]) == 6  # and indexes
    with failing(WRITING):
        ran = to_store(store_place, "images", SAMPLES / "images", job)
    assert ran.status == 0, ran.err  # no shard was written again
    convert("images", SAMPLES / "images", tmp_path / "local", *job)
    assert published(store_place) == local_files(tmp_path / "local")


def test_a_tenth_of_all_requests_fails(flaky: Flaky, tmp_path: Path) -> None:
    flaky.spoil_a_tenth()
    place = Place("s3", flaky.direct.url, flaky.options)
    job = ["--shards", 5, "--name", "iris"]
    ran = to_store(place, "csv", IRIS, job)
    assert ran.status == 0, ran.err
    assert flaky.proxy.spoiled > 5
    convert("csv", IRIS, tmp_path / "local", *job)
    direct = Place("s3", flaky.direct.url, flaky.direct.options)
    assert published(direct) == local_files(tmp_path / "local")


def test_of_two_runs_at_once_one_wins_and_one_is_told(store_place: Place) -> None:
    from recordmill.beam_jobs.pipelines import convert as job

    stage, second = job.stage, []

    def meanwhile(*arguments: Any) -> Any:
        def run() -> None:
            second.append(to_store(store_place, "csv", IRIS, ["--name", "other"]))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return stage(*arguments)

    with replaced("recordmill.beam_jobs.pipelines.convert.stage", meanwhile):
        first = to_store(store_place, "csv", IRIS, ["--name", "iris"])
    assert first.status == 0, first.err
    assert [ran.status for ran in second] == [75]
    assert "another run is writing here" in second[0].err
    assert (
        recordmill("verify", store_place.root, *options_of(store_place.options)).status
        == 0
    )


def test_rows_are_read_by_reference(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers of shards read them there, with the options of the inputs."""
    several = partial(fixed_records.CifarSource, range_bytes=7000)
    monkeypatch.setattr(fixed_records, "CifarSource", several)
    place = display_path("s3", tmp_path, monkeypatch, server)
    folder = tmp_path / "in"
    folder.mkdir()
    make_cifar(folder)
    for file in folder.iterdir():
        place.store.put_bytes(file.read_bytes(), f"in/{file.name}")
    address = place.options.to_dict()["endpoint_url"]
    job = ["--name", "same", "--exchange", "reference"]
    convert("cifar", folder, tmp_path / "local", *job)
    convert(
        *("cifar", f"{place.root}/in", tmp_path / "remote", *job),
        *("--storage-option", f"input:endpoint_url={address}"),
    )
    said = json.loads((tmp_path / "remote" / "run.json").read_text())["runner"]
    assert said == f"embedded ({2 * usable_cores()} workers)"
    for split in ("train", "test"):
        found = shards_of(tmp_path / "remote", split)
        expected = shards_of(tmp_path / "local", split)
        assert [[*payloads(shard)] for shard in found] == [
            [*payloads(shard)] for shard in expected
        ]


JOB: list[Any] = ["--name", "grown", "--shards", 2, "--append"]


def append(place: Place, source: str, folder: Path, *more: Any) -> Ran:
    return to_store(place, source, folder, [*JOB, *more])


# A store in memory does what S3 does, as its contract and the tests above show.
@pytest.mark.not_on("memory")
def test_a_store_gets_what_is_appended(store_place: Place, tmp_path: Path) -> None:
    # A store knows nothing of formats: half of the stores with each is enough.
    kind = "images" if store_place.kind in ("folders", "s3", "azure") else "csv"
    growing = GROWING[kind]
    source, local = tmp_path / "in", tmp_path / "local"
    source.mkdir()
    for step in growing.steps[:2]:
        step(source)
        ran = append(store_place, growing.source, source)
        assert ran.status == 0, ran.err
        convert(growing.source, source, local, *JOB)
        assert published(store_place) == local_files(local)
    again = append(store_place, growing.source, source, "--json")
    assert json.loads(again.out)["status"] == "unchanged"
    reach = options_of(store_place.options)
    for command in (["verify", "--deep"], ["inspect"]):
        ran = recordmill(*command, store_place.root, *reach)
        assert ran.status == 0, ran.err


@pytest.mark.not_on("s3")
def test_killed_in_the_switch(store_place: Place, tmp_path: Path) -> None:
    """All but the manifest had been moved; then another file comes."""
    source = tmp_path / "in"
    write_rows(source / "a.csv", 0, 40)
    assert append(store_place, "csv", source).status == 0
    before = published(store_place)
    write_rows(source / "b.csv", 40, 20)
    with failing("recordmill.transforms.commit.commit._swap_in"):
        assert append(store_place, "csv", source).status == 1
    found = published(store_place)
    assert before.items() <= found.items()
    assert any("a00001" in name and "staging" not in name for name in found)
    write_rows(source / "c.csv", 60, 10)
    ran = append(store_place, "csv", source, "--json")
    assert json.loads(ran.out)["appended"]["records"] == 30
    names = published(store_place)
    assert len([name for name in names if "tfrecord-a00001" in name]) == 2
    assert not [name for name in names if name.startswith(".recordmill")]
    reach = options_of(store_place.options)
    assert recordmill("verify", store_place.root, *reach).status == 0


def test_inputs_in_a_store(flaky: Flaky, tmp_path: Path) -> None:
    """What tells that a file has changed there is its etag."""
    source = tmp_path / "in"
    for name, first in (("a.csv", 0), ("b.csv", 40)):
        write_rows(source / name, first, 40)
    store, out = flaky.direct, tmp_path / "grown"
    reach = [
        part
        for name, value in store.options.to_dict().items()
        for part in ("--storage-option", f"input:{name}={value}")
    ]
    job: list[Any] = ["convert", "csv", store.url, out, "--append", *reach]
    store.put_file(source / "a.csv", "raw/a.csv")
    assert recordmill(*job).status == 0
    store.put_file(source / "b.csv", "raw/b.csv")
    ran = recordmill(*job, "--json")
    assert json.loads(ran.out)["appended"]["records"] == 40, ran.err
    assert json.loads(recordmill(*job, "--json").out)["status"] == "unchanged"
    changed = (source / "a.csv").read_bytes().replace(b",g0,", b",g9,")
    store.put_bytes(changed, "raw/a.csv")
    assert "1 changed (raw/a.csv)" in recordmill(*job).err


class SumsFileSystem(MemoryFileSystem):
    """Stands for storage that keeps CRC-32C, as GCS does.

    GCS itself, by fake-gcs-server, is in tests/integration.
    """

    protocol = "sums"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return MemoryFileSystem._strip_protocol(path.replace("sums://", "memory://"))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        facts: dict[str, Any] = super().info(path, **options)
        return self._with_sum(facts)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        found = super().ls(path, detail=detail, **options)
        return [self._with_sum(facts) for facts in found] if detail else found

    def _with_sum(self, facts: dict[str, Any]) -> dict[str, Any]:
        if facts["type"] != "file":
            return facts
        crc = crc32c(self.store[facts["name"]].getvalue())
        return {**facts, "crc32c": base64.b64encode(crc.to_bytes(4, "big")).decode()}


fsspec.register_implementation("sums", SumsFileSystem)

SHARD = "iris-train.tfrecord-00001-of-00002"


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(clouds._CLOUDS, "sums", clouds.Memory)
    return f"sums://{tmp_path.name}/iris"


def job(output: str, *options: Argument) -> list[Argument]:
    return ["convert", "csv", IRIS, output, "--shards", 2, *options]


def spoil(output: str, name: str) -> None:
    """Another file of the same size, as the store's own checksum tells."""
    store = open_store(output)
    data = bytearray(store.read(name))
    data[len(data) // 2] ^= 1
    store.put_bytes(bytes(data), name)


def test_quick_compares_what_the_store_keeps(output: str) -> None:
    assert recordmill(*job(output)).status == 0
    ran = recordmill("verify", output, "--quick")
    assert "all sizes and stored checksums are right" in ran.out
    facts = json.loads(recordmill("verify", output, "--quick", "--json").out)
    assert (facts["ok"], facts["stored_checksums"]) == (True, 2)
    shard = read_manifest(open_store(output)).shard_files[1]
    assert staged_file_name(shard) == SHARD
    spoil(output, shard)
    ran = recordmill("verify", output, "--quick", "--json")
    assert ran.status == 1
    (problem,) = json.loads(ran.out)["problems"]
    assert problem["file"] == shard
    assert problem["message"].startswith("the store has CRC-32C ")
    again = recordmill(*job(output))  # the same job: there already, but not whole
    assert again.status == 73
    assert "the store has CRC-32C" in again.err


def test_no_checksum_is_claimed_where_none_is_kept(iris: Path) -> None:
    ran = recordmill("verify", iris, "--quick")
    assert "all sizes are right" in ran.out
    facts = json.loads(recordmill("verify", iris, "--quick", "--json").out)
    assert facts["stored_checksums"] == 0


def test_a_wrong_shard_is_not_published(
    output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spoiled between the put and the publishing; the next run makes it again."""
    from recordmill.transforms.commit import staging as publish

    def spoil_and_build(*arguments: Any) -> Any:
        (name,) = (name for name in open_store(output).list() if SHARD in name)
        spoil(output, name)
        return build(*arguments)

    build = publish.build_manifest
    with monkeypatch.context() as patch:
        patch.setattr(publish, "build_manifest", spoil_and_build)
        ran = recordmill(*job(output))
    assert ran.status == 1
    assert f"{SHARD}: the store has CRC-32C" in ran.err
    assert "The damaged files were removed; run again" in ran.err
    assert open_store(output).size("manifest.json") is None
    assert recordmill(*job(output)).status == 0
    assert recordmill("verify", output).status == 0


def flipping(path: Path, *arguments: Any, **options: Any) -> Any:
    """Writes a shard to a disk that changes a bit of it, and says nothing."""
    facts = write_records(path, *arguments, **options)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return facts


@pytest.mark.parametrize("level", ["quick", "full"])
def test_full_reads_before_it_publishes(tmp_path: Path, iris: Path, level: str) -> None:
    folder = tmp_path / "iris"
    with replaced("recordmill.transforms.tasks.write_shard.write_records", flipping):
        ran = recordmill(*job(str(folder), "--verify", level))
    if level == "quick":  # no size has changed, and this store keeps no checksum
        assert ran.status == 0
        assert recordmill("verify", folder).status == 1
        return
    assert ran.status == 1
    assert "The damaged files were removed; run again" in ran.err
    assert re.search(r"staging/iris-train\S*: record \d+ at byte", ran.err)
    assert not (folder / "manifest.json").exists()
    convert("csv", IRIS, folder, "--shards", 2, "--verify", "full")
    assert_whole(folder)
    assert contents(folder) == contents(iris)


def test_full_verifies_in_a_store(output: str) -> None:
    assert recordmill(*job(output, "--verify", "full")).status == 0
    assert recordmill("verify", output).status == 0
