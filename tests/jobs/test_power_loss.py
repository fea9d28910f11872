"""The power is lost: what is on disk then is the old dataset or the new one, whole.

`make power-loss` tries many more moments, of more jobs.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from disk_log import LOSSES, Disk, Edit, Event, Mark, Names, Synced, Written
from power_loss import (
    Recording,
    append_and_overwrite,
    check_dataset,
    check_rerun,
    make_tables,
    moments,
    record,
    state_at,
)

from recordmill.schemas.errors import RecordmillError

MOMENTS = 63  # each loss at three moments of each command
RERUN_EVERY = 22  # so that each command is among them


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("power")
    return record(append_and_overwrite(make_tables(folder)), folder)


@pytest.mark.slow
def test_a_whole_dataset_or_none_is_there(recording: Recording, tmp_path: Path) -> None:
    for number, moment in enumerate(moments(recording, MOMENTS)):
        index = state_at(recording, moment, tmp_path)
        check_dataset(recording, moment, tmp_path, index)
        if number % RERUN_EVERY == 0:
            check_rerun(recording, tmp_path, index)


@pytest.mark.slow
@pytest.mark.parametrize("folders", [True, False])
def test_without_fsync_a_dataset_is_lost(
    recording: Recording, tmp_path: Path, folders: bool
) -> None:
    """So the test above would find an fsync that is missing."""
    made = {
        event.edits[0].inode
        for event in recording.events
        if isinstance(event, Names) and event.folder
    }

    def forgotten(event: Event) -> Event:
        lost = isinstance(event, Synced) and (event.inode in {0, *made}) == folders
        return Mark("not synced") if lost else event

    careless = replace(recording, events=[*map(forgotten, recording.events)])
    wrong = 0
    for moment in moments(careless, MOMENTS // 3):
        index = state_at(careless, moment, tmp_path)
        try:
            check_dataset(careless, moment, tmp_path, index)
        except (AssertionError, OSError, RecordmillError):
            wrong += 1
    assert wrong > MOMENTS // 20


def test_what_a_disk_may_keep_of_a_rename() -> None:
    """New content under a temporary name, which then replaces another file."""
    events: list[Event] = [
        Names((Edit(0, "m", 1),)),
        Written(1, b"old"),
        Synced(1),
        Synced(0),
        Names((Edit(0, "t", 2),)),
        Written(2, b"new"),
        Names((Edit(0, "m", 2), Edit(0, "t", None))),
    ]

    def states(events: list[Event]) -> set[frozenset[tuple[str, bytes | None]]]:
        disk = Disk(events)
        return {
            frozenset(disk.after_loss(loss, random.Random(seed)).items())
            for loss in LOSSES
            for seed in range(50)
        }

    def names(found: set[frozenset[tuple[str, bytes | None]]]) -> set[str]:
        return {"".join(sorted(n for n, _ in state)) for state in found}

    found = states(events)
    assert names(found) == {"m", "mt"}
    held = {dict(state)["m"] for state in found}
    assert {b"old", b"new", b"", b"n", bytes(3)} <= held
    assert {dict(s)["m"] for s in states([*events, Synced(2)])} == {b"old", b"new"}
    assert states([*events, Synced(2), Synced(0)]) == {frozenset({("m", b"new")})}
