"""`--help`: groups, and examples that do what they say."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from archive_tools import tar_of
from job_tools import IRIS, SAMPLES, recordmill

from recordmill.beam_jobs.cli.main import cli
from recordmill.beam_jobs.cli.options import Examples, LaidOutCommand

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


def examples_of(command: click.Command) -> Examples:
    assert isinstance(command, LaidOutCommand), command.name
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
    if isinstance(command, click.Group):
        cut = re.findall(r"^  \w.*\.\.\.$", shown, re.MULTILINE)
        assert not cut, "short_help= says it in one line"
    if not isinstance(command, click.Group) or not words:
        assert examples_of(command)
    for what, line in examples_of(command):
        assert f"  # {what}\n  {line}\n" in examples


def test_options_are_in_groups() -> None:
    """A few options are one list, many are not."""
    shown = recordmill("convert", "csv", "--help").out
    heads = re.findall(r"^(\w.*):$", shown, re.MULTILINE)
    assert heads == [
        "Options of csv",
        "Input and output",
        "Dataset",
        "Schema and rejects",
        "Splits and shards",
        "Run",
        "Reports",
        "General",
        "Examples",
    ]
    for group in re.split(r"\n\n", shown.partition("Options of csv")[2]):
        assert len(re.findall(r"^  -", group, re.MULTILINE)) <= 14
    assert re.findall(r"^(\w.*):$", recordmill("verify", "-h").out, re.MULTILINE) == [
        "Options",
        "Examples",
    ]


def test_examples_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another, schema files first, in a folder with one input of each kind."""
    shutil.copytree(SAMPLES / "images", tmp_path / "photos")
    shutil.copytree(SAMPLES / "cifar", tmp_path / "batches")
    shutil.copytree(SAMPLES / "digits", tmp_path / "digits")
    shutil.copy(IRIS, tmp_path / "table.csv")
    for folder, kind in ("tables", "parquet"), ("frames", "arrow"), ("texts", "jsonl"):
        (tmp_path / folder).mkdir()
        shutil.copy(SAMPLES / f"typed/iris.{kind}", tmp_path / folder)
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples/0.tar").write_bytes(tar_of({"1.cls": b"1", "2.cls": b"0"}))
    assert recordmill("convert", "csv", IRIS, tmp_path / "shards").status == 0
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    lines = [line for _, command in commands() for _, line in examples_of(command)]
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
