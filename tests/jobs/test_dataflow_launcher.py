"""Parameters of a launcher, as arguments of the command."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from dataflow_launcher import MAIN, NOT_OFFERED, command_line, parameters_of
from job_tools import IRIS, Ran, manifest_of, python

from recordmill.beam_jobs.cli.job_commands import convert, run_command
from recordmill.beam_jobs.cli.options import all_commands

COMMANDS = [run_command, *all_commands(convert).values()]

CASES = {  # parameters: arguments
    # A job file with its settings; Beam's options stay apart.
    "--runner=R --job_file=gs://b/j.yaml '--set=n=2 date=2026-11-20'": (
        "run --set=n=2 --set=date=2026-11-20 gs://b/j.yaml -- --runner=R"
    ),
    # A job file's output instead of its own.
    "--job_file=j --output=gs://b/o": "run --output=gs://b/o j --",
    # Several inputs, one of them with a space in its name.
    """--source=csv "--inputs=gs://b/x/*.csv 'gs://b/a b.csv'" --output=gs://o""": (
        "convert csv gs://b/x/*.csv 'gs://b/a b.csv' gs://o --"
    ),
    # Flags, and those that say what holds anyway.
    "--source=cifar --inputs=i --output=o --shuffle=false --overwrite": (
        "convert cifar --no-shuffle --overwrite i o --"
    ),
    "--source=cifar --inputs=i --output=o --shuffle=true --json=False": (
        "convert cifar --shuffle i o --"
    ),
    # Names with "-", and what was left empty.
    "--source=csv --inputs=i --output=o --max_rejects=1% --schema=": (
        "convert csv --max-rejects=1% i o --"
    ),
    # Given twice, as Airflow gives lists.
    "--source=csv --inputs=i --output=o --split=a=0.5 --split=b=0.5": (
        "convert csv --split=a=0.5 --split=b=0.5 i o --"
    ),
}

WRONG = [
    (
        [],
        "give job_file, or source (images, cifar, csv, parquet, arrow, jsonl, binary, idx, numpy, tfrecord, webdataset), inputs and output",
    ),
    (
        ["--source=cvs"],
        "source: expected one of images, cifar, csv, parquet, arrow, jsonl, binary, idx, numpy, tfrecord, webdataset, got cvs",
    ),
    (["--source=csv", "--output=o"], "source=csv also needs inputs"),
    (["--job_file=j", "--inputs=i"], "inputs: not an option of recordmill run"),
    (["--job_file=j", "--source=csv"], "source: not an option of recordmill run"),
    (
        ["--source=csv", "--inputs=i", "--output=o", "--variant=cifar10"],
        "variant: not an option of recordmill convert csv",
    ),
    (
        ["--source=csv", "--inputs=i", "--output=o", "--shuffle=no"],
        "shuffle: expected true or false, got no",
    ),
    (["--source=csv", "--inputs='i", "--output=o"], "inputs: No closing quotation: 'i"),
]


@pytest.mark.parametrize(("given", "arguments"), CASES.items())
def test_parameters_become_arguments(given: str, arguments: str) -> None:
    assert command_line(shlex.split(given)) == shlex.split(arguments)


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_what_is_wrong_is_told(given: list[str], message: str) -> None:
    with pytest.raises(click.UsageError) as error:
        command_line(given)
    assert error.value.message == message


def test_no_parameter_is_called_like_an_option_of_beam() -> None:
    """One of the same name would never reach Beam."""
    ours = {name for command in COMMANDS for name in parameters_of(command)}
    beams = set(PipelineOptions([]).get_all_options())
    assert {"set", "split", "max_rejects"} <= ours
    assert not (ours | {"job_file", "source", "inputs"}) & beams


def test_what_is_not_offered_are_options() -> None:
    named = {
        name.lstrip("-").replace("-", "_")
        for command in COMMANDS
        for option in command.params
        for name in option.opts
    }
    assert named >= NOT_OFFERED


def launch(*arguments: str) -> Ran:
    code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    return python(code, str(MAIN), *arguments)


def test_the_file_that_a_launcher_calls(tmp_path: Path) -> None:
    output = tmp_path / "out"
    given = ["--source=csv", f"--inputs={IRIS}", f"--output={output}", "--shards=3"]
    ran = launch(*given, "--runner=DirectRunner")
    assert ran.status == 0, ran.err
    assert len(manifest_of(output)["splits"]["train"]["shards"]) == 3


def test_its_usage_errors_are_told(tmp_path: Path) -> None:
    ran = launch("--source=csv")
    assert ran.status == 2
    assert "Error: source=csv also needs inputs" in ran.err
