"""Makes a subcommand for every input format, also those that other packages add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from recordmill.beam_jobs.cli.help_layout import Examples, LaidOutGroup

MakeCommand = Callable[[Any], click.Command]  # takes a SourceFormat


class FormatGroup(LaidOutGroup):
    """A group with a subcommand for each format, made when it is asked for."""

    def __init__(self, name: str, help_text: str, make: MakeCommand) -> None:
        super().__init__(name, help=help_text)
        self._make = make

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        """Returns the names of all formats; imports none of them."""
        from recordmill.transforms.sources.registry import format_names

        return list(format_names())

    def get_command(
        self, ctx: click.Context | None, cmd_name: str
    ) -> click.Command | None:
        """Returns the subcommand of a format, or None if there is no such format."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from recordmill.schemas.errors import UsageError
        from recordmill.transforms.sources.registry import load_format

        try:
            return self._make(load_format(cmd_name))
        except UsageError as error:
            # One broken package must not take the help of all others away.
            return _broken(cmd_name, error)


def all_commands(group: FormatGroup) -> dict[str, click.Command]:
    """Returns the subcommands of all formats by their names."""
    made = {name: group.get_command(None, name) for name in group.list_commands(None)}
    return {name: command for name, command in made.items() if command is not None}


def examples_of(source: Any, command: str) -> Examples:
    """Returns a format's examples of one command, such as "schema infer"."""
    start = f"recordmill {command} {source.name} "
    return tuple(example for example in source.examples if example[1].startswith(start))


def _broken(name: str, error: Exception) -> click.Command:
    def fail() -> None:
        raise error

    return click.Command(
        name,
        callback=fail,
        help=f"Cannot be used: {error}.",
        context_settings={"ignore_unknown_options": True},
        params=[click.Argument(["paths"], nargs=-1, expose_value=False)],
    )
