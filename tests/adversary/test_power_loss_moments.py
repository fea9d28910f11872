"""Power loss at length: `make power-loss` runs it, as it takes some minutes.

After every single change of the disk the dataset is looked at, with every kind of loss;
at 500 moments the command is run again, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tools import GOLDEN
from power_loss import (
    Moment,
    Recording,
    all_moments,
    append_and_overwrite,
    check_dataset,
    check_rerun,
    make_tables,
    moments,
    record,
    state_at,
)

RERUNS = 168  # of each case

CASES = ("append and overwrite", "rejects", "exchanges")


def commands_of(case: str, folder: Path) -> list[list[object]]:
    tables = make_tables(folder)
    if case == "append and overwrite":
        return [*append_and_overwrite(tables), ["clean", "{out}"]]
    if case == "rejects":
        limit = ("--max-rejects", "50%")
        with tables[1].open("a") as table:
            table.write("1,broken\n" * 9)
        return [[*each, *limit] for each in append_and_overwrite(tables)]
    images, cifar = GOLDEN / "images", GOLDEN / "cifar10.bin"
    return [
        ["convert", "images", images, "{out}", "--exchange", "reference"],
        [
            *("convert", "images", images, "{out}", "--overwrite", "--shards", 3),
            *("--exchange", "scratch", "--compression", "gzip"),
        ],
        ["convert", "cifar", cifar, "{out}", "--overwrite", "--exchange", "engine"],
    ]


@pytest.fixture(scope="module", params=CASES)
def recording(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    folder = tmp_path_factory.mktemp("power")
    return record(commands_of(request.param, folder), folder)


def check(recording: Recording, moment: Moment, root: Path, *, rerun: bool) -> None:
    try:
        index = state_at(recording, moment, root)
        check_dataset(recording, moment, root, index)
        if rerun:
            check_rerun(recording, root, index)
    except Exception as error:
        raise AssertionError(f"{moment}: {error}") from error


def test_every_change_of_the_disk(recording: Recording, tmp_path: Path) -> None:
    for moment in all_moments(recording):
        check(recording, moment, tmp_path, rerun=False)


def test_the_command_runs_again(recording: Recording, tmp_path: Path) -> None:
    for moment in moments(recording, RERUNS, seed=2):
        check(recording, moment, tmp_path, rerun=True)


@pytest.mark.parametrize("number", range(9))
def test_the_power_is_lost_a_second_time(tmp_path: Path, number: int) -> None:
    """While the next run finishes, or removes, what a commit had left."""
    commands = append_and_overwrite(make_tables(tmp_path))
    first = record(commands, tmp_path)
    index = number % len(commands)
    # What a commit does is the last third of a run.
    begin, end = first.begins[index], first.ends[index]
    moment = Moment(end - (number + 1) * (end - begin) // 30, "few", number)
    again = tmp_path / "again"
    (again / "recorded").mkdir(parents=True)
    state_at(first, moment, again / "recorded")
    second = record([commands[index]], again)
    assert second.datasets[0] == first.datasets[index]
    disk = tmp_path / "disk"
    disk.mkdir()
    for each in all_moments(second):
        check(second, each, disk, rerun=False)
    for each in moments(second, 7, seed=number):
        check(second, each, disk, rerun=True)
