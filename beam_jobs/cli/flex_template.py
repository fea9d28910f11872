"""The command as a Flex Template of Dataflow has it: parameters instead of arguments.

The launcher calls a Python file with --NAME=VALUE for every parameter, and Beam's own
options among them. A parameter is named like the option of `recordmill run` or `convert`
that it stands for, with "_" for "-":

    job_file, or source with inputs and output    which of the two commands, and on what
    shuffle, overwrite, ...                       true or false
    split, set, storage_option, inputs            several, with spaces between; "a b" is one

All others are Beam's. Airflow's Beam operators call a Python file in the same way.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from recordmill.beam_jobs.cli import main as cli
from recordmill.beam_jobs.cli.convert_command import convert
from recordmill.beam_jobs.cli.run_command import run_command

JOB_FILE, SOURCE, INPUTS, OUTPUT = "job_file", "source", "inputs", "output"
# Options that make no sense where nobody looks on, or are about the launcher's machine.
NOT_OFFERED = frozenset({"detach", "job_schema", "plan", "scratch", "workers"})

_Parameters = dict[str, list[str]]


def main() -> None:
    """Entry point of the file that a launcher calls; never returns."""
    try:
        arguments = command_line(sys.argv[1:])
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    cli.main(arguments)


def command_line(given: Sequence[str]) -> list[str]:
    """The arguments of `recordmill` that a launcher's stand for.

    >>> command_line(["--job_file=gs://b/users.yaml", "--set=n=2 m=3", "--region=x"])
    ['run', '--set=n=2', '--set=m=3', 'gs://b/users.yaml', '--', '--region=x']

    Raises:
      click.UsageError: a parameter is missing, or has no place beside the others.
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
            raise click.UsageError(f"{name}: recordmill {' '.join(words)} has none")
        arguments += _spelt(name, options[name], values)
    return [*arguments, *paths, "--", *beam_args]


def parameters_of(command: click.Command) -> dict[str, click.Option]:
    """A command's options by the names that they have as parameters."""
    options = {
        max(option.opts, key=len).removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
    }
    return {name: options[name] for name in options if name not in NOT_OFFERED}


def _commands() -> list[click.Command]:
    return [run_command, *convert.commands.values()]


def _find(words: Sequence[str]) -> click.Command:
    if words[0] == "run":
        return run_command
    return convert.commands[words[1]]


def _command(parameters: _Parameters) -> tuple[list[str], list[str]]:
    """The command's words and its paths; takes from the parameters what tells them."""
    sources = sorted(convert.commands)
    if JOB_FILE in parameters:
        return ["run"], parameters.pop(JOB_FILE)[-1:]
    if SOURCE not in parameters:
        raise click.UsageError(
            f"give {JOB_FILE}, or {SOURCE} ({', '.join(sources)}), {INPUTS} and {OUTPUT}"
        )
    source = parameters.pop(SOURCE)[-1]
    if source not in sources:
        raise click.UsageError(f"{SOURCE} is one of {', '.join(sources)}, got {source}")
    for name in (INPUTS, OUTPUT):
        if name not in parameters:
            raise click.UsageError(f"{SOURCE}={source} needs {name}, too")
    inputs = [path for text in parameters.pop(INPUTS) for path in _words(INPUTS, text)]
    return ["convert", source], [*inputs, parameters.pop(OUTPUT)[-1]]


def _spelt(name: str, option: click.Option, values: Sequence[str]) -> list[str]:
    """An option as the command line has it."""
    spelling = max(option.opts, key=len)
    if option.is_flag:
        if values[-1].lower() not in ("true", "false"):
            raise click.UsageError(f"{name} is true or false, got {values[-1]}")
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
