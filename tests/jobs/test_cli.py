"""The command line: what goes in, what comes out where, and exit statuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from job_inputs import MixedInput
from job_tools import (
    COMMAND,
    HANG_SECONDS,
    HEAVY,
    IRIS,
    Argument,
    assert_unpublished,
    assert_whole,
    command,
    ended,
    manifest_of,
    python,
    recordmill,
    started,
)


def test_json_is_all_on_stdout(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    options = ["--split", "train=0.5", "--split", "test=0.5", "--shards", "2"]
    ran = command("convert", "csv", IRIS, output, *options, "--json")
    assert (ran.status, ran.err) == (0, "")
    facts = json.loads(ran.out)
    assert ran.out.count("\n") == 1
    manifest = manifest_of(output)
    assert facts.pop("seconds") > 0
    assert facts == {
        "status": "done",
        "output": str(output),
        "name": "iris",
        "version": "1.0.0",
        "fingerprint": manifest["fingerprint"],
        "rows_read": 150,
        "rows_rejected": 0,
        "records": 150,
        "bytes": sum(split["bytes"] for split in manifest["splits"].values()),
        "shards": 4,
        "splits": {
            name: {"records": split["records"], "bytes": split["bytes"], "shards": 2}
            for name, split in manifest["splits"].items()
        },
        "rejects": "",
    }
    again = command("convert", "csv", IRIS, output, *options, "--json")
    assert (again.status, again.err) == (0, "")
    assert json.loads(again.out)["status"] == "unchanged"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_people_read_stderr(tmp_path: Path, options: list[str]) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "iris", *options)
    assert (ran.status, ran.out == "") == (0, not options)
    assert ("150 records in 1 shard," in ran.err) == (not options)


def test_error_is_one_message(tmp_path: Path) -> None:
    """No traceback of a worker's comes before it; that is in the log."""
    (tmp_path / "in.csv").write_text("a,b\n1\n")
    ran = command("convert", "csv", tmp_path / "in.csv", tmp_path / "out", "--json")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("Error: 1 of 1 rows were rejected")
    assert ran.err.count("\n") == 2
    (log,) = (tmp_path / "out").glob(".recordmill/*/run.log")
    assert "Traceback" in log.read_text()


CONVERT: list[Argument] = ["convert", "csv", IRIS, "out"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "csv"], "Missing argument 'INPUT... OUTPUT'"),
        (["convert", "csv", IRIS], "give at least one INPUT, and the folder OUTPUT"),
        (["convert", "parquet", "a", "b"], "No such command 'parquet'"),
        (["melt"], "No such command 'melt'"),
        ([*CONVERT, "--colour"], "No such option '--colour'"),
        ([*CONVERT, "--variant", "cifar10"], "No such option '--variant'"),
        ([*CONVERT, "--split", "train"], "--split is NAME=FRACTION, got 'train'"),
        ([*CONVERT, "--split", "train=much"], "a fraction is a number like 0.8"),
        ([*CONVERT, "--split", "train=1/0"], "a fraction is a number like 0.8"),
        ([*CONVERT, "--split", "train=0"], "above 0 and at most 1, got 0"),
        ([*CONVERT, "--split", "a b=1"], "a split name has letters, digits"),
        ([*CONVERT, "--split", "a=0.5", "--split", "b=0.4"], "must add up to 1"),
        ([*CONVERT, "--split", "a=0.5", "--split", "a=0.5"], "names must differ"),
        ([*CONVERT, "--shards", 0], "greater than or equal to 1"),
        ([*CONVERT, "--shards", "many"], "'many' is not a valid integer"),
        ([*CONVERT, "--shards", 100_000], "less than or equal to 99999"),
        ([*CONVERT, "--readers", 0], "greater than or equal to 1"),
        ([*CONVERT, "--shard-size", "huge"], "give a size like 128MiB or 100MB"),
        ([*CONVERT, "--shard-size", "1e6"], "give a size like 128MiB or 100MB"),
        ([*CONVERT, "--shard-size", "²"], "give a size like 128MiB or 100MB"),
        ([*CONVERT, "--shard-size", "-1"], "give a size like 128MiB or 100MB"),
        ([*CONVERT, "--shard-size", "0"], "a shard has at least one byte"),
        ([*CONVERT, "--shard-size", "9" * 40], "give a size like 128MiB or 100MB"),
        ([*CONVERT, "--shards", 2, "--shard-size", "1M"], "give one of the number of"),
        ([*CONVERT, "--shards", 2, "--readers", 1], "give one of the number of"),
        ([*CONVERT, "--max-rejects", "some"], "give a count like 10 or a share like"),
        ([*CONVERT, "--max-rejects", "101%"], "a share is at most 100%"),
        ([*CONVERT, "--max-rejects", "-1"], "give a count like 10 or a share like"),
        ([*CONVERT, "--seed", "-1"], "greater than or equal to 0"),
        ([*CONVERT, "--seed", 1 << 64], "less than 18446744073709551616"),
        ([*CONVERT, "--name", "7up"], "a dataset name starts with a letter"),
        ([*CONVERT, "--name", "a/b"], "a dataset name starts with a letter"),
        ([*CONVERT, "--dataset-version", "1.0"], "a version is like 1.0.0"),
        ([*CONVERT, "--compression", "zip"], "'zip' is not one of 'none', 'gzip'"),
        ([*CONVERT, "--workers", "-1"], "-1 is not in the range x>=0"),
        (["verify", "out", "--", "--runner=Flink"], "only convert, run and plan take"),
        (["--", "--runner=Flink"], "only convert, run and plan take"),
        (["verify"], "Missing argument 'OUTPUT'"),
        (["inspect", "out", "--examples", "few"], "'few' is not a valid integer"),
    ],
)
def test_wrong_usage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[Argument],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = recordmill(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--help"], "convert"),
        (["-h"], "convert"),
        (["--version"], "version 0."),
        (["convert", "--help"], "--runner=DirectRunner"),
        (["convert", "images", "--help"], "--feature-names"),
        (["convert", "cifar", "--help"], "--variant"),
        (["convert", "csv", "--help"], "--max-rejects"),
        (["run", "--help"], "--set KEY=VALUE"),
        (["plan", "--help"], "does nothing"),
        (["verify", "--help"], "--quick"),
        (["inspect", "--help"], "--examples"),
    ],
)
def test_help_imports_nothing_heavy(arguments: list[str], message: str) -> None:
    code = (
        "import sys; from recordmill.beam_jobs.cli.main import run; status = run(sys.argv[1:]); "
        f"heavy = sorted(set({HEAVY}) & set(sys.modules)); print('heavy', heavy); "
        "sys.exit(status)"
    )
    ran = python(code, *arguments)
    assert (ran.status, ran.err) == (0, "")
    assert message in ran.out
    assert ran.out.endswith("heavy []\n")


def test_console_script() -> None:
    ran = command("--help")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Usage: recordmill [OPTIONS] COMMAND [ARGS]...")
    assert command("convert", "csv").status == 2
    assert command("verify", "/no/such/folder").status == 1


def test_interrupted(tmp_path: Path, mixed: MixedInput) -> None:
    """Ctrl-C in mid-run."""
    output = tmp_path / "mixed"
    with started("convert", "csv", *mixed.files, output) as process:
        deadline = time.monotonic() + HANG_SECONDS
        while not list(output.glob(".recordmill/*/runs/*range*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        ran = ended(process)
    assert (ran.status, ran.out) == (130, "")
    assert ran.err.strip() == "Interrupted: nothing was published"
    assert_unpublished(output)


def test_bug_shows_its_traceback(tmp_path: Path) -> None:
    """What no one expected ends the process too, whatever threads are left."""
    code = (
        "import sys, recordmill.beam_jobs.service.run_job as launch\n"
        "from recordmill.beam_jobs.cli import main as cli\n"
        "def broken(*arguments): raise ZeroDivisionError('a bug')\n"
        "launch.run_job = broken; sys.argv[0] = 'recordmill'; cli.main()"
    )
    ran = python(code, *CONVERT)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("Traceback")
    assert ran.err.endswith("ZeroDivisionError: a bug\n")


def test_progress_on_a_terminal(tmp_path: Path) -> None:
    """People at a terminal see bars; what they leave behind is the summary alone."""
    output = tmp_path / "iris"
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [COMMAND, "convert", "csv", IRIS, output],
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        try:
            while block := terminal.read(4096):
                shown += block
        except OSError:
            pass  # the other side is closed
    assert process.wait(HANG_SECONDS) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "ranges" in text
    assert "150 records in 1 shard" in text
    assert_whole(output)
