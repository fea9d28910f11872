"""recordmill clean: dead runs leave nothing, datasets and living runs are safe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_tools import IRIS, assert_whole, contents, convert, recordmill
from store_servers import Place


def broken(*_: object) -> None:
    raise OSError("the power went")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run_in(place: Place, command: str, *arguments: Any) -> Any:
    reach: list[str] = []
    for name, value in place.options.to_dict().items():
        reach += ["--storage-option", f"output:{name}={value}"]
    return recordmill(command, *arguments, *reach)


def test_what_a_dead_run_left_goes(
    store_place: Place, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ("csv", IRIS, store_place.root, "--name", "iris")
    assert run_in(store_place, "convert", *job).status == 0
    before = store_place.store.list()
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", broken)
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


def test_a_clean_output_stays_as_it_is(tmp_path: Path) -> None:
    convert("csv", IRIS, tmp_path / "iris")
    before = contents(tmp_path / "iris")
    assert recordmill("clean", tmp_path / "iris").status == 0
    assert contents(tmp_path / "iris") == before
    assert_whole(tmp_path / "iris")


def test_half_published_is_left_to_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "iris"
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.commit", broken)
        assert recordmill("convert", "csv", IRIS, folder).status == 1
    before = contents(folder)
    ran = recordmill("clean", folder)
    assert ran.status == 1
    assert "Run its command again to finish it" in ran.err
    assert contents(folder) == before
    convert("csv", IRIS, folder)
    assert_whole(folder)
