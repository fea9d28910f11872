"""Prints for the commands: tables and JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# rich and pydantic are imported inside the functions, so that --help stays fast.


def make_console(stream: TextIO | None) -> Console:
    """Makes a console that takes all text as it is; with colour only on a terminal."""
    from rich.console import Console

    return Console(
        file=stream or sys.stdout, markup=False, highlight=False, emoji=False
    )


def make_table(*columns: tuple[str, Any]) -> Table:
    """Makes a table with these columns: name, and "left" or "right"."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")
    return table


def print_table(console: Console, title: str, table: Table) -> None:
    """Prints a title over a table, with a line of space above."""
    console.print()
    console.print(title, style="bold", soft_wrap=True)
    console.print(table, end="")


def write_json(value: dict[str, Any], stream: TextIO | None) -> None:
    """Writes one JSON object, to standard output unless given another stream."""
    from recordmill.schemas.text import json_bytes

    (stream or sys.stdout).write(json_bytes(value).decode())
