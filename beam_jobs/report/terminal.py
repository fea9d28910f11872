r"""Writes text to the terminal, whatever is in it: all that people are shown passes here.

Names of files and features, cells, and what a foreign manifest says may hold control
characters, by which a terminal is steered. They are shown as escapes, like \x1b.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from recordmill.schemas.text import json_bytes, printable

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = re.compile("[\x7f-\x9f]")  # which JSON leaves as they are


def shown(text: str) -> str:
    """Returns text as it may be shown: of the control characters only ends of lines stay."""
    return "\n".join(map(printable, text.split("\n")))


def echo(text: str, *, err: bool = False) -> None:
    """Writes a line to standard output, or to standard error."""
    click.echo(shown(text), err=err)


def make_console(stream: TextIO | None = None) -> Console:
    """Makes a console that takes all text as it is; with colour only on a terminal.

    It is standard output by default. rich is imported late.
    """
    from rich.console import Console
    from rich.text import Text

    class Shown(Console):
        """A console that passes no control characters on."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(shown(text), **options)

    file = stream or sys.stdout
    return Shown(file=file, markup=False, highlight=False, emoji=False)


def write_json(value: dict[str, Any]) -> None:
    """Writes one JSON object to standard output."""
    text = json_bytes(value).decode()
    sys.stdout.write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
