"""Heartbeats of pipelines: what they keep, how long, and what ends them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
from plain_manifests import plain_manifest

from recordmill.schemas.errors import BusyError
from recordmill.transforms.commit.cleanup import clean
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.lease import RunProcess
from recordmill.transforms.tasks import launches
from recordmill.transforms.tasks.launches import (
    HEARTBEAT_NAME,
    LIFE_SECONDS,
    RENEW_SECONDS,
    HeartbeatTimer,
    add_run_key,
    begin_launch,
    end_launch,
    find_launch,
    keep_alive,
    live_workspaces,
    with_heartbeat,
)
from recordmill.transforms.tasks.leftovers import find_leftovers, remove_leftovers
from recordmill.transforms.tasks.workspace import Workspace

ROWS = "rows-0123456789a"
KEY = "fedcba9876543210" * 2


@pytest.fixture
def rows(tmp_path: Path) -> Workspace:
    """The workspace of a pipeline that has begun."""
    workspace = Workspace.for_run(LocalStore(str(tmp_path / "out")), ROWS)
    begin_launch(workspace, "")
    return workspace


def put_run(workspace: Workspace) -> Path:
    workspace.make_folders()
    path = workspace.local_path("runs/1.records")
    path.write_bytes(b"records")
    return path


def gone_process() -> RunProcess:
    """A process of this machine that does not exist any more."""
    return RunProcess(**asdict(RunProcess.current()) | {"process_start": "1"})


def elsewhere() -> RunProcess:
    return RunProcess(**asdict(gone_process()) | {"host": "elsewhere"})


def test_a_heartbeat_keeps_both_workspaces_of_a_pipeline(rows: Workspace) -> None:
    store, second = rows.store, rows.sibling(KEY)
    assert live_workspaces(store) == {ROWS}
    orphan = put_run(second)  # of an earlier pipeline with the same rows
    assert find_leftovers(store).run_folders == (f".recordmill/{KEY[:16]}",)
    add_run_key(rows, KEY)
    paths = [put_run(rows), orphan]
    for workspace in (rows, second):
        keep_alive(workspace, at_once=True)
    assert live_workspaces(store) == {ROWS, KEY[:16]}
    for dry_run in (True, False):
        cleaned = clean(store, dry_run=dry_run)
        names = [launch.name for launch in cleaned.active_launches]
        assert (cleaned.files, names) == ({}, [ROWS])
    assert all(path.exists() for path in paths)
    assert len(clean(store, detached=True).files) == 3
    assert not any(path.exists() for path in paths)


def test_a_workspace_that_a_pipeline_takes_up_is_not_removed(rows: Workspace) -> None:
    """It was an orphan when it was found, and is not when it is to be removed."""
    second = rows.sibling(KEY)
    path = put_run(second)
    orphans = find_leftovers(rows.store)
    add_run_key(rows, KEY)
    remove_leftovers(rows.store, orphans)
    assert path.exists()


@pytest.mark.parametrize(
    ("clock_seconds", "store_seconds", "is_live"),
    [
        (0, 0, True),
        (LIFE_SECONDS - 60, LIFE_SECONDS - 60, True),
        (LIFE_SECONDS + 60, 0, True),  # a clock that jumped
        (0, LIFE_SECONDS + 60, True),
        (LIFE_SECONDS + 60, LIFE_SECONDS + 60, False),
    ],
)
def test_a_day_after_the_last_heartbeat_it_is_an_orphan(
    rows: Workspace, clock_seconds: float, store_seconds: float, is_live: bool
) -> None:
    path = put_run(rows)
    age = time.time() - store_seconds
    os.utime(Path(rows.store.uri, rows.store_name(HEARTBEAT_NAME)), (age, age))
    leftovers = find_leftovers(rows.store, clock=lambda: time.time() + clock_seconds)
    assert bool(leftovers.active_launches) == is_live
    remove_leftovers(rows.store, leftovers)
    assert path.exists() == is_live


def test_an_orphan_that_is_renewed_meanwhile_is_at_work(rows: Workspace) -> None:
    path = put_run(rows)
    leftovers = find_leftovers(rows.store, detached=True)
    keep_alive(rows, at_once=True)
    remove_leftovers(rows.store, leftovers)
    assert path.exists()


@pytest.mark.parametrize(
    ("process", "is_live"),
    [(RunProcess.current, True), (elsewhere, True), (gone_process, False)],
)
def test_a_pipeline_ends_with_its_process(
    rows: Workspace, process: type[RunProcess], is_live: bool
) -> None:
    """A killed one on this machine is an orphan at once."""
    begin_launch(rows, "", process())
    launch = find_launch(rows.store, ROWS)
    assert launch is not None
    assert launch.is_live == is_live


def test_one_long_task_renews_it(
    rows: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most once in ten minutes, however many rows come."""
    renewed_at: list[float] = []
    monkeypatch.setattr(launches, "keep_alive", lambda _: renewed_at.append(now))
    now = 5000.0
    timer = HeartbeatTimer(rows, clock=lambda: now)
    for second in range(0, 3600, 7):
        now = 5000.0 + second
        timer.tick()
    assert renewed_at[0] == 5000.0
    pauses = [after - before for before, after in pairwise(renewed_at)]
    assert len(renewed_at) == 6
    assert all(RENEW_SECONDS <= pause < RENEW_SECONDS + 7 for pause in pauses)


ENDED = r"alive.json: no longer exists.*treated it as dead.*run the pipeline again"


def test_a_task_of_an_ended_pipeline_says_so(rows: Workspace) -> None:
    """Whatever it fails with when its files are gone."""
    second = rows.sibling(KEY)

    @with_heartbeat(second)
    def task() -> None:
        clean(rows.store, detached=True)
        raise FileNotFoundError("no such run")

    with pytest.raises(BusyError, match=ENDED) as caught:
        task()
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    for workspace in (rows, second):
        with pytest.raises(BusyError, match=ENDED):
            keep_alive(workspace, at_once=True)
    with pytest.raises(BusyError, match=ENDED):
        add_run_key(rows, KEY)


def test_an_error_of_a_task_ends_only_what_ends_with_its_process(
    rows: Workspace,
) -> None:
    """Other runners repeat the task."""
    for process in (None, RunProcess.current()):
        begin_launch(rows, "", process)
        with pytest.raises(ValueError, match="not a number"), with_heartbeat(rows):
            raise ValueError("not a number")
        launch = find_launch(rows.store, ROWS)
        assert launch is not None
        assert launch.is_live == (process is None)
    with pytest.raises(BusyError, match="not a number"):
        keep_alive(rows, at_once=True)


def test_tasks_that_are_repeated_behind_the_commit(rows: Workspace) -> None:
    """The heartbeat is gone, as the last step removed it: nobody ended the pipeline."""
    manifest = plain_manifest([]).model_copy(update={"fingerprint": KEY})
    rows.store.put_bytes(manifest.to_bytes(), "manifest.json")
    rows.remove()
    keep_alive(rows.sibling(KEY), at_once=True)
    with pytest.raises(BusyError, match=ENDED):
        keep_alive(rows.sibling("0" * 32), at_once=True)
    rows.store.put_bytes(json.dumps({"launch": ROWS}).encode(), "run.json")
    keep_alive(rows, at_once=True)


def test_a_run_without_a_heartbeat_needs_none(rows: Workspace) -> None:
    attended = Workspace.for_run(rows.store, KEY)
    keep_alive(attended, at_once=True)
    end_launch(attended, "over")
    with pytest.raises(ValueError, match="wrong"), with_heartbeat(attended):
        raise ValueError("wrong")
    assert live_workspaces(rows.store) == {ROWS}
