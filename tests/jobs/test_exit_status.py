"""How a command ends: one status and one kind for each sort of failure, shown everywhere."""

from __future__ import annotations

import errno
import json
import re
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_tools import COMMAND, HANG_SECONDS, IRIS, Argument, recordmill

from recordmill.beam_jobs.cli import main
from recordmill.beam_jobs.cli.main import describe_memory_shortage
from recordmill.schemas import errors
from recordmill.schemas.errors import (
    EXIT_STATUS,
    PERMANENT_KINDS,
    Interrupted,
    NoRoomError,
    OutputError,
    OutputRefusedError,
    RecordmillError,
    create_error,
    error_kind,
    exit_status,
)
from recordmill.schemas.text import escape_message
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.errors import input_error, output_error
from recordmill.transforms.storage.lease import acquire

PAGE = Path(__file__).parents[2] / "docs" / "options.md"


def case(folder: Path, kind: str) -> list[Argument]:
    """Prepares a failure; returns what to run."""
    output = folder / "out"
    table = folder / "table.csv"
    table.write_text("a,b\n1,2\n3\n")
    if kind == "usage":
        return ["convert", "csv", IRIS, output, "--shards", 2, "--readers", 3]
    if kind == "data":
        return ["convert", "csv", table, output]
    if kind == "output":
        output.mkdir()
        (output / "thesis.doc").write_text("mine")
    return ["convert", "csv", IRIS, output]


def check(*arguments: Argument, kind: str) -> None:
    """Runs the command, and makes sure that status, object and event agree."""
    shown = recordmill(*arguments, "--json", "--log-format", "json")
    assert shown.status == EXIT_STATUS[kind], shown.err
    told = json.loads(shown.out)
    assert (told["status"], told["kind"]) == ("failed", kind)
    event = json.loads(shown.err.splitlines()[-1])
    assert (event["event"], event["kind"]) == ("run_failed", kind)
    assert event["exit_status"] == shown.status
    assert event["message"] == told["message"]
    for_people = recordmill(*arguments)
    assert (for_people.status, for_people.out) == (shown.status, "")
    message = escape_message(f"Error: {told['message']}")
    assert for_people.err.endswith(f"{message}\n")
    assert "\\n" not in message


@pytest.mark.parametrize("kind", ["data", "output"])
def test_a_failure_has_one_status_and_one_kind(tmp_path: Path, kind: str) -> None:
    check(*case(tmp_path, kind), kind=kind)


def test_usage_is_told_before_there_is_a_log(tmp_path: Path) -> None:
    ran = recordmill(*case(tmp_path, "usage"), "--json")
    assert ran.status == EXIT_STATUS["usage"]
    assert json.loads(ran.out)["kind"] == "usage"
    click_refuses = recordmill("convert", "csv", "--wokers", "2", "--json")
    assert click_refuses.status == EXIT_STATUS["usage"]
    assert json.loads(click_refuses.out)["kind"] == "usage"
    assert "--wokers" in json.loads(click_refuses.out)["message"]


def test_another_run_is_writing(tmp_path: Path) -> None:
    with acquire(LocalStore(str(tmp_path / "out"))):
        check(*case(tmp_path, "busy"), kind="busy")
    # The way out that the message names: wait until it has ended.
    assert recordmill(*case(tmp_path, "busy")).status == 0


def test_a_plan_that_is_refused(tmp_path: Path) -> None:
    ran = recordmill(*case(tmp_path, "output"), "--plan", "--json")
    assert ran.status == EXIT_STATUS["output"]
    facts = json.loads(ran.out)
    assert (facts["verdict"], facts["kind"]) == ("refused", "output")


@pytest.mark.parametrize("arguments", [["verify"], ["inspect"], ["clean"], ["rejects"]])
def test_other_commands_tell_it_too(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "file").write_text("no folder")
    ran = recordmill(*arguments, tmp_path / "file", "--json")
    assert ran.status != 0
    told = json.loads(ran.out)
    assert told["status"] == "failed"
    assert ran.status == EXIT_STATUS[told["kind"]]


def test_a_worker_that_found_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.beam_jobs.pipelines import convert as pipeline

    def broken(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pipeline, "write_shard", broken)
    check(*case(tmp_path, ""), kind="no_room")


@pytest.mark.parametrize("max_bytes", [1_000, 20_000])
def test_a_file_reaches_the_size_that_the_process_allows(
    tmp_path: Path, max_bytes: int
) -> None:
    """Below 1,000 bytes not even the log can be written, which changes no outcome."""
    table = tmp_path / "table.csv"
    table.write_text("a,b\n" + "1,2\n" * 3_000)
    arguments = ["convert", "csv", table, tmp_path / "out"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, before[1]))
    try:
        ran = recordmill(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ran.status == EXIT_STATUS["no_room"]
    told = ran.err[ran.err.index("Error: ") :].splitlines()
    assert told[0].startswith(f"Error: {tmp_path / 'out'}/")
    name = "inputs.arrow" if max_bytes == 1_000 else "tfrecord-00000-of-00001"
    assert f"{name}: cannot be written: File too large; " in told[0]
    assert "ulimit -f" in told[0]
    assert len(told) == (1 if max_bytes == 1_000 else 2)  # nothing to resume yet
    # The way out that the message names: with a higher limit, the same command again.
    assert recordmill(*arguments).status == 0


def test_an_error_of_the_storage_has_its_kind() -> None:
    def kind(number: int) -> str:
        return error_kind(output_error(OSError(number, "oh"), "out/x", "written"))

    assert {kind(errno.ENOSPC), kind(errno.EDQUOT), kind(errno.EFBIG)} == {"no_room"}
    assert {kind(errno.EACCES), kind(errno.EROFS)} == {"output"}
    assert {kind(errno.EIO), kind(errno.ETIMEDOUT)} == {"other"}
    assert (
        error_kind(input_error(FileNotFoundError(2, "no file"), "x", "read")) == "data"
    )
    assert error_kind(input_error(PermissionError(13, "denied"), "x", "read")) == "data"
    assert error_kind(input_error(TimeoutError(), "x", "read")) == "other"
    assert error_kind(OutputError("x")) == "other"
    outer = RecordmillError("the folder")
    outer.__cause__ = OSError(errno.ENOSPC, "full")
    assert error_kind(outer) == "no_room"
    assert error_kind(MemoryError()) == "other"
    assert error_kind(KeyboardInterrupt()) == "interrupted"


@given(st.sampled_from(sorted(EXIT_STATUS)), st.text())
def test_a_kind_survives_the_way_from_a_worker(kind: str, message: str) -> None:
    error = create_error(kind, message)
    assert (error_kind(error), str(error)) == (kind, message)


def test_every_class_has_a_status() -> None:
    classes = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, RecordmillError)
    ]
    assert {each.kind for each in classes} == set(EXIT_STATUS)
    assert len(set(EXIT_STATUS.values())) == len(EXIT_STATUS)
    assert issubclass(NoRoomError, OutputError)
    assert issubclass(OutputRefusedError, OutputError)


def test_the_table_in_the_docs_is_the_codes() -> None:
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \|.*\| (yes|no) \|$", PAGE.read_text(), re.MULTILINE
    )
    expected = {
        (str(status), kind, "no" if kind in PERMANENT_KINDS else "yes")
        for kind, status in EXIT_STATUS.items()
    }
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        status = exit_status(Interrupted(number, number.name))
        expected.add((str(status), "interrupted", "yes"))
    assert set(rows) == expected


@pytest.mark.parametrize("mebibytes", [40, 120, 300])
def test_a_limit_of_the_address_space(tmp_path: Path, mebibytes: int) -> None:
    command = [str(COMMAND), "convert", "csv", str(IRIS), str(tmp_path / "out")]
    command.append("--json")
    done = subprocess.run(
        ["bash", "-c", f'ulimit -v {mebibytes << 10}; exec "$@"', "bash", *command],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode not in (0, 2)
    assert "Traceback" not in done.stderr
    if "Error: out of memory" not in done.stderr:  # OpenBLAS ends the process itself
        assert (
            f"Warning: the memory limit of this process is {mebibytes} MiB"
            in done.stderr
        )
    if done.stdout:
        assert json.loads(done.stdout)["status"] == "failed"
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_what_says_that_memory_is_short() -> None:
    unmapped = "libarrow.so: failed to map segment from shared object"
    for error, is_short in (
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory", "/x"), True),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), False),
        (ImportError(unmapped), True),
        (ImportError("No module named 'x'"), False),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("x"), False),
    ):
        assert bool(describe_memory_shortage(error)) is is_short, error


def test_that_memory_is_short_is_told_to_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of Python's that says nothing has the way out, too."""

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(main.cli, "main", fail)
    with pytest.raises(MemoryError):
        main.run(["convert", "csv", "a", "b", "--json"])
    told = json.loads(capsys.readouterr().out)["message"]
    assert told.startswith("out of memory (MemoryError): raise the limit")
