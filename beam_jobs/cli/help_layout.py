"""Lays out --help: options by group, commands by what they are for, and examples.

A command is made with `cls=LaidOutCommand`, its examples are given by `with_examples`.
They are shell lines that a test executes, in the order of the commands in `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import click

# (what it does, the line as it is typed)
Examples = tuple[tuple[str, str], ...]

_LEFT_COLUMNS = 28  # of names; longer ones have a line of their own
_REST = "General"  # options that have no group, where others have one

DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    help="Show where in the code an error comes from, too.",
)


class GroupedOption(click.Option):
    """An option with the heading under which help shows it."""

    group: str = ""


class LaidOutCommand(click.Command):
    """A command whose help has groups of options, and examples at its end."""

    examples: Examples = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the parameters; every command has --help and --debug."""
        return [*super().get_params(ctx), DEBUG]

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes the options, a section for each group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                group = param.group if isinstance(param, GroupedOption) else ""
                groups.setdefault(group, []).append(record)
        alone = list(groups) == [""]
        titled = [
            (group or ("Options" if alone else _REST), rows)
            for group, rows in groups.items()
        ]
        _write_sections(formatter, titled)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, as they are typed."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for what, line in self.examples:
                formatter.write(f"{indent}# {what}\n{indent}{line}\n")


class LaidOutGroup(LaidOutCommand, click.Group):
    """A group of commands under headings that say what they are for."""

    command_class = LaidOutCommand
    headings: Mapping[str, str] = MappingProxyType({})  # of commands, by their names

    def add_commands(self, heading: str, *commands: click.Command) -> None:
        """Adds commands, which help shows under a heading."""
        for command in commands:
            self.add_command(command)
            self.headings = {**self.headings, command.name or "": heading}

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        """Returns the names of the commands, in the order in which they were added."""
        return list(self.commands)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes the commands, then the options."""
        names = self.list_commands(ctx)
        limit = formatter.width - 6 - max(map(len, names), default=0)
        headings: dict[str, list[tuple[str, str]]] = {}
        for name in names:
            command = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            rows = headings.setdefault(self.headings.get(name, "Commands"), [])
            rows.append((name, command.get_short_help_str(limit)))
        _write_sections(formatter, list(headings.items()))
        LaidOutCommand.format_options(self, ctx, formatter)


Command = TypeVar("Command", bound=LaidOutCommand)


def with_examples(*examples: tuple[str, str]) -> Callable[[Command], Command]:
    """Returns a decorator that gives a command its examples."""

    def decorate(command: Command) -> Command:
        command.examples = examples
        return command

    return decorate


def _write_sections(
    formatter: click.HelpFormatter, sections: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    """Writes sections of (name, help), their second columns under one another."""
    names = [name for _, rows in sections for name, _ in rows]
    fitting = [len(name) for name in names if len(name) <= _LEFT_COLUMNS]
    left = max(fitting, default=0)
    for title, rows in sections:
        with formatter.section(title):
            padded = [(name.ljust(left), text) for name, text in rows]
            formatter.write_dl(padded, col_max=left)
