"""Runs the command with the parameters of a Flex Template, or of Airflow's Beam operators.

Both call this file with --NAME=VALUE for every parameter, and Beam's own options among
them. A parameter is named like the option of `recordmill run` or `convert` that it stands
for, with "_" for "-":

    job_file, or source with inputs and output    which of the two commands, and on what
    shuffle, overwrite, ...                       true or false
    split, set, storage_option, exclude, inputs   several, with spaces between; "a b" is one

All others are passed to Beam. metadata.json is the form of the template.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

import click

from recordmill.beam_jobs.cli.job_commands import convert, run_command
from recordmill.beam_jobs.cli.main import main
from recordmill.beam_jobs.cli.options import all_commands

# Options for users at a terminal, or about the launcher's own machine.
NOT_OFFERED = {"detach", "job_schema", "memory", "plan", "scratch", "workers"}
FORMATS = all_commands(convert)


def parameters_of(command: click.Command) -> dict[str, click.Option]:
    """Returns a command's options by the names that they have as parameters."""
    options = {
        max(option.opts, key=len).removeprefix("--").replace("-", "_"): option
        for option in command.params
        if isinstance(option, click.Option)
    }
    return {name: options[name] for name in options if name not in NOT_OFFERED}


def command_line(given: Sequence[str]) -> list[str]:
    """Returns the arguments of `recordmill` that a launcher's parameters stand for.

    >>> command_line(["--job_file=gs://b/users.yaml", "--set=n=2 m=3", "--region=x"])
    ['run', '--set=n=2', '--set=m=3', 'gs://b/users.yaml', '--', '--region=x']

    Raises:
      click.UsageError: a parameter is missing, or the command does not have it.
    """
    known = {"job_file", "source", "inputs", "output"}
    known.update(*map(parameters_of, [run_command, *FORMATS.values()]))
    parameters: dict[str, list[str]] = {}
    beam_args = []
    for argument in given:
        name, equals, value = argument.removeprefix("--").partition("=")
        if name not in known:
            beam_args.append(argument)
        elif value or not equals:  # an empty one is one that was left out
            parameters.setdefault(name, []).append(value if equals else "true")
    command, words, paths = _command(parameters)
    options = parameters_of(command)
    arguments = []
    for name, values in parameters.items():
        if name not in options:
            raise click.UsageError(
                f"{name}: not an option of recordmill {' '.join(words)}"
            )
        arguments += _argument(name, options[name], values)
    return [*words, *arguments, *paths, "--", *beam_args]


def _command(
    parameters: dict[str, list[str]],
) -> tuple[click.Command, list[str], list[str]]:
    """Takes from the parameters the command, its words and its paths."""
    if "job_file" in parameters:
        return run_command, ["run"], parameters.pop("job_file")[-1:]
    if "source" not in parameters:
        raise click.UsageError(
            f"give job_file, or source ({', '.join(FORMATS)}), inputs and output"
        )
    source = parameters.pop("source")[-1]
    if source not in FORMATS:
        raise click.UsageError(
            f"source: expected one of {', '.join(FORMATS)}, got {source}"
        )
    for name in ("inputs", "output"):
        if name not in parameters:
            raise click.UsageError(f"source={source} also needs {name}")
    inputs = _words("inputs", parameters.pop("inputs"))
    paths = [*inputs, parameters.pop("output")[-1]]
    return FORMATS[source], ["convert", source], paths


def _argument(name: str, option: click.Option, values: Sequence[str]) -> list[str]:
    """Returns an option as the command line has it."""
    spelling = max(option.opts, key=len)
    if option.is_flag:
        if values[-1].lower() not in ("true", "false"):
            raise click.UsageError(f"{name}: expected true or false, got {values[-1]}")
        wanted = [spelling] if values[-1].lower() == "true" else option.secondary_opts
        return list(wanted[:1])
    values = _words(name, values) if option.multiple else values[-1:]
    return [f"{spelling}={value}" for value in values]


def _words(name: str, texts: Sequence[str]) -> list[str]:
    try:
        return [word for text in texts for word in shlex.split(text)]
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}: {texts[-1]}") from error


if __name__ == "__main__":
    try:
        ARGUMENTS = command_line(sys.argv[1:])
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    main(ARGUMENTS)
