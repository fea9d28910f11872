"""Makes the command's options from those that are declared (schemas/options.py).

Imports neither pydantic nor Arrow, so that --help stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.shell_completion import CompletionItem

from recordmill.beam_jobs.cli.help_layout import GroupedOption
from recordmill.schemas.options import BY_NAME, Option, spell

if TYPE_CHECKING:
    from recordmill.schemas.storage_options import BothSides

Command = TypeVar("Command", bound=Callable[..., Any])


class _Integer(click.ParamType):  # type: ignore[type-arg]
    """An integer with bounds; unlike click's own, help does not show the bounds."""

    name = "N"

    def __init__(self, minimum: int | None, maximum: int | None) -> None:
        self._range = click.IntRange(minimum, maximum)
        self._range.name = "integer"  # in its messages

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        return self._range.convert(value, param, ctx)


class Name(click.ParamType):  # type: ignore[type-arg]
    """The name of a file or folder, or a URL: a shell completes names.

    Args:
      kind: "file", where folders are completed on the way to files, or "dir".
    """

    name = "text"

    def __init__(self, kind: Literal["file", "dir"]) -> None:
        self._kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Lets the shell complete what was typed, by the names that are there."""
        return [CompletionItem(incomplete, type=self._kind)]


_NAMES: Mapping[str, Literal["file", "dir"]] = {
    "file": "file",
    "schema": "file",
    "function": "file",
    "folder": "dir",
}


def click_option(
    option: Option, *, replaces: bool = False, group: str | None = None
) -> click.Option:
    """Makes an option of the command; one that is not given is None, or False.

    Args:
      option: as declared.
      replaces: whether it replaces what a job file says, so that it has no default.
      group: heading in the help; None for the declared one, "" for none.
    """
    flag = option.command_flag
    kind: click.ParamType | None = None  # type: ignore[type-arg]
    is_flag = option.kind == "flag"
    if is_flag and option.default is True:
        flag += f"/{flag.replace('--', '--no-', 1)}"
    if option.kind == "choice":
        kind = click.Choice(option.choices)
    elif option.kind == "integer":
        kind = _Integer(option.minimum, option.maximum)
    elif option.kind in _NAMES:
        kind = Name(_NAMES[option.kind])
    made = GroupedOption(
        [flag, option.name],
        type=kind,
        is_flag=is_flag,
        default=False if is_flag and option.default is False else None,
        multiple=option.is_repeated,
        metavar=option.metavar or None,
        help=_help(option, replaces=replaces),
    )
    made.group = option.group if group is None else group
    return made


def with_options(
    options: Iterable[Option], *, replaces: bool = False, group: str | None = None
) -> Callable[[Command], Command]:
    """Returns a decorator that gives a command these options, in their order.

    Arguments are those of `click_option`.
    """

    def decorate(command: Command) -> Command:
        params: list[click.Parameter] = getattr(command, "__click_params__", [])
        made = [
            click_option(option, replaces=replaces, group=group) for option in options
        ]
        # Where click's own decorators leave them: the last one first.
        command.__click_params__ = [*params, *reversed(made)]  # type: ignore[attr-defined]
        return command

    return decorate


def _help(option: Option, *, replaces: bool) -> str:
    text = f"{option.help[:1].upper()}{option.help[1:]}"
    if option.is_repeated:
        text += "; repeat for more"
    if option.kind == "storage":
        text += "; input:KEY=VALUE or output:KEY=VALUE for one side"
    default = option.shown_default
    if option.kind == "flag":
        default = option.name if option.default is True else ""
    if replaces and "job_file" in option.fronts:
        default = ""
    return spell(f"{text}.  [default: {default}]" if default else f"{text}.", "command")


# Of commands that have too few options for groups.
storage_option = with_options([BY_NAME["storage"]], group="")
exclude_option = with_options([BY_NAME["exclude"]], group="")
json_option = with_options([BY_NAME["as_json"]], group="")


def storage_of(given: Sequence[str]) -> BothSides:
    """Parses the storage options of both sides.

    Raises:
      UsageError: not of the form KEY=VALUE, or a secret.
    """
    from recordmill.schemas.storage_options import parse_storage_options

    return parse_storage_options(given)
