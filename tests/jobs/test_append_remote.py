"""Appending to datasets in stores: the same as on disk, whatever is cut off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from append_tools import GROWING, write_rows
from flaky_store import Flaky
from job_tools import Ran, convert, recordmill
from store_servers import Place
from store_tools import local_files, options_of, published, to_store

from recordmill.transforms.storage import RemoteStore

# It does what S3 does, in one process: the contract of stores and test_remote_output
# show that.
pytestmark = [pytest.mark.not_on("memory"), pytest.mark.usefixtures("cache")]

JOB: list[Any] = ["--name", "grown", "--shards", 2, "--append"]


def append(place: Place, source: str, folder: Path, *more: Any) -> Ran:
    return to_store(place, source, folder, [*JOB, *more])


def test_a_store_gets_what_a_folder_gets(store_place: Place, tmp_path: Path) -> None:
    # A store knows nothing of formats: half of the stores with each is enough.
    kind = "images" if store_place.kind in ("folders", "s3", "azure") else "csv"
    growing = GROWING[kind]
    source, local = tmp_path / "in", tmp_path / "local"
    source.mkdir()
    for step in growing.steps:
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


def test_killed_in_the_switch(
    store_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the manifest had been moved; then another file comes."""
    source = tmp_path / "in"
    write_rows(source / "a.csv", 0, 40)
    assert append(store_place, "csv", source).status == 0
    before = published(store_place)
    write_rows(source / "b.csv", 40, 20)
    store = type(store_place.store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "swap", broken)
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


def broken(*_: object, **__: object) -> None:
    raise OSError("the power went")


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


def test_a_tenth_of_all_requests_fails(flaky: Flaky, tmp_path: Path) -> None:
    place = Place("s3", flaky.direct.url, flaky.options)
    source, local = tmp_path / "in", tmp_path / "local"
    for number in range(2):
        write_rows(source / f"{number}.csv", number * 30, 30)
        convert("csv", source, local, *JOB)
        flaky.spoil_a_tenth()
        ran = append(place, "csv", source)
        assert ran.status == 0, ran.err
    assert flaky.proxy.spoiled > 5
    assert isinstance(place.store, RemoteStore)
    direct = Place("s3", flaky.direct.url, flaky.direct.options)
    assert published(direct) == local_files(local)
