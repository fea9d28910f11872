"""A report that cannot be written decides no run: status and manifest agree."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import (
    ExitStack,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pytest
from example_counts import FACTOR, thinned
from job_tools import (
    COMMAND,
    HANG_SECONDS,
    IRIS,
    SAMPLES,
    assert_whole,
    convert,
    manifest_of,
)

from recordmill.beam_jobs.cli.main import run
from recordmill.schemas.errors import EXIT_STATUS, Interrupted

LOST = EXIT_STATUS["no_room"]
CLOSED_PIPE = 128 + signal.SIGPIPE
REASONS = {
    "full": "No space left on device",
    "closed": "it is not open for writing",
    "no reader": "Broken pipe",
    "half": "Broken pipe",
}
STATES = tuple(REASONS)


class Half(io.StringIO):
    """A pipe whose reader closes it after so many writes."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.writes = writes

    def write(self, text: str) -> int:
        self.writes -= bool(text)
        if self.writes < 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        return super().write(text)


@contextmanager
def opened(state: str, writes: int = 1) -> Iterator[TextIO | None]:
    """A standard stream in a state; None is what Python has for a closed one."""
    stream: TextIO | None = None
    if state == "open":
        stream = io.StringIO()
    elif state == "full":
        stream = Path("/dev/full").open("w")  # noqa: SIM115
    elif state == "no reader":
        read_end, write_end = os.pipe()
        os.close(read_end)
        stream = os.fdopen(write_end, "w")
    elif state == "half":
        stream = Half(writes)
    try:
        yield stream
    finally:
        if stream is not None:
            with suppress(OSError):  # what is in its buffer
                stream.close()


@dataclass
class Streams:
    """The states of standard output and error, and what was written to them."""

    out: str = "open"
    err: str = "open"
    writes: int = 1  # that a stream which is closed half-way takes
    text: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str | Path) -> int:
        """Runs the command in this process; an error that escapes has the status 1."""
        with ExitStack() as stack:
            out = stack.enter_context(opened(self.out, self.writes))
            err = stack.enter_context(opened(self.err, self.writes))
            try:
                with redirect_stdout(out), redirect_stderr(err):
                    status = run([str(argument) for argument in arguments])
            except Exception:  # as main() does
                status = 1
            for name, stream in (("out", out), ("err", err)):
                if isinstance(stream, io.StringIO):
                    self.text[name] = stream.getvalue()
        return status


JSON, LOG = ["--json"], ["--log-format", "json"]
# Which streams are broken, and how the command reports.
CASES = [
    case
    for state in STATES
    for case in (
        (Streams(out=state), JSON),
        (Streams(out=state), [*JSON, *LOG]),
        (Streams(err=state), []),
        (Streams(err=state), ["--log-format", "text"]),
        (Streams(err=state), LOG),
        (Streams(err=state), [*JSON, *LOG]),
        (Streams(state, state), []),
        (Streams(state, state), [*JSON, *LOG]),
    )
]


def name_of(case: object) -> str:
    if isinstance(case, Streams):
        return f"out {case.out}, err {case.err}"
    return " ".join(case) if isinstance(case, list) else str(case)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "table.csv"
    path.write_text("a,b\n1,2\n3,4\n5,6\n")
    return path


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, table: Path) -> Path:
    output = tmp_path_factory.mktemp("output") / "ds"
    convert("csv", table, output)
    return output


def publishing(name: str, table: Path, output: Path) -> list[str | Path]:
    """A command that publishes a dataset."""
    if name == "convert":
        return ["convert", "csv", table, output]
    if name == "run":
        job = output.parent / "job.yaml"
        job.write_text(f"source: csv\ninputs: ['{table}']\noutput: {output}\n")
        return ["run", job]
    folder = output.parent / "tables"
    folder.mkdir()
    (folder / "a.csv").write_bytes(table.read_bytes())
    convert("csv", folder, output)
    (folder / "b.csv").write_text("a,b\n7,8\n")
    return ["convert", "csv", folder, output, "--append"]


@pytest.mark.parametrize(("streams", "form"), CASES, ids=name_of)
def test_convert_publishes(
    tmp_path: Path, table: Path, form: list[str], streams: Streams
) -> None:
    check_published(tmp_path, table, "convert", form, streams)


@pytest.mark.parametrize(
    ("name", "form", "streams"),
    [
        (name, form, streams)
        for name in ("run", "append")
        for form, streams in (
            (["--json"], Streams(out="full")),
            (["--log-format", "json"], Streams(err="full")),
            (["--log-format", "text"], Streams(err="closed")),
            ([], Streams(err="half")),
            ([], Streams("full", "full")),
        )
    ],
    ids=name_of,
)
def test_run_and_append_publish(
    tmp_path: Path, table: Path, name: str, form: list[str], streams: Streams
) -> None:
    check_published(tmp_path, table, name, form, streams)


def check_published(
    folder: Path, table: Path, name: str, form: list[str], streams: Streams
) -> None:
    output = folder / "out"
    assert streams.run(*publishing(name, table, output), *form) == 0
    assert manifest_of(output)["rows_read"] == (4 if name == "append" else 3)
    assert_whole(output)
    check_note(streams, form, f"The dataset was published in {output}")


def check_note(streams: Streams, form: list[str], sentence: str) -> None:
    """Makes sure that one stream has the note about what the other one lost."""
    is_lost = {
        "stdout": streams.out not in ("open", "half") and "--json" in form,
        "stderr": streams.err != "open" and form != ["--json"],
    }
    log = "json" if "json" in form else "text"
    for lost, other, state in (
        ("stdout", "err", streams.out),
        ("stderr", "out", streams.err),
    ):
        text = streams.text.get(other, "")
        if other == "out" and "--json" in form and streams.out == "open":
            assert json.loads(text)["status"] == "done"
        if not is_lost[lost]:
            assert "could not be written" not in text
        elif (
            getattr(streams, other) == "open" and "--json" not in form[: other == "out"]
        ):
            last = text.splitlines()[-1]
            label = lost.replace("std", "standard ").replace("out", "output")
            label = label.replace("err", "error")
            note = f"could not be written to {label}: {REASONS[state]}. {sentence}"
            if "--log-format" in form and log == "json":
                event = json.loads(last)
                assert (event["event"], event["stream"]) == ("report_lost", lost)
                last = event["message"]
            assert note in last
            assert " of the report could not" in last


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("form", ["lines", "log"])
def test_every_moment_of_a_run(
    tmp_path: Path, table: Path, log_format: str, form: str
) -> None:
    """The reader goes away after each of the lines, before and after the commit."""
    options = ["--log-format", log_format] if form == "log" else []
    (tmp_path / "whole").mkdir()
    whole = Streams()
    assert whole.run("convert", "csv", table, tmp_path / "whole/out", *options) == 0
    num_lines = len(whole.text["err"].splitlines())
    for writes in range(num_lines) if form == "log" else (0, num_lines - 1):
        output = tmp_path / str(writes) / "out"
        streams = Streams(err="half", writes=writes)
        assert streams.run("convert", "csv", table, output, *options) == 0
        assert manifest_of(output)["rows_read"] == 3
        left = "line" if num_lines - writes == 1 else "lines"
        assert f"{num_lines - writes} {left} of the report" in streams.text["out"]


@pytest.mark.parametrize(("streams", "form"), thinned(CASES), ids=name_of)
def test_a_failure_keeps_its_status(
    tmp_path: Path, form: list[str], streams: Streams
) -> None:
    """What stderr does not take is on stdout, unless programs read that."""
    streams.writes, streams.text = 0, {}
    table, output = tmp_path / "wrong.csv", tmp_path / "out"
    table.write_text("a,b\n1,2\n3\n")
    assert streams.run("convert", "csv", table, output, *form) == EXIT_STATUS["data"]
    assert not (output / "manifest.json").exists()
    text = streams.text.get("out", "")
    if streams.out == "open" and "--json" in form:
        assert json.loads(text)["kind"] == "data"
    elif streams.out == "open":
        assert "line 3" in text
        assert f"to standard error: {REASONS[streams.err]}" in text


# The product of these is their report.
REPORTS = [
    ["inspect", "{dataset}"],
    ["inspect", "{dataset}", "--json"],
    ["inspect", "{dataset}", "--tf"],
    ["verify", "{dataset}"],
    ["verify", "{dataset}", "--json"],
    ["diff", "{dataset}", "{dataset}"],
    ["diff", "{dataset}", "{dataset}", "--json"],
    ["rejects", "{dataset}"],
    ["rejects", "{dataset}", "--json"],
    ["report", "{dataset}", "-o", "{page}"],
    ["clean", "{dataset}", "--dry-run", "--json"],
    ["plan", "{job}"],
    ["plan", "{job}", "--json"],
    ["convert", "csv", "{table}", "{dataset}", "--plan"],
    ["convert", "csv", "--help"],
    ["schema", "infer", "csv", "{table}"],
    ["schema", "infer", "csv", "{table}", "--json"],
    ["run", "--job-schema"],
    ["completion", "bash"],
    ["--help"],
    ["--version"],
]
# The product of these is in files.
WORKS = [
    ["index", "{dataset}"],
    ["export", "tfds", "{dataset}", "{page}"],
    ["clean", "{dataset}", "--json"],
]


def filled(words: list[str], folder: Path, dataset: Path, table: Path) -> list[str]:
    """A command with its paths."""
    job = folder / "job.yaml"
    job.write_text(f"source: csv\ninputs: ['{table}']\noutput: {dataset}\n")
    places = {"dataset": dataset, "table": table, "job": job, "page": folder / "page"}
    return [word.format(**places) for word in words]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("words", REPORTS + WORKS, ids=name_of)
def test_a_lost_report_has_a_status(
    tmp_path: Path, dataset: Path, table: Path, words: list[str], state: str
) -> None:
    streams = Streams(out=state, writes=0)
    status = streams.run(*filled(words, tmp_path, dataset, table))
    note = f"of the report could not be written to standard output: {REASONS[state]}"
    if words in WORKS:
        assert (status, note in streams.text["err"]) == (0, True)
    elif REASONS[state] == "Broken pipe":  # as `| head`: the reader has what it needs
        assert (status, note in streams.text["err"]) == (CLOSED_PIPE, False)
    else:
        assert (status, note in streams.text["err"]) == (LOST, True)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("words", REPORTS + WORKS, ids=name_of)
def test_a_report_needs_no_stderr(
    tmp_path: Path, dataset: Path, table: Path, words: list[str], state: str
) -> None:
    """Its progress is lost, and nothing is added to what programs read."""
    arguments = filled(words, tmp_path, dataset, table)
    streams = Streams(err=state, writes=0)
    assert streams.run(*arguments) == 0
    assert streams.text["out"]
    assert "could not be written" not in streams.text["out"]


def test_a_difference_keeps_its_status(
    tmp_path: Path, dataset: Path, table: Path
) -> None:
    other = tmp_path / "other"
    convert("csv", IRIS, other)
    assert Streams(out="full").run("diff", dataset, other) == 1
    (other / manifest_of(other)["splits"]["train"]["shards"][0]["file"]).unlink()
    assert Streams(out="full").run("verify", other) == 1


def test_a_report_that_cannot_be_made(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset is published: an error of the report is shown, and changes nothing."""
    from recordmill.beam_jobs.cli import execute

    def broken(*_: Any, **__: Any) -> None:
        raise KeyError("rows")

    monkeypatch.setattr(execute, "show_outcome", broken)
    streams = Streams()
    assert streams.run("convert", "csv", table, tmp_path / "out") == 0
    last = streams.text["err"].splitlines()[-1]
    assert last.startswith(
        "Warning: the report could not be created: KeyError in test_re"
    )
    assert last.endswith(f": 'rows'. The dataset was published in {tmp_path / 'out'}")


def test_a_signal_during_the_report(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is that of the signal, and the message names what is published."""
    from recordmill.beam_jobs.cli import execute

    def interrupted(*_: Any, **__: Any) -> None:
        raise Interrupted(signal.SIGTERM, "SIGTERM")

    monkeypatch.setattr(execute, "show_outcome", interrupted)
    streams, output = Streams(), tmp_path / "out"
    assert streams.run("convert", "csv", table, output) == 128 + signal.SIGTERM
    last = streams.text["err"].splitlines()[-1]
    assert last == f"Interrupted by SIGTERM: the dataset was published in {output}"


def test_metrics_that_cannot_be_made(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.beam_jobs.cli import execute

    def broken(*_: Any) -> None:
        raise TypeError("unhashable type: 'list'")

    monkeypatch.setattr(execute, "write_metrics", broken)
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n3\n")
    for path, status in ((table, 0), (wrong, EXIT_STATUS["data"])):
        streams, metrics = Streams(), tmp_path / "metrics.prom"
        job = ("convert", "csv", path, tmp_path / path.stem)
        assert streams.run(*job, "--metrics-file", metrics) == status
        assert "Warning: TypeError: unhashable type: 'list'\n" in streams.text["err"]


@pytest.mark.parametrize("form", [[], LOG], ids=name_of)
def test_metrics_on_a_full_disk(
    tmp_path: Path, table: Path, form: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from recordmill.beam_jobs.report import monitoring

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(monitoring, "write_named_file", full)
    streams, metrics = Streams(err="full"), tmp_path / "metrics.prom"
    job = ("convert", "csv", table, tmp_path / "out", "--metrics-file", metrics)
    assert streams.run(*job, *form) == 0
    assert_whole(tmp_path / "out")


def test_a_broken_pipe_that_is_no_report(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a store or a worker is no reader of a report that went away."""
    from recordmill.beam_jobs.service import run as service

    def broken(*_: Any) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(service, "run_job", broken)
    with pytest.raises(RuntimeError, match="Broken pipe"):
        run(["convert", "csv", str(table), str(tmp_path / "out")])


PRINTING = """
import os, sys

def shout(batch):
    names = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
    with open(os.environ["NAMES"], "a") as file:
        print(*names, file=file)
    print("printed by Python", flush=True)
    print("printed by Python", file=sys.stderr, flush=True)
    for number in (1, 2):
        try:
            os.write(number, b"printed by a library\\n")
        except OSError:
            pass
    return batch
"""


def shell(*words: object, **environment: object) -> subprocess.CompletedProcess[str]:
    """Runs the command in a shell, which takes a word like 1>&- as it does."""
    return subprocess.run(
        ["bash", "-c", " ".join(map(str, [COMMAND, *words]))],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        env={**os.environ, **{name: str(text) for name, text in environment.items()}},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "redirection"),
    [
        ("in_memory", "0<&- 1>&- 2>&-"),
        ("multi_processing", "0<&- 1>&- 2>&-"),
        ("multi_processing", ">/dev/full"),
    ],
)
def test_what_a_map_function_prints(
    tmp_path: Path, mode: str, redirection: str
) -> None:
    """In a thread or a process it fails no row, and no file has it as its content.

    With the descriptors 0, 1 and 2 closed, the next three files would get these numbers.
    """
    function, names = tmp_path / "printing.py", tmp_path / "names"
    function.write_text(PRINTING)
    output = tmp_path / "out"
    job = ("convert", "cifar", SAMPLES / "cifar", output, "--map", f"{function}:shout")
    beam = ("--", f"--direct_running_mode={mode}", "--direct_num_workers=2")
    ran = shell(*job, redirection, *beam, NAMES=names)
    assert (ran.returncode, ran.stderr.count("Traceback")) == (0, 0)
    assert_whole(output)
    ours = [line.split() for line in names.read_text().splitlines()]
    logs = {Path(line[2]).name for line in ours}
    assert ("run.log" in logs) == (mode == "multi_processing")
    if "&-" in redirection:
        assert {name for line in ours for name in line[:2]} == {"/dev/null"}
        assert logs <= {"null", "run.log"}
    for file in output.rglob("*"):
        assert file.is_dir() or b"printed by " not in file.read_bytes()


SHELL_CASES = (
    (">/dev/full", "--json", ""),
    ("1>&-", "--json", "1"),
    ("2>/dev/full", "", ""),
    ("2>/dev/full", "--log-format json", "1"),
    ("2>&-", "--log-format json", ""),
    (">&- 2>&-", "--json", ""),
    ("2>/dev/full", "--log-format json", ""),
    ("2>&-", "", "1"),
    (">/dev/full 2>/dev/full", "--json --log-format json", "1"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "form", "unbuffered"),
    SHELL_CASES if FACTOR > 1 else SHELL_CASES[:5],
)
def test_the_shell_redirects(
    tmp_path: Path, table: Path, redirection: str, form: str, unbuffered: str
) -> None:
    output = tmp_path / "out"
    command = ("convert", "csv", table, output, form, redirection)
    ran = shell(*command, PYTHONUNBUFFERED=unbuffered)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)
    assert_whole(output)
    if redirection.startswith("2") and form:
        assert json.loads(ran.stdout)["event"] == "report_lost"
    elif redirection.count(">") == 1:
        assert "could not be written to standard" in ran.stdout + ran.stderr


@pytest.mark.parametrize("redirection", [">/dev/full", "1>&-", "| true"])
def test_the_shell_redirects_a_report(dataset: Path, redirection: str) -> None:
    ran = shell("verify", dataset, redirection, "; exit ${PIPESTATUS[0]}")
    assert ran.returncode == (CLOSED_PIPE if "|" in redirection else LOST)
    assert "Traceback" not in ran.stderr


def test_a_file_that_takes_the_beginning(tmp_path: Path) -> None:
    """Python without buffers drops the rest of a text, and raises nothing."""
    schema = tmp_path / "schema.json"
    line = f'ulimit -f 8; "{COMMAND}" run --job-schema > "{schema}"'
    ran = subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert (ran.returncode, schema.stat().st_size) == (LOST, 8 << 10)
    assert "could not be written to standard output: File too large" in ran.stderr


def test_a_signal_without_a_report(tmp_path: Path, table: Path) -> None:
    """Its status is that of the signal, whether or not anybody reads its last words."""
    function = tmp_path / "stopping.py"
    function.write_text(
        "import os, signal, time\n"
        "def stop(batch):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(600)\n"
    )
    output = tmp_path / "out"
    job = ("convert", "csv", table, output, "--map", f"{function}:stop")
    ran = shell(*job, "2>/dev/full", "--", "--direct_running_mode=in_memory")
    assert ran.returncode == 128 + signal.SIGTERM
    assert not (output / "manifest.json").exists()
    assert ran.stdout.startswith("Interrupted by SIGTERM: nothing was published")
