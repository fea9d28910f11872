"""Turns the parameters of a Dataflow Flex Template into arguments of the command.

The launcher calls a Python file with --NAME=VALUE for every parameter, and Beam's own
options among them. A parameter is named like the option of `recordmill run` or `convert`
that it stands for, with "_" for "-":

    job_file, or source with inputs and output    which of the two commands, and on what
    shuffle, overwrite, ...                       true or false
    split, set, storage_option, exclude, inputs   several, with spaces between; "a b" is one

All others are passed to Beam. Airflow's Beam operators call a Python file in the same
way.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from recordmill.beam_jobs.cli import main as cli
from recordmill.beam_jobs.cli.convert_command import convert
from recordmill.beam_jobs.cli.formats import all_commands
from recordmill.beam_jobs.cli.run_command import run_command

JOB_FILE, SOURCE, INPUTS, OUTPUT = "job_file", "source", "inputs", "output"
# Options for people at a terminal, or about the launcher's own machine.
NOT_OFFERED = frozenset(
    {"detach", "job_schema", "memory", "plan", "scratch", "workers"}
)

_Parameters = dict[str, list[str]]


def main() -> None:
    """Runs the command with a launcher's parameters, and ends the process."""
    try:
        arguments = command_line(sys.argv[1:])
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    cli.main(arguments)


def command_line(given: Sequence[str]) -> list[str]:
    """Returns the arguments of `recordmill` that a launcher's parameters stand for.

    >>> command_line(["--job_file=gs://b/users.yaml", "--set=n=2 m=3", "--region=x"])
    ['run', '--set=n=2', '--set=m=3', 'gs://b/users.yaml', '--', '--region=x']

    Raises:
      click.UsageError: a parameter is missing, or the command does not have it.
    """
    known = {name for command in _commands() for name in parameters_of(command)}
    known |= {JOB_FILE, SOURCE, INPUTS, OUTPUT}
    parameters: _Parameters = {}
    beam_args = []
    for argument in given:
        name, equals, value = argument.removeprefix("--").partition("=")
        if name not in known:
            beam_args.append(argument)
        elif value or not equals:  # an empty one is one that was left out
            parameters.setdefault(name, []).append(value if equals else "true")
    words, paths = _command(parameters)
    options = parameters_of(_find(words))
    arguments = list(words)
    for name, values in parameters.items():
        if name not in options:
            raise click.UsageError(
                f"{name}: not an option of recordmill {' '.join(words)}"
            )
        arguments += _argument(name, options[name], values)
    return [*arguments, *paths, "--", *beam_args]


def parameters_of(command: click.Command) -> dict[str, click.Option]:
    """Returns a command's options by the names that they have as parameters."""
    options = {
        max(option.opts, key=len).removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
    }
    return {name: options[name] for name in options if name not in NOT_OFFERED}


def _commands() -> list[click.Command]:
    return [run_command, *all_commands(convert).values()]


def _find(words: Sequence[str]) -> click.Command:
    if words[0] == "run":
        return run_command
    return all_commands(convert)[words[1]]


def _command(parameters: _Parameters) -> tuple[list[str], list[str]]:
    """Takes from the parameters the command's words and its paths."""
    sources = convert.list_commands(None)
    if JOB_FILE in parameters:
        return ["run"], parameters.pop(JOB_FILE)[-1:]
    if SOURCE not in parameters:
        raise click.UsageError(
            f"give {JOB_FILE}, or {SOURCE} ({', '.join(sources)}), {INPUTS} and {OUTPUT}"
        )
    source = parameters.pop(SOURCE)[-1]
    if source not in sources:
        raise click.UsageError(
            f"{SOURCE}: expected one of {', '.join(sources)}, got {source}"
        )
    for name in (INPUTS, OUTPUT):
        if name not in parameters:
            raise click.UsageError(f"{SOURCE}={source} also needs {name}")
    inputs = [path for text in parameters.pop(INPUTS) for path in _words(INPUTS, text)]
    return ["convert", source], [*inputs, parameters.pop(OUTPUT)[-1]]


def _argument(name: str, option: click.Option, values: Sequence[str]) -> list[str]:
    """Returns an option as the command line has it."""
    spelling = max(option.opts, key=len)
    if option.is_flag:
        if values[-1].lower() not in ("true", "false"):
            raise click.UsageError(f"{name}: expected true or false, got {values[-1]}")
        wanted = [spelling] if values[-1].lower() == "true" else option.secondary_opts
        return list(wanted[:1])
    if option.multiple:
        values = [word for text in values for word in _words(name, text)]
        return [f"{spelling}={value}" for value in values]
    return [f"{spelling}={values[-1]}"]


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}: {text}") from error
