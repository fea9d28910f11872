"""What people type instead: each message names what was meant, and that works."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from job_tools import IRIS, recordmill

JOB = "source: csv\ninputs: table.csv\noutput: out/night\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy2(IRIS, "table.csv")
    Path("job.yaml").write_text(JOB)
    Path("tables").mkdir()


# (what is typed, the command that the message gives)
REMEDIES = {
    "convert cvs table.csv out/t": "convert csv table.csv out/t",
    "convert table.csv out/t": "convert csv table.csv out/t",
    "convert ./table.csv out/t --seed 1": "convert csv ./table.csv out/t --seed 1",
    "convert tsv table.csv out/t": "convert csv table.csv out/t",
    "convert tables out/t": "convert FORMAT tables out/t",
    "schema infer table.csv": "schema infer csv table.csv",
    "convert csv out/t table.csv": "convert csv table.csv out/t",
    "convert csv out/t table.csv table.csv": "convert csv table.csv table.csv out/t",
    "convert csv table.csv -o out/t": "convert FORMAT INPUT... OUTPUT",
    "convert csv table.csv --output=out/t": "convert FORMAT INPUT... OUTPUT",
}


@pytest.mark.parametrize("typed", REMEDIES)
def test_the_right_command_is_named(typed: str) -> None:
    ran = recordmill(*typed.split())
    assert ran.status == 2
    named = re.search(
        r"Error: .*: recordmill (.*?)(?:\. Formats|$)", ran.err, re.MULTILINE
    )
    assert named, ran.err
    assert named[1] == REMEDIES[typed]
    if named[1].islower():
        done = recordmill(*shlex.split(named[1]))
        assert done.status == 0, done.err


# (what is typed, what the message says)
HINTS = {
    "convert csv table.csv out/t --runner=FlinkRunner": "after --: -- --runner=...",
    "convert csv table.csv out/t --flink_master=h": "after --: -- --flink_master=...",
    "run job.yaml --runner FlinkRunner": "after --: -- --runner=...",
    "convert csv table.csv out/t --max_reject 1": "Did you mean '--max-rejects'?",
    "run job.yaml --records decode": "is an option of tfrecord, not of csv",
    "plan job.yaml --resize 2x2 --seed 1": "is an option of images, not of csv",
    "run job.yaml --delimite tab": "'--delimiter'",
    "run job.yaml --delimiter xx": "--delimiter: expected auto, comma",
}


@pytest.mark.parametrize("typed", HINTS)
def test_the_place_of_an_option_is_named(typed: str) -> None:
    ran = recordmill(*typed.split())
    assert ran.status == 2
    assert HINTS[typed] in ran.err


def test_the_places_that_are_named_are_right() -> None:
    after = ["--", "--runner=DirectRunner"]
    assert recordmill("convert", "csv", "table.csv", "out/t", *after).status == 0
    Path("job.yaml").write_text(JOB + "csv: {delimiter: comma}\n")
    assert recordmill("run", "job.yaml", *after).status == 0


def test_a_job_file_takes_options_of_its_format() -> None:
    """They replace what the file says, as all others do."""
    Path("table.csv").write_text("a;b\n1,5;x\n\n2,5;y\n")
    Path("job.yaml").write_text(JOB + "csv: {delimiter: comma, header: first}\n")
    own = ["--delimiter", "semicolon", "--decimal", "comma", "--skip-rows", 0]
    plan = recordmill("plan", "job.yaml", *own)
    assert "b string" in plan.out
    assert "decimals: with a comma" in plan.out
    ran = recordmill("run", "job.yaml", *own, "--exact")
    assert ran.status == 0, ran.err
    assert "columns: 2 (a float32, b string)" in ran.err
    shown = recordmill("run", "--help").out
    assert "recordmill convert FORMAT --help" in " ".join(shown.split())
    assert "--delimiter" not in shown


def test_a_folder_of_datasets_lists_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert recordmill("convert", "csv", "table.csv", f"out/{name}").status == 0
    ran = recordmill("inspect", "out")
    assert ran.status == 65
    assert "a folder with 2 datasets; expected one of them: " in ran.err
    names = ran.err.strip().rpartition(": ")[2].split(", ")
    assert names == [f"{tmp_path}/out/one", f"{tmp_path}/out/two"]
    assert all(recordmill("inspect", name).status == 0 for name in names)


def test_closing_lines_come_once() -> None:
    """With the first dataset of an output: who runs it every night knows them."""
    first = recordmill("run", "job.yaml")
    assert "To load it in Python:" in first.err
    again = recordmill("run", "job.yaml", "--seed", 1, "--overwrite")
    assert "150 records" in again.err
    Path("job.yaml").write_text(JOB.replace("night", "versions") + "version: auto\n")
    versions = [recordmill("run", "job.yaml", "--seed", seed) for seed in (1, 2)]
    assert ["To " in ran.err for ran in (again, *versions)] == [False, True, False]


def test_dates_are_no_classes() -> None:
    rows = [f"2026-01-0{n % 3 + 1},{'ab'[n % 2]},{n}" for n in range(12)]
    Path("table.csv").write_text("\n".join(["date,kind,n", *rows, ""]))
    ran = recordmill("run", "job.yaml")
    assert "classes of kind: a 6, b 6" in ran.err
    assert "classes of date" not in ran.err + recordmill("inspect", "out/night").out
