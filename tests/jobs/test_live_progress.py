"""What a run leaves to be counted while it goes on, in each exchange."""

from __future__ import annotations

import csv
import io
import os
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn

import pytest
from job_tools import IRIS, convert, recordmill
from terminal import shown_on

from recordmill.beam_jobs.cli.main import run
from recordmill.schemas.errors import OutputError
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks import workspace as files
from recordmill.transforms.tasks.progress_reader import (
    FinishedTasks,
    find_position,
    read_live_counts,
)
from recordmill.transforms.tasks.rejects import first_reject_line
from recordmill.transforms.tasks.workspace import LiveCounts, Workspace

ROWS = 300


def refused(*_: object) -> NoReturn:
    raise OutputError("the run ends here, and leaves what it had")


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_counts_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    """The last counts of tasks at work are those of their checkpoints."""
    table = tmp_path / "in.csv"
    with table.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["id", "name"])
        lines.writerows([at, f"n{at}"] for at in range(ROWS))
        lines.writerow(["too", "many", "cells"])
    monkeypatch.setattr("recordmill.beam_jobs.pipelines.convert.stage", refused)
    monkeypatch.setattr(files, "SECONDS_BETWEEN_NOTES", 0.0)
    monkeypatch.setattr(LiveCounts, "close", lambda _: None)
    output = tmp_path / "out"
    job = ["convert", "csv", table, output, "--max-rejects", "1"]
    assert recordmill(*job, "--exchange", exchange).status == 1
    [folder] = output.glob(".recordmill/[0-9a-f]*")
    workspace = Workspace.of(LocalStore(str(output)), folder.name)

    line = first_reject_line(workspace)
    assert line.startswith("rejected: in.csv byte ")
    assert "expected 2 columns, found 3 (all so far: recordmill rejects " in line
    shown = shlex.split(line.partition(" (all so far: ")[2].rstrip(")"))
    assert "expected 2 columns, found 3" in recordmill(*shown[1:]).out

    live = read_live_counts(workspace)
    readings = 2 if exchange == "engine" else 1
    ranges = [counts for name, counts in live.items() if name.startswith("range-")]
    [shard] = [counts for name, counts in live.items() if name.startswith("shard-")]
    assert [(c.rows, c.rejected) for c in ranges] == [(ROWS + 1, 1)] * readings
    size = table.stat().st_size
    assert all(0.9 * size < counts.positions <= size for counts in ranges)
    assert shard.rows == ROWS

    finished = FinishedTasks(workspace)
    finished.look(now=True)
    whole = InputRange(0, "in.csv", str(table), 0, size, 0, size)
    position = find_position(finished, [whole], readings)
    assert position.ranges == readings
    assert position.read.positions == size * readings
    assert (position.read.rows, position.read.rejected) == (ROWS + 1, 1)
    assert position.planned is not None
    assert (position.shards, position.planned.shards) == (1, 1)
    assert position.written.rows == position.planned.records == ROWS
    assert position.written.bytes == position.planned.bytes == shard.bytes


@pytest.mark.parametrize("command", ["verify", "plan"])
def test_commands_without_a_pipeline(tmp_path: Path, command: str) -> None:
    """On a terminal they show what they do; stdout has the result alone."""
    output = tmp_path / "out"
    convert("csv", IRIS, output)
    arguments = ["verify", output]
    if command == "plan":
        arguments = ["convert", "csv", IRIS, tmp_path / "other", "--plan"]
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(terminal):
            assert run([str(argument) for argument in arguments]) == 0
    shown = shown_on(ours)
    os.close(ours)
    assert f"{command}: " in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "\x1b" not in out.getvalue()
