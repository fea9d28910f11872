"""A run that loses its lease to another one stops, and removes nothing of the other's."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from job_tools import IRIS, recordmill

from recordmill.beam_jobs.pipelines import convert
from recordmill.beam_jobs.service import run as run_job
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.lease import LOCK_FOLDER, Holder, Lease, acquire

THEIRS = ".recordmill/0123456789abcdef/run.log"


def taken_over(store: Store) -> None:
    """Another run, elsewhere, has the lease and is at work."""
    holder = replace(Holder.this_process(60.0), host="elsewhere", pid=7)
    store.put_bytes(holder.to_bytes(), f"{LOCK_FOLDER}/000002.json")
    store.put_bytes(b"at work", THEIRS)


@pytest.fixture
def leases(monkeypatch: pytest.MonkeyPatch) -> list[Lease]:
    found: list[Lease] = []

    def acquire_noted(*args: Any, **options: Any) -> Lease:
        found.append(acquire(*args, **options))
        return found[-1]

    monkeypatch.setattr(run_job, "acquire", acquire_noted)
    return found


def test_it_stops_while_it_converts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leases: list[Lease]
) -> None:
    store = LocalStore(str(tmp_path / "out"))
    ended, waited = threading.Event(), []

    def stage(*_: Any) -> None:
        taken_over(store)
        assert not leases[0].is_held()  # as its next renewal finds out
        waited.append(ended.wait(60))
        raise OSError("the process has ended")

    monkeypatch.setattr(convert, "stage", stage)
    ran = recordmill("convert", "csv", IRIS, store.root)
    ended.set()
    assert ran.status == 75, ran.err
    assert "this run lost its lease on the output" in ran.err
    assert waited in ([], [True])
    assert store.size("manifest.json") is None
    assert store.read(THEIRS) == b"at work"


def test_it_removes_nothing_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path / "out"))
    real = convert.commit

    def commit(*args: Any) -> object:
        manifest = real(*args)
        taken_over(store)
        return manifest

    monkeypatch.setattr(convert, "commit", commit)
    ran = recordmill("convert", "csv", IRIS, store.root)
    assert ran.status == 0, ran.err
    assert store.read(THEIRS) == b"at work"
    assert len(LocalStore(str(tmp_path / "out/.recordmill")).list_level().folders) == 3
