"""Creates the command's options and subcommands, and lays out their --help.

The options are declared in schemas/options.py. --help shows options by group and
commands by purpose, with examples. A test executes the examples as shell lines, in the
order of the commands in --help.

This module imports neither pydantic nor Arrow, so that --help stays fast.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem

from recordmill.schemas.errors import UsageError
from recordmill.schemas.options import BY_NAME, JOB_FILE, Option, spell_options

if TYPE_CHECKING:
    from recordmill.schemas.storage_options import StorageOptionsPair


# (purpose of the example, shell line)
Examples = tuple[tuple[str, str], ...]

_Sections = dict[str, list[tuple[str, str]]]

_FLAG = re.compile(r"--[\w-]+")
_CHOICE = re.compile(r"[\w-]+: ")  # at the start of a help text
_HYPHEN = "\N{NON-BREAKING HYPHEN}"  # replaces hyphens of flags while lines are wrapped
_NAME_COLUMN_WIDTH = 28  # width for names; a longer name gets its own line

DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    help="Also show the traceback of an error.",
)


class GroupedOption(click.Option):
    """An option with a heading in --help, which does not show the option's bounds."""

    group: str = ""

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Returns the additional help of the option, without the bounds of an integer."""
        return {k: v for k, v in super().get_help_extra(ctx).items() if k != "range"}


class HelpCommand(click.Command):
    """A command whose help shows options by group, and examples at the end."""

    examples: Examples = ()
    # creates hidden options, called if an argument is an unknown flag
    make_hidden_options: Callable[[], Sequence[click.Option]] | None = None

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Returns the parameters; every command has --help and --debug."""
        return [*super().get_params(ctx), *ctx.meta.get(__name__, ()), DEBUG]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments; adds the hidden options if an argument needs them."""
        if self.make_hidden_options is not None:
            params = self.get_params(ctx)
            known_flags = {
                name for param in params for name in param.opts + param.secondary_opts
            }
            flags = {arg.partition("=")[0] for arg in args if arg.startswith("--")}
            if flags - known_flags:
                ctx.meta[__name__] = self.make_hidden_options()
        return super().parse_args(ctx, args)

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Writes the options, a section for each group."""
        groups: _Sections = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                group = getattr(param, "group", "")
                groups.setdefault(group, []).append(record)
        default_title = "Options" if list(groups) == [""] else "General"
        titled = {group or default_title: rows for group, rows in groups.items()}
        _write_sections(formatter, titled)

    def get_help(self, ctx: click.Context) -> str:
        """Returns the help, in which no flag is wrapped at a hyphen."""
        return super().get_help(ctx).replace(_HYPHEN, "-")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples as shell lines."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            indent = " " * formatter.current_indent
            for purpose, line in self.examples:
                formatter.write(f"{indent}# {purpose}\n{indent}{line}\n")


class HelpGroup(HelpCommand, click.Group):
    """A group of commands under headings by purpose."""

    command_class = HelpCommand
    headings: Mapping[str, str] = MappingProxyType({})  # heading by command name

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
        headings: _Sections = {}
        for name in names:
            command = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            rows = headings.setdefault(self.headings.get(name, "Commands"), [])
            rows.append((name, command.get_short_help_str(limit)))
        _write_sections(formatter, headings)
        HelpCommand.format_options(self, ctx, formatter)


def command(
    name: str,
    *examples: tuple[str, str],
    params: Iterable[click.Parameter] = (),
    **texts: str | None,
) -> Callable[[Callable[..., object]], HelpCommand]:
    """Returns a decorator that creates a command with examples in its help.

    `params` follow the parameters that click's decorators add. `texts` are keyword
    arguments of click.command, such as help and short_help.
    """

    def decorate(function: Callable[..., object]) -> HelpCommand:
        laid_out_command = click.command(name, cls=HelpCommand, **texts)(function)
        laid_out_command.params += params
        laid_out_command.examples = examples
        return laid_out_command

    return decorate


def _write_sections(formatter: click.HelpFormatter, sections: _Sections) -> None:
    """Writes sections of (name, help), with their second columns aligned."""
    lengths = [len(name) for rows in sections.values() for name, _ in rows]
    left = max(
        (length for length in lengths if length <= _NAME_COLUMN_WIDTH), default=0
    )
    for title, rows in sections.items():
        with formatter.section(title):
            padded = [
                (
                    name.ljust(left),
                    _FLAG.sub(lambda m: m[0].replace("-", _HYPHEN), text),
                )
                for name, text in rows
            ]
            formatter.write_dl(padded, col_max=left)


class PathType(click.ParamType):  # type: ignore[type-arg]
    """A parameter type for paths and URLs, for which a shell completes file names."""

    name = "text"

    def __init__(self, kind: Literal["file", "dir"]) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete the typed text with existing file or folder names."""
        return [CompletionItem(incomplete, type=self._kind)]


_COMPLETION_KINDS: Mapping[str, Literal["file", "dir"]] = {
    "file": "file",
    "schema": "file",
    "function": "file",
    "folder": "dir",
}


def _parse_storage_sides(
    _: click.Context, __: click.Parameter, pairs: Any
) -> StorageOptionsPair:
    """Parses the storage options of both sides."""
    from recordmill.schemas.storage_options import parse_storage_options

    return parse_storage_options(pairs)


def _click_option(option: Option, *, replaces: bool, group: str | None) -> click.Option:
    flag = option.command_flag
    kind: click.ParamType | None = None  # type: ignore[type-arg]
    is_flag = option.value_kind == "flag"
    if is_flag and option.default is True:
        flag += f"/{flag.replace('--', '--no-', 1)}"
    if option.value_kind == "choice":
        kind = click.Choice(option.choices)
    elif option.value_kind == "integer":
        kind = click.IntRange(*option.bounds)
        kind.name = "integer"  # in its messages
    elif option.value_kind in _COMPLETION_KINDS:
        kind = PathType(_COMPLETION_KINDS[option.value_kind])
    click_option = GroupedOption(
        [flag, option.name],
        type=kind,
        is_flag=is_flag,
        default=False if is_flag and not (replaces or option.default) else None,
        multiple=option.is_repeated,
        metavar=option.metavar or ("N" if option.value_kind == "integer" else None),
        callback=_parse_storage_sides if option.value_kind == "storage" else None,
        help=_option_help(option, replaces=replaces),
    )
    click_option.group = option.group if group is None else group
    return click_option


def click_options(
    options: Iterable[Option], *, replaces: bool = False, group: str | None = None
) -> list[click.Option]:
    """Creates click options; an option that is not typed is None, or False for a flag.

    With `replaces`, options replace settings of a job file, so they have no defaults.
    `group` is the heading in the help: None for the declared heading, "" for none.
    """
    return [_click_option(option, replaces=replaces, group=group) for option in options]


def _option_help(option: Option, *, replaces: bool) -> str:
    text = option.help_text
    if not _CHOICE.match(text):  # a choice is shown as the user types it
        text = f"{text[:1].upper()}{text[1:]}"
    if option.is_repeated:
        text += "; repeat for more"
    if option.value_kind == "storage":
        text += "; input:KEY=VALUE or output:KEY=VALUE for one side"
    default = option.default_description
    if option.value_kind == "flag":
        default = option.name if option.default is True else ""
    if replaces and JOB_FILE in option.front_ends:
        default = ""
    return spell_options(
        f"{text}.  [default: {default}]" if default else f"{text}.", "command"
    )


# Options for commands that have too few options for groups.
JSON_OPTION, STORAGE_OPTION, EXCLUDE_OPTION = click_options(
    [BY_NAME[name] for name in ("as_json", "storage", "exclude")], group=""
)


class FormatGroup(HelpGroup):
    """A group with a subcommand for each format, created on first use."""

    def __init__(
        self, name: str, help_text: str, make: Callable[[Any], click.Command]
    ) -> None:
        super().__init__(name, help=help_text)
        self._make = make

    def list_commands(self, ctx: click.Context | None) -> list[str]:
        """Returns the names of all formats, without importing a format."""
        from recordmill.transforms.sources.registry import format_names

        return list(format_names())

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Returns the subcommand of a format; an error suggests the intended format."""
        from recordmill.transforms.sources.registry import guess_format

        first_argument, names = args[0], self.list_commands(ctx)
        if (
            first_argument in names
            or first_argument.startswith("-")
            or ctx.resilient_parsing
        ):
            return super().resolve_command(ctx, args)
        is_path = Path(first_argument).exists() or any(
            mark in first_argument for mark in "./*"
        )
        format_name, remaining_arguments = (
            guess_format(first_argument),
            args if is_path else args[1:],
        )
        line = shlex.join(
            [*ctx.command_path.split(), format_name or "FORMAT", *remaining_arguments]
        )
        raise click.UsageError(
            f"expected a format, found {first_argument!r}: {line}. Formats are {', '.join(names)}"
        )

    def get_command(
        self, ctx: click.Context | None, cmd_name: str
    ) -> click.Command | None:
        """Returns the subcommand of a format, or None if the format is unknown."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from recordmill.transforms.sources.registry import load_format

        try:
            return self._make(load_format(cmd_name))
        except UsageError as error:
            broken = error

        # One broken package must not break the help of the other formats.
        def fail() -> None:
            raise broken

        return click.Command(
            cmd_name,
            callback=fail,
            help=f"Cannot be used: {broken}.",
            context_settings={"ignore_unknown_options": True},
            params=[click.Argument(["paths"], nargs=-1, expose_value=False)],
        )


def all_commands(group: FormatGroup) -> dict[str, click.Command]:
    """Returns the subcommands of all formats by their names."""
    commands = {
        name: group.get_command(None, name) for name in group.list_commands(None)
    }
    return {name: command for name, command in commands.items() if command is not None}


def find_examples(source: Any, command: str) -> Examples:
    """Returns a format's examples of one command, such as "schema infer"."""
    start = f"recordmill {command} {source.name} "
    return tuple(example for example in source.examples if example[1].startswith(start))
