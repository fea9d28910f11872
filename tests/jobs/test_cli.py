"""The command line: what goes in, what comes out where, help and completion."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from archive_tools import tar_of
from job_inputs import MixedInput
from job_tools import (
    COMMAND,
    HANG_SECONDS,
    HEAVY,
    IRIS,
    SAMPLES,
    Argument,
    assert_unpublished,
    assert_whole,
    command,
    ended,
    examples_of,
    manifest_of,
    python,
    recordmill,
    started,
    wait_until,
)
from terminal import plain_text

from recordmill.beam_jobs.cli.main import cli
from recordmill.beam_jobs.cli.options import Examples, HelpCommand
from recordmill.beam_jobs.report.progress import STAGES


def species_by_split(output: Path) -> dict[str, Counter[str]]:
    return {
        split: Counter(
            example.features.feature["species"].bytes_list.value[0].decode()
            for example in examples_of(output, split)
        )
        for split in ("train", "test")
    }


def test_json_is_all_on_stdout(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    options = ["--split", "train=0.5", "--split", "test=0.5", "--shards", "2"]
    ran = command("convert", "csv", IRIS, output, *options, "--json")
    assert (ran.status, ran.err) == (0, "")
    facts = json.loads(ran.out)
    assert ran.out.count("\n") == 1
    manifest = manifest_of(output)
    assert facts.pop("seconds") > 0
    assert list(facts.pop("stages")) == ["prepare", "read", "write", "publish"]
    assert facts.pop("understood")["facts"]["delimiter"] == "comma"
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
        "reasons": [],
        "classes": {
            "species": {
                name: {species: counts[species] for species in sorted(counts)}
                for name, counts in species_by_split(output).items()
            }
        },
    }
    again = recordmill("convert", "csv", IRIS, output, *options, "--json")
    assert (again.status, again.err) == (0, "")
    assert json.loads(again.out)["status"] == "unchanged"


def test_people_read_stderr(tmp_path: Path) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "iris")
    assert (ran.status, ran.out) == (0, "")
    assert "150 records in 1 shard," in ran.err


def test_error_is_one_message(tmp_path: Path) -> None:
    """No traceback of a worker's comes before it; that is in the log."""
    (tmp_path / "in.csv").write_text("a,b\n1\n")
    ran = command("convert", "csv", tmp_path / "in.csv", tmp_path / "out", "--json")
    assert ran.status == 65
    assert json.loads(ran.out)["status"] == "failed"
    assert ran.err.startswith("Error: 1 of 1 row rejected (limit 0)")
    assert "Traceback" not in ran.err
    assert ran.err.count("\n") == 4  # the rows, the reasons, the way out, the log
    (log,) = (tmp_path / "out").glob(".recordmill/*/run.log")
    assert "Traceback" in log.read_text()


CONVERT: list[Argument] = ["convert", "csv", IRIS, "out"]


WRONG = {  # what is typed, and what is told
    "convert csv": "Missing argument 'INPUT... OUTPUT'",
    "convert csv in.csv": "expected one or more INPUT, then OUTPUT",
    "convert excel a b": "expected a format, found 'excel'",
    "melt": "No such command 'melt'",
    "verify out -- --runner=Flink": "only convert, run and plan accept",
    "-- --runner=Flink": "only convert, run and plan accept",
    "verify": "Missing argument 'OUTPUT'",
    "verify out --quick --deep": "--quick and --deep cannot be combined",
    "inspect out --examples few": "'few' is not a valid integer",
}
WRONG_OPTIONS = {  # of convert
    "--colour": "No such option '--colour'",
    "--variant cifar10": "No such option '--variant'",
    "--split train": "--split: expected NAME=FRACTION, found 'train'",
    "--split train=much": "expected a fraction like 0.8",
    "--split a=0.5 --split b=0.4": "must add up to 1",
    "--split a=0.5 --split a=0.5": "--split: a is given twice",
    "--shards 0": "0 is not in the range 1<=x<=99999",
    "--shards many": "'many' is not a valid integer",
    "--shard-size huge": "expected a size like 128MiB or 100MB",
    "--shard-size 1e6": "expected a size like 128MiB or 100MB",
    "--shard-size ²": "expected a size like 128MiB or 100MB",
    "--shard-size -1": "expected a size like 128MiB or 100MB",
    "--shard-size 0": "a shard has at least one byte",
    f"--shard-size {'9' * 40}": "expected a size like 128MiB or 100MB",
    "--shards 2 --shard-size 1M": "--shards, --shard-size and --readers cannot be combined",
    "--max-rejects some": "a count like 10 or a share like",
    "--seed -1": "-1 is not in the range 0<=x<=18446744073709551615",
    f"--seed {1 << 64}": "18446744073709551616 is not in the range",
    "--name a/b": "expected a name of letters, digits and '_'",
    "--dataset-version 1.0": "expected a version like 1.0.0",
    "--compression zip": "'zip' is not one of 'none', 'gzip'",
    "--workers -1": "-1 is not in the range x>=0",
    "-- --s3_secret_access_key=hushhush": "--s3_secret_access_key looks like a secret",
    "-- --azure_connection_string hushhush": "connection_string looks like a secret",
}
WRONG |= {f"convert csv {IRIS} out {k}": what for k, what in WRONG_OPTIONS.items()}


@pytest.mark.parametrize(("typed", "message"), WRONG.items())
def test_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = recordmill(*typed.split())
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert "hushhush" not in ran.err
    assert list(tmp_path.iterdir()) == []


# Commands whose help needs the formats: their options are pydantic models.
OF_FORMATS = ["convert", "convert images", "convert cifar", "convert csv"]
OF_FORMATS += ["schema infer"]
OF_FORMATS += [f"schema infer {name}" for name in ("csv", "images", "cifar")]
OTHERS = ["", "run", "plan", "schema", "schema check", "verify", "inspect"]
OTHERS += ["report", "rejects", "diff", "index", "clean", "completion"]


@pytest.mark.parametrize(
    ("commands", "allowed"), [(OTHERS, set()), (OF_FORMATS, {"pydantic", "numpy"})]
)
def test_help_imports_nothing_heavy(commands: list[str], allowed: set[str]) -> None:
    code = (
        "import sys; from recordmill.beam_jobs.cli.main import run\n"
        "for words in sys.argv[1:]: assert run([*words.split(), '--help']) == 0\n"
        f"print('heavy', sorted({set(HEAVY) - allowed} & set(sys.modules)))"
    )
    ran = python(code, *commands)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.count("Usage: recordmill") == len(commands)
    assert ran.out.endswith("heavy []\n")


def test_a_plain_run_imports_nothing_of_other_abilities(tmp_path: Path) -> None:
    others = "audio.header dataset.export dataset.croissant sources.sampling sources.lakehouse"
    others += " sources.hugging_face images.objects tasks.processes"
    code = (
        "import sys; from recordmill.beam_jobs.cli.main import run\n"
        "status = run(['convert', 'csv', *sys.argv[2:]])\n"
        "names = {f'recordmill.transforms.{each}' for each in sys.argv[1].split()}\n"
        "print(status, sorted(names & {*sys.modules}))\n"
    )
    ran = python(code, others, IRIS, tmp_path / "iris")
    assert ran.out == "0 []\n", ran.err


def test_nothing_to_do_imports_little(tmp_path: Path) -> None:
    """What is there is found by manifest and inventory, without reading rows."""
    job = ["convert", "csv", IRIS, tmp_path / "iris"]
    assert recordmill(*job).status == 0
    code = (
        "import sys; from recordmill.beam_jobs.cli.main import run\n"
        "assert run(sys.argv[1:]) == 0\n"
        "print(sorted({'apache_beam', 'fsspec', 'yaml', 'google.protobuf', 'rich',"
        " 'recordmill.transforms.cast.cast_batch'} & set(sys.modules)))"
    )
    ran = python(code, *job)
    assert ran.out == "[]\n", ran.err
    assert "nothing to do" in ran.err


def test_beam_comes_without_its_connectors_to_clouds(tmp_path: Path) -> None:
    """They take two thirds of its import, and can be imported later."""
    code = (
        "import sys; from recordmill.beam_jobs.cli.main import run\n"
        "status = run(sys.argv[1:])\n"
        "clouds = {'apitools', 'boto3', 'bson', 'google.auth', 'pymongo'}\n"
        "clouds |= {'azure', 'apache_beam.io.aws', 'apache_beam.io.gcp'}\n"
        "print('apache_beam' in sys.modules, clouds & {*sys.modules})\n"
        "import pymongo, apache_beam.io.gcp, apache_beam.io.aws; sys.exit(status)"
    )
    ran = python(code, "convert", "csv", IRIS, tmp_path / "iris")
    assert (ran.status, ran.out) == (0, "True set()\n"), ran.err


def test_console_script() -> None:
    ran = command("--help")
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Usage: recordmill [OPTIONS] COMMAND [ARGS]...")
    assert command("verify", "/no/such/folder").status == 65


def has_a_range(output: Path) -> bool:
    """Not by a pattern: folders of the lease go meanwhile."""
    files = [name for _, _, names in os.walk(output) for name in names]
    return any(name.startswith("range") for name in files)


def test_interrupted(tmp_path: Path, mixed: MixedInput) -> None:
    """Ctrl-C in mid-run."""
    output = tmp_path / "mixed"
    with started("convert", "csv", *mixed.files, output) as process:
        wait_until(lambda: has_a_range(output), process)
        process.send_signal(signal.SIGINT)
        ran = ended(process)
    assert (ran.status, ran.out) == (130, "")
    *progress, told = ran.err.splitlines()  # a slow machine shows some progress first
    assert all(line.split(":")[0] in STAGES for line in progress), progress
    assert told == (
        "Interrupted by Ctrl-C: nothing was published. Run the same command again to "
        "resume"
    )
    assert_unpublished(output)


def test_bug_shows_its_traceback() -> None:
    """What no one expected ends the process too, whatever threads are left."""
    code = (
        "import sys, recordmill.beam_jobs.service.run as launch\n"
        "from recordmill.beam_jobs.cli import main as cli\n"
        "def broken(*arguments): raise ZeroDivisionError('a bug')\n"
        "launch.run_job = broken; sys.argv[0] = 'recordmill'; cli.main()"
    )
    ran = python(code, *CONVERT)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("Traceback")
    assert "\nZeroDivisionError: a bug\nError: this is a bug in recordmill" in ran.err


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
    text = plain_text(ours)
    assert process.wait(HANG_SECONDS) == 0
    assert "scan: listing the inputs" in text
    columns = "columns: 5 (sepal_length_cm float32, "
    publish = text.index("publish: checking and moving the files")
    assert text.index(columns) < publish < text.rindex(columns)
    assert "150 records in 1 shard" in text
    assert_whole(output)


JOB = "source: csv\ninputs: table.csv\noutput: out/{{ day }}\nparams: {day: sunday}\n"


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words, the root too."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*path, name))


def help_examples_of(command: click.Command) -> Examples:
    assert isinstance(command, HelpCommand), command.name
    return command.examples


@pytest.mark.parametrize(
    ("words", "command"),
    [
        pytest.param(*found, id=" ".join(found[0]) or "recordmill")
        for found in commands()
    ],
)
def test_every_help_fits_and_has_examples(
    words: tuple[str, ...], command: click.Command
) -> None:
    ran = recordmill(*words, "--help")
    assert (ran.status, ran.err) == (0, "")
    shown, _, examples = ran.out.partition("Examples:\n")
    assert "--debug" in shown
    assert max(map(len, ran.out.splitlines())) <= 80
    assert not re.findall(r"--[\w-]+-$", shown, re.MULTILINE), "a flag is broken"
    if isinstance(command, click.Group):
        cut = re.findall(r"^  \w.*\.\.\.$", shown, re.MULTILINE)
        assert not cut, "short_help= says it in one line"
    if not isinstance(command, click.Group) or not words:
        assert help_examples_of(command)
    for what, line in help_examples_of(command):
        assert f"  # {what}\n  {line}\n" in examples


def test_options_are_in_groups() -> None:
    """A few options are one list, many are not."""
    shown = recordmill("convert", "csv", "--help").out
    heads = re.findall(r"^(\w.*):$", shown, re.MULTILINE)
    assert heads == [
        "Options of csv",
        "Input and output",
        "Dataset",
        "Description",
        "Schema and rejects",
        "Splits and shards",
        "Run",
        "Reports",
        "General",
        "Examples",
    ]
    for group in re.split(r"\n\n", shown.partition("Options of csv")[2]):
        assert len(re.findall(r"^  -", group, re.MULTILINE)) <= 18
    assert re.findall(r"^(\w.*):$", recordmill("verify", "-h").out, re.MULTILINE) == [
        "Options",
        "Examples",
    ]


def test_examples_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, schema files first, in a folder with one input of each kind."""
    shutil.copytree(SAMPLES / "images", tmp_path / "photos")
    shutil.copytree(SAMPLES / "sounds", tmp_path / "sounds")
    shutil.copytree(SAMPLES / "labelled", tmp_path / "labelled")
    shutil.copytree(SAMPLES / "cifar", tmp_path / "batches")
    shutil.copytree(SAMPLES / "digits", tmp_path / "digits")
    shutil.copy(IRIS, tmp_path / "table.csv")
    for folder, kind in ("tables", "parquet"), ("frames", "arrow"), ("texts", "jsonl"):
        (tmp_path / folder).mkdir()
        shutil.copy(SAMPLES / f"typed/iris.{kind}", tmp_path / folder)
    (tmp_path / "prose").mkdir()
    shutil.copy(IRIS, tmp_path / "prose/lines.txt")
    for label in ("good", "bad"):
        (tmp_path / "reviews" / label).mkdir(parents=True)
        shutil.copy(IRIS, tmp_path / "reviews" / label / "1.txt")
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples/0.tar").write_bytes(tar_of({"1.cls": b"1", "2.cls": b"0"}))
    assert recordmill("convert", "csv", IRIS, tmp_path / "shards").status == 0
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    lines = [line for _, command in commands() for _, line in help_examples_of(command)]
    lines.sort(key=lambda line: not line.startswith("recordmill schema infer"))
    for line in dict.fromkeys(lines):
        typed = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line).replace("\\\n", " ")
        command, _, file = typed.partition(" > ")
        name, *words = shlex.split(command)
        assert name == "recordmill"
        ran = recordmill(*words)
        assert ran.status == 0, f"{line}\n{ran.err}"
        if file:
            Path(file).write_text(ran.out)
    assert "TFRecord" in Path("load.py").read_text()


# What bash does on Tab: the registered function is called with the words so far.
TAB = """
eval "$(recordmill completion bash)"
function="$(complete -p recordmill | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
while read -ra COMP_WORDS; do
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  [ "${COMP_WORDS[COMP_CWORD]}" = - ] && COMP_WORDS[COMP_CWORD]=
  COMPREPLY=()
  $function recordmill
  echo "${COMPREPLY[@]}"
done
"""
COMPLETED = {
    "recordmill conv": ["convert"],
    "recordmill -": list(cli.commands),
    "recordmill convert im": ["images"],
    "recordmill schema -": ["infer", "check"],
    "recordmill convert csv --compr": ["--compression"],
    "recordmill convert csv --compression gz": ["gzip"],
    "recordmill inspect --ima": ["--image"],
    "recordmill completion f": ["fish"],
}


def environment() -> dict[str, str]:
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb"}


def test_bash() -> None:
    """A lone "-" stands for a word that has not begun."""
    ran = subprocess.run(
        ["bash", "-c", TAB],
        input="\n".join([*COMPLETED, ""]),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split() for line in ran.stdout.splitlines()]
    assert dict(zip(COMPLETED, found, strict=True)) == COMPLETED, ran.stderr


@contextmanager
def interactive_bash(folder: Path) -> Iterator[int]:
    """A bash at a terminal; gives our end of it."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(),
        cwd=folder,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def type_until(ours: int, typed: str, wanted: str) -> None:
    """Types, and reads what the terminal shows until it has what is wanted."""
    os.write(ours, typed.encode())
    shown = ""
    deadline = time.monotonic() + HANG_SECONDS
    while wanted not in shown:
        assert time.monotonic() < deadline, f"{typed!r}: {shown}"
        if select.select([ours], [], [], 1)[0]:
            shown += os.read(ours, 4096).decode(errors="replace")


def test_files_are_completed_where_files_are_wanted(tmp_path: Path) -> None:
    """By Tab at a prompt, as only there bash completes files."""
    (tmp_path / "table_of_rows.csv").touch()
    (tmp_path / "folder_of_rows").mkdir()
    with interactive_bash(tmp_path) as ours:
        # The echo of the line itself has quotes between the words.
        type_until(
            ours, 'eval "$(recordmill completion bash)"; echo re""ady\n', "ready"
        )
        for typed, wanted in {
            "recordmill convert csv ta\t": "table_of_rows.csv",
            "recordmill convert csv x --schema ta\t": "table_of_rows.csv",
            "recordmill run ta\t": "table_of_rows.csv",
            "recordmill inspect fo\t": "folder_of_rows",
        }.items():
            type_until(ours, typed, wanted)
            os.write(ours, b"\x15")  # clears the line


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str) -> None:
    ran = recordmill("completion", shell)
    assert ran.status == 0
    assert f"_RECORDMILL_COMPLETE={shell}_complete" in ran.out


@pytest.mark.parametrize(
    ("typed", "origin"),
    [
        ("verify no/such", "read_manifest"),
        ("convert csv rows.csv out", "RejectLimitError"),
        ("convert csv rows.csv out --log-format text", "RejectLimit"),
    ],
)
def test_debug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, origin: str
) -> None:
    """It shows where an error comes from; the last lines are those that people read."""
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("a,b\n1\n")
    plain = recordmill(*typed.split())
    shown = recordmill(*typed.split(), "--debug")
    assert shown.status == plain.status
    assert "Traceback" not in plain.err
    assert "Traceback" in shown.err
    assert origin in shown.err
    if "--log-format" not in typed:
        assert shown.err.endswith(plain.err[plain.err.index("Error: ") :])
