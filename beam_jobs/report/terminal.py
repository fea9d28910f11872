r"""Writes text to the terminal, with escapes for control characters.

All output for people passes through this module. File names, feature names, cells and
the content of a foreign manifest may hold control characters, which can manipulate a
terminal. They are written as escapes, like \x1b. schemas/text.py defines the control
characters.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

import click

from recordmill.schemas.text import (
    escape_json,
    escape_lines,
    escape_message,
    escape_unprintable,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


def echo(line: str, *, err: bool = False) -> None:
    """Writes a line to standard output, or to standard error."""
    click.echo(escape_unprintable(line), err=err)


def echo_message(message: str) -> None:
    """Writes an error or a warning of one or more lines to standard error."""
    click.echo(escape_message(message), err=True)


def echo_lines(text: str, *, err: bool = False) -> None:
    """Writes text of several lines, like a program, a schema or a traceback."""
    click.echo(escape_lines(text), nl=not text.endswith("\n"), err=err)


def make_console(stream: TextIO | None = None) -> Console:
    """Creates a console that writes text literally; with colour only on a terminal.

    It writes to standard output by default. rich is imported late.
    """
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    class PrintableConsole(Console):
        """A console that writes no control characters but its own."""

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(escape_unprintable(text), **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            """Yields the segments to write; their text is printable, with line breaks."""
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else escape_lines(text), style, control)

    file = stream or sys.stdout
    return PrintableConsole(file=file, markup=False, highlight=False, emoji=False)


def write_json(value: dict[str, Any], *, indented: bool = True) -> None:
    """Writes one JSON object to standard output, with escapes for control characters."""
    if indented:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    else:
        text = json.dumps(value)
    click.echo(escape_json(text))
