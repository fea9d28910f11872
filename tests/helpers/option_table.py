"""Makes the tables of the declared options that the docs hold.

In a page, a table lies between these two lines; a test compares it with what is made:

    <!-- option_table job_file -->
    <!-- end of option_table -->

    python tests/helpers/option_table.py docs/*.md    updates pages
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from recordmill.schemas.options import (
    CONVERT,
    JOB_FILE,
    OPTIONS,
    PIPELINE,
    RUN,
    Option,
    options_of,
)
from recordmill.schemas.source_options import declare_options
from recordmill.transforms.sources.registry import BUILT_IN, load_format

_TABLE = re.compile(
    r"(<!-- option_table (\w+) -->\n).*?(<!-- end of option_table -->)", re.DOTALL
)


def all_options_table() -> str:
    """Returns a table of all options for each group, with every front end's spelling."""
    formats = format_options()
    # (as a job file has it, option): several formats have options of one name
    options = [
        *((f"`{option.name}`", option) for option in OPTIONS),
        *(
            (f"`{source}: {{{option.name}: ...}}`", option)
            for source, own in formats.items()
            for option in own
        ),
    ]
    groups = dict.fromkeys(option.group for _, option in options)
    parts = []
    for group in groups:
        rows = [
            (
                _command(option),
                in_file if JOB_FILE in option.front_ends else "",
                f"`{option.name}`" if PIPELINE in option.front_ends else "",
                _help(option, is_command=True),
                _default(option),
            )
            for in_file, option in options
            if option.group == group
        ]
        head = ("command", "job file", "WriteDataset", "meaning", "default")
        parts.append(f"### {group}\n\n{_table([head, *rows])}")
    return "\n".join(parts)


def job_file_table() -> str:
    """Returns a table of the fields of a job file."""
    rows = [
        (f"`{option.name}`", _help(option), _default(option))
        for option in options_of(JOB_FILE)
    ]
    for source, own in format_options().items():
        names = ", ".join(f"`{option.name}`" for option in own)
        if names:
            all_of = f"own options of the format: {names}"
            rows.append(
                (f"`{source}`", f"{all_of} ([options.md](options.md#formats))", "")
            )
    return _table([("field", "meaning", "default"), *rows])


def format_options() -> dict[str, tuple[Option, ...]]:
    """Returns the own options of each format that is built in."""
    return {name: declare_options(name, load_format(name).options) for name in BUILT_IN}


TABLES: dict[str, Callable[[], str]] = {
    "all": all_options_table,
    "job_file": job_file_table,
}


def with_tables(page: str) -> str:
    """Returns a page with its tables brought up to date."""

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}"

    return _TABLE.sub(table, page)


def _table(rows: list[tuple[str, ...]]) -> str:
    lines = [
        "|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|"
        for row in rows
    ]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def _command(option: Option) -> str:
    if not {CONVERT, RUN} & {*option.front_ends}:
        return {"inputs": "INPUT", "source": "subcommand"}.get(option.name, "")
    flag = option.command_flag
    if option.default is True:
        return f"`{flag}` / `{flag.replace('--', '--no-', 1)}`"
    value = "|".join(option.choices) or option.metavar
    text = f"`{flag} {value}`".replace(" `", "`").replace("|", "\\|")
    return f"OUTPUT; of `run`: {text}" if option.name == "output" else text


def _help(option: Option, *, is_command: bool = False) -> str:
    text = option.help_text
    if option.choices and not is_command:
        text += f"; one of {', '.join(option.choices)}"
    if option.is_repeated and is_command:
        text += "; the command takes it several times"
    if option.docs_page:
        text += f" ([{option.docs_page.partition('#')[0]}]({option.docs_page}))"
    return re.sub(r"`(\w+)=(\w+)`", r"`\1: \2`", text).replace("|", "\\|")


def _default(option: Option) -> str:
    return re.sub(r"`(\w+)=(\w+)`", r"`\1: \2`", option.default_description)


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(with_tables(page.read_text()))
