"""Runs the commands of one part in turns, and checks what they leave."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from measure import Measurement, run_measured
from parts import Command, Part
from places import HERE, Places, make_input
from results import command_result

# u64 length | u32 crc of length | data | u32 crc of data
HEADER_BYTES = 12
FOOTER_BYTES = 4


def count_tfrecord(path: Path) -> int:
    """Counts the records of one file, plain or gzip; its end must be a record's end."""
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if packed:
            with gzip.open(plain) as file:
                return _frames(path, cast("BinaryIO", file), None)
        return _frames(path, plain, path.stat().st_size)


def _frames(path: Path, file: BinaryIO, size: int | None) -> int:
    position = num_records = 0
    while header := file.read(HEADER_BYTES):
        if len(header) < HEADER_BYTES:
            raise OSError(f"{path}: cut off in a header at byte {position}")
        (length,) = struct.unpack_from("<Q", header)
        file.seek(length + FOOTER_BYTES, 1)
        position += HEADER_BYTES + length + FOOTER_BYTES
        num_records += 1
    if position != (file.tell() if size is None else size):
        raise OSError(f"{path}: does not end where its records do, at {position}")
    return num_records


def count_tar(path: Path) -> int:
    """Counts the samples of one tar: its JPEG or PNG members."""
    with tarfile.open(path) as tar:
        return sum(member.name.endswith((".jpg", ".png")) for member in tar)


def count_mds(path: Path) -> int:
    """Counts the samples that the index of an MDS dataset names."""
    return sum(shard["samples"] for shard in json.loads(path.read_bytes())["shards"])


COUNTERS = {
    "tfrecord": ("*.tfrecord*", count_tfrecord),
    "tar": ("*.tar", count_tar),
    "mds": ("index.json", count_mds),
}


def count_records(folder: Path, kind: str = "tfrecord") -> int:
    """Counts the records of all files of a kind below a folder."""
    pattern, count = COUNTERS[kind]
    return sum(count(path) for path in folder.rglob(pattern))


# Of larger outputs the manifest is asked: a loop over their records would take minutes.
MAX_COUNTED = 3_500_000


class RunError(Exception):
    """A measured command failed, or left the wrong number of records."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How often and on how much everything is run.

    Attributes:
      places: where all is.
      repeat: runs of recordmill, and of peers that are run as often.
      peer_repeat: runs of the others.
      scale: share of the rows.
      skip: names of commands that are left out.
    """

    places: Places
    repeat: int
    peer_repeat: int
    scale: float
    skip: frozenset[str]

    def rows(self, part: Part, command: Command) -> int:
        """Returns the rows of a command's input at this scale."""
        rows = command.rows or part.rows
        return max(1, round(rows * self.scale)) if part.scaled and rows else rows

    def active(self, part: Part) -> list[Command]:
        """Lists the commands that are not skipped and have an environment."""
        found = []
        for command in part.commands:
            missing = self.places.missing(command.line)
            if missing is not None:
                print(f"{part.name} {command.name}: no {missing}", file=sys.stderr)
            elif command.name not in self.skip:
                found.append(command)
        return found

    def make_inputs(self, part: Part) -> dict[int, Path]:
        """Makes the inputs of a part, by rows, and reads them into the page cache."""
        every = {self.rows(part, command) for command in part.commands}
        python, folder = self.places.python, self.places.folder
        more = ("--tools", self.places.tools)
        return {
            rows: make_input(python, part.kind, rows, folder, *more)
            for rows in sorted(every)
        }


def compare(part: Part, settings: Settings) -> dict[str, Any]:
    """Measures all commands of a part, interleaved; returns its entry of the JSON."""
    commands = settings.active(part)
    for command in commands:
        require_memory(command, settings.rows(part, command))
    inputs = settings.make_inputs(part)
    require_disk(part, max(map(size_of, inputs.values())), settings.places.folder)
    load_before = os.getloadavg()[0]
    runner = _Runner(part, settings, inputs)
    usual = settings.repeat
    often = part.repeat if part.repeat and usual > 1 else usual
    for number in range(-1 if part.warm else 0, max(often, settings.peer_repeat)):
        for command in commands:
            if number < (often if command.often else settings.peer_repeat):
                runner.run(command, counts=number >= 0)
    runner.clean()
    rows = settings.rows(part, part.commands[0])
    return {
        "title": part.title,
        "rows": rows,
        "input_bytes": size_of(inputs[rows]),
        "scale": settings.scale if part.scaled else 1.0,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "load_before": round(load_before, 2),
        "commands": [runner.result(command) for command in commands],
    }


class _Runner:
    """Runs commands of one part, and keeps what they took."""

    def __init__(self, part: Part, settings: Settings, inputs: dict[int, Path]) -> None:
        self.part = part
        self.settings = settings
        self.inputs = inputs
        self.folder = settings.places.folder
        self.output = self.folder / "output"
        self.kept = self.folder / "kept"
        self.runs: dict[str, list[Measurement]] = {}
        self.inside: dict[str, list[float]] = {}
        self.output_bytes: dict[str, int] = {}

    def run(self, command: Command, *, counts: bool) -> None:
        """Runs a command once, and checks and removes its output."""
        rows = self.settings.rows(self.part, command)
        words = self.settings.places.words(
            command.line, self.inputs[rows], self.output, self.kept
        )
        remove(self.output)
        os.sync()
        log = self.folder / "last-run.log"
        measured = run_measured(words, log=log)
        if measured.exit_code != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise RunError(
                f"exit status {measured.exit_code}: {' '.join(words)}\n{tail}"
            )
        print(
            f"{self.part.name} {command.name}: {measured.seconds:.2f} s, "
            f"{measured.cpu_seconds:.2f} s of processor time",
            file=sys.stderr,
        )
        if command.name not in self.output_bytes:
            self.check(command, rows, words)
            self.output_bytes[command.name] = size_of(self.output)
        if command.keep:
            remove(self.kept)
            self.output.rename(self.kept)
        remove(self.output)
        if counts:
            self.runs.setdefault(command.name, []).append(measured)
            if command.inside:
                answer = json.loads(log.read_text().splitlines()[-1])
                self.inside.setdefault(command.name, []).extend(answer["seconds"])

    def check(self, command: Command, rows: int, words: Sequence[str]) -> None:
        """Counts the records that a command left."""
        if not command.counts:
            return
        manifest = self.output / "manifest.json"
        if manifest.exists():
            expected = found = json.loads(manifest.read_bytes())["rows_read"]
        else:
            expected = rows or None
        if rows and expected != rows:
            raise RunError(f"{expected} of {rows} rows: {' '.join(words)}")
        if command.line.startswith("{recordmill}") and not manifest.exists():
            raise RunError(f"no manifest.json: {' '.join(words)}")
        if not manifest.exists() or rows <= MAX_COUNTED:
            found = count_records(self.output, command.counts)
        if expected is not None and found != expected:
            raise RunError(f"{found} records of {expected} rows: {' '.join(words)}")

    def clean(self) -> None:
        """Removes all outputs."""
        remove(self.output)
        remove(self.kept)

    def result(self, command: Command) -> dict[str, Any]:
        """Returns the entry of a command."""
        return command_result(
            command.name,
            self.settings.rows(self.part, command),
            self.runs[command.name],
            output_bytes=self.output_bytes[command.name],
            inside=self.inside.get(command.name, ()),
        )


def remove(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_file():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def size_of(path: Path) -> int:
    """Returns the bytes of a file, or of all files of a folder."""
    files = [path] if path.is_file() else path.rglob("*")
    return sum(each.stat().st_size for each in files if each.is_file())


def commit() -> str:
    """Names what is checked out, if git knows; with a plus sign if it was changed."""
    asked = subprocess.run(
        ["git", "-C", str(HERE), "describe", "--always", "--dirty=+", "--abbrev=10"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return asked.stdout.strip()


def require_disk(part: Part, input_bytes: int, folder: Path) -> None:
    """Refuses what would not leave 2 GB of the disk free."""
    need = part.disk * input_bytes
    free = shutil.disk_usage(folder).free - 2e9
    if need > free:
        raise RunError(
            f"needs {need / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are there: "
            "use --scale, or another --folder"
        )


def require_memory(command: Command, rows: int) -> None:
    """Refuses a run that would not fit into the memory that is free now."""
    meminfo = Path("/proc/meminfo").read_text().split()
    free_bytes = int(meminfo[meminfo.index("MemAvailable:") + 1]) * 1024
    need_bytes = command.row_memory_bytes * rows
    if need_bytes > 0.8 * free_bytes:
        raise RunError(
            f"{command.name} may hold {need_bytes / 1e9:.1f} GB for {rows} rows and "
            f"{free_bytes / 1e9:.1f} GB are free: use --skip {command.name} or --scale"
        )
