"""Runs the transcripts of a page: commands behind `$ `, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LIMIT_SECONDS = 600
REST = "..."  # a line that stands for any lines, or the end of a line for any text


@dataclass(frozen=True)
class Command:
    """A command, and the lines that a page shows below it."""

    text: str
    shown: tuple[str, ...]


def transcript(text: str) -> list[Command]:
    """Splits a block of language console; a command goes on behind `> `.

    >>> transcript("$ echo a\\na\\n")
    [Command(text='echo a', shown=('a',))]
    """
    commands: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(([line[2:]], []))
        elif re.match(r"> |>$", line) and not commands[-1][1]:
            commands[-1][0].append(line[2:])
        else:
            commands[-1][1].append(line)
    return [Command("\n".join(words), tuple(shown)) for words, shown in commands]


def run_command(
    command: Command, folder: Path, environment: Mapping[str, str]
) -> list[str]:
    """Runs a command in a shell; returns the lines that it printed.

    Args:
      command: with status 0.
      folder: the current one.
      environment: variables beside PATH and HOME.
    """
    done = subprocess.run(
        ["bash", "-c", command.text],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command.text}\n{done.stdout}"
    return done.stdout.splitlines()


def matches(printed: list[str], shown: tuple[str, ...]) -> bool:
    """Tells whether a page shows what a command printed."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line == REST
        else re.escape(line.removesuffix(REST))
        + (r".*\n" if line.endswith(REST) else r"\n")
        for line in shown
    )
    return bool(re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)))
