"""What a part of the benchmark is: an input, and the commands that are run on it, in turns.

A command is a line of words with names in braces, see places.py. "{input}" is the input of
that many rows, "{output}" a folder that is not there yet, "{kept}" the output of the last
run of recordmill on the same input.
"""

from __future__ import annotations

import dataclasses

CONVERT = "{recordmill} convert {kind} {input} {output} --workers 2"


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of a part.

    Attributes:
      name: as the page calls it.
      line: its words.
      rows: of its input; 0: as many as the part has.
      often: it is run as often as recordmill, otherwise as often as slow peers.
      counts: what its output is counted by: "tfrecord", "mds", "tar" or "" (no records).
      row_memory_bytes: what it holds in memory for each row, rounded up.
      inside: its own seconds count, which it prints as JSON in its last line.
      keep: its output stays for the commands after it that name "{kept}".
    """

    name: str
    line: str
    rows: int = 0
    often: bool = False
    counts: str = "tfrecord"
    row_memory_bytes: int = 0
    inside: bool = False
    keep: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """One input and what is run on it.

    Attributes:
      name: on the command line and in the JSON.
      title: on the page.
      kind: of the input, see inputs.py.
      rows: of the input, at full size.
      commands: in their order.
      minutes: what it takes on two quiet cores, inputs made before.
      repeat: runs of recordmill, where the usual ones are too few.
      warm: a round more is run first, which does not count.
      scaled: the input shrinks with `--scale`.
      disk: what the commands need on the disk at most, by the bytes of the largest input.
    """

    name: str
    title: str
    kind: str
    rows: int
    commands: tuple[Command, ...]
    minutes: float
    repeat: int = 0
    warm: bool = False
    scaled: bool = True
    disk: float = 2.5


def mill(
    source: str, *options: str, name: str = "recordmill", rows: int = 0
) -> Command:
    """Convert by recordmill, with its defaults but for these options."""
    line = " ".join([CONVERT.replace("{kind}", source), *options])
    return Command(name, line, rows=rows, often=True)


def script(
    name: str,
    python: str,
    words: str,
    *,
    often: bool = False,
    counts: str = "tfrecord",
    row_memory_bytes: int = 0,
) -> Command:
    """Run a peer's script by the Python of an environment."""
    line = f"{{{python}}} {{here}}/{words}"
    return Command(
        name, line, often=often, counts=counts, row_memory_bytes=row_memory_bytes
    )


def one_worker(source: str) -> Command:
    """Convert by recordmill with one worker: what the second one brings."""
    command = mill(source, name="recordmill, 1 worker")
    return dataclasses.replace(
        command, line=command.line.replace("--workers 2", "--workers 1")
    )


def kept(command: Command) -> Command:
    """Keep the output of a command."""
    return dataclasses.replace(command, keep=True)
