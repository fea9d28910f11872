"""Datasets written to stores: the same bytes as on disk, whole or not at all."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from flaky_store import Flaky
from job_tools import IRIS, SAMPLES, convert, recordmill
from store_servers import SECRET, Place
from store_tools import local_files, options_of, published, to_store

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


def test_goes_on_from_what_is_finished(
    store_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the power went")

    job = ["--shards", 3, "--name", "images", "--index"]
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", broken)
        ran = to_store(store_place, "images", SAMPLES / "images", job)
    assert ran.status == 1
    staged = {n: store_place.store.modified(n) for n in store_place.store.list()}
    assert len([name for name in staged if ".tfrecord" in name]) == 6  # and indexes
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.transforms.tasks.write_shard.write_records", broken)
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


def test_of_two_runs_at_once_one_wins_and_one_is_told(
    store_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.beam_jobs.pipelines import convert as job

    stage, second = job.stage, []

    def meanwhile(*arguments: Any) -> Any:
        def run() -> None:
            second.append(to_store(store_place, "csv", IRIS, ["--name", "other"]))

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return stage(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", meanwhile)
        first = to_store(store_place, "csv", IRIS, ["--name", "iris"])
    assert first.status == 0, first.err
    assert [ran.status for ran in second] == [75]
    assert "another run is writing here" in second[0].err
    assert (
        recordmill("verify", store_place.root, *options_of(store_place.options)).status
        == 0
    )
