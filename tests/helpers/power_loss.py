"""Loses the power of a disk at chosen moments of some commands, and looks what is left."""

from __future__ import annotations

import json
import pickle
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disk_log import LOSSES, Disk, Event, Mark, write_files
from job_tools import recordmill
from same_dataset import assert_readable, dataset_of

from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tfrecord import crc32c

RECORDER = Path(__file__).with_name("disk_recorder.py")
OUTPUT = "out"


@dataclass(frozen=True)
class Recording:
    """Some commands, one after the other, and what they did to the disk.

    Attributes:
      commands: without the name of the program; `{out}` is the output folder.
      events: all changes of the disk.
      ends: number of events when each command had ended.
      begins: number of events when each command began.
      datasets: what the output holds after each command.
      before: what it held before them.
    """

    commands: tuple[tuple[str, ...], ...]
    events: Sequence[Event]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    datasets: tuple[dict[str, Any], ...]
    before: dict[str, Any] | None = None


def make_tables(folder: Path) -> list[Path]:
    """Makes three small tables in a folder of their own."""
    tables = folder / "tables"
    tables.mkdir()
    for number in range(3):
        rows = "".join(
            f"{n},n{n},{n}.5\n" for n in range(50 * number, 50 * number + 50)
        )
        (tables / f"{number}.csv").write_text(f"id,name,x\n{rows}")
    return sorted(tables.iterdir())


def append_and_overwrite(tables: Sequence[Path]) -> list[list[object]]:
    """Commands that publish a dataset, replace it, and append to it."""
    options = ["--shards", 2, "--seed", 7]
    return [
        ["convert", "csv", *tables[:2], "{out}", "--shards", 3],
        ["convert", "csv", *tables[:2], "{out}", *options, "--overwrite"],
        ["convert", "csv", *tables, "{out}", *options, "--append"],
    ]


def record(commands: Sequence[Sequence[object]], folder: Path) -> Recording:
    """Runs the commands in a process of its own, which notes each change of the disk.

    Args:
      commands: see Recording.
      folder: for the disk, `recorded`, which may be there already, and the record.
    """
    named = [tuple(map(str, command)) for command in commands]
    disk, log = folder / "recorded", folder / "events"
    disk.mkdir(exist_ok=True)
    before = _dataset_there(disk / OUTPUT)
    arguments = [_with_output(command, disk / OUTPUT) for command in named]
    done = subprocess.run(
        [sys.executable, RECORDER, disk, log],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events: list[Event] = pickle.loads(log.read_bytes())
    marks = [(n, e.text) for n, e in enumerate(events) if isinstance(e, Mark)]
    ends = tuple(number for number, text in marks if text == "end")
    datasets = []
    for index, end in enumerate(ends):
        after = folder / f"after-{index}"
        everything = Disk(events[:end]).after_loss("nothing", random.Random())
        write_files(everything, after)
        datasets.append(dataset_of(after / OUTPUT))
    found = Disk(events).after_loss("nothing", random.Random())
    assert found == _on_disk(disk), "the recorder missed something"
    begins = tuple(number for number, text in marks if text == "begin")
    return Recording(tuple(named), events, begins, ends, tuple(datasets), before)


def _dataset_there(output: Path) -> dict[str, Any] | None:
    return dataset_of(output) if (output / MANIFEST_NAME).exists() else None


def _on_disk(root: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(root).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in root.rglob("*")
    }


def _with_output(command: Sequence[str], output: Path) -> list[str]:
    return [part.replace("{out}", str(output)) for part in command]


@dataclass(frozen=True)
class Moment:
    """When the power is lost, and what of the disk with it."""

    events: int
    loss: str
    seed: int


def moments(recording: Recording, count: int, seed: int = 1) -> Iterator[Moment]:
    """Moments spread over all events of the commands, with every kind of loss.

    Each command gets the same number, however little it does.
    """
    draw = random.Random(seed)
    losses = [name for name in LOSSES if name != "nothing"]
    for number in range(count):
        index = number % len(recording.commands)
        begin = recording.begins[index]
        stop = [*recording.begins, len(recording.events)][index + 1] + 1
        yield Moment(
            draw.randrange(begin, stop),
            losses[number // len(recording.commands) % len(losses)],
            draw.getrandbits(32),
        )


def all_moments(recording: Recording) -> Iterator[Moment]:
    """Moments after every event of the commands, with every kind of loss."""
    for number in range(recording.begins[0], len(recording.events) + 1):
        for loss in LOSSES:
            yield Moment(number, loss, number)


def state_at(recording: Recording, moment: Moment, root: Path) -> int:
    """Makes the disk as it may be; what was in its folder before goes.

    Returns:
      Which command was running, or had just ended.
    """
    for left in root.iterdir():
        shutil.rmtree(left)
    disk = Disk(recording.events[: moment.events])
    write_files(disk.after_loss(moment.loss, random.Random(moment.seed)), root)
    return max(0, sum(begin < moment.events for begin in recording.begins) - 1)


def check_dataset(recording: Recording, moment: Moment, root: Path, index: int) -> None:
    """Checks that readers find the old dataset or the new one, whole, or none."""
    output = root / OUTPUT
    allowed: list[dict[str, Any] | None] = [recording.datasets[index]]
    if moment.events <= recording.ends[index]:
        allowed.append(recording.datasets[index - 1] if index else recording.before)
    if not (output / MANIFEST_NAME).exists():
        assert None in allowed, "the dataset is gone"
        return
    manifest = read_manifest(LocalStore(str(output)))
    for split in manifest.splits.values():
        for shard in split.shards:
            data = (output / shard.file).read_bytes()
            found = (len(data), f"{crc32c(data):08x}")
            assert found == (shard.bytes, shard.crc32c), shard.file
    assert_readable(output)
    known = [dataset["manifest"] for dataset in allowed if dataset is not None]
    assert dataset_of(output)["manifest"] in known, "the manifest is of another dataset"


def check_rerun(recording: Recording, root: Path, index: int) -> None:
    """Checks that the same command finishes what was begun."""
    output = root / OUTPUT
    ran = recordmill(*_with_output(recording.commands[index], output))
    assert ran.status == 0, ran.err
    verified = recordmill("verify", output)
    assert verified.status == 0, verified.err + verified.out
    assert dataset_of(output) == recording.datasets[index]
