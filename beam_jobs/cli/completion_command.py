"""Defines the command `completion`: the shell finishes commands, options and files."""

from __future__ import annotations

from typing import Literal

import click
from click.shell_completion import get_completion_class

from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples

_VARIABLE = "_RECORDMILL_COMPLETE"  # click looks for it when the command starts


@with_examples(("try it in this shell", 'eval "$(recordmill completion bash)"'))
@click.command(
    "completion",
    cls=LaidOutCommand,
    short_help="Prints the completion script of a shell.",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(
    context: click.Context, shell: Literal["bash", "zsh", "fish"]
) -> None:
    """Prints the script by which a shell completes this command.

    \b
    bash:  eval "$(recordmill completion bash)"     in ~/.bashrc
    zsh:   eval "$(recordmill completion zsh)"      in ~/.zshrc
    fish:  recordmill completion fish > ~/.config/fish/completions/recordmill.fish
    """  # noqa: D301 - \b keeps click from joining the lines
    found = get_completion_class(shell)
    assert found is not None  # click has these three
    root = context.find_root()
    click.echo(found(root.command, {}, "recordmill", _VARIABLE).source())
