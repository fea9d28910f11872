"""Inputs of any size on little disk, and one measured run, for docs/scale.md.

An input is a unit of about 100 MB under as many names as it takes: hard links, so that
10 GB take 100 MB of disk. It stays in the page cache, as it would not at a terabyte.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inputs import CIFAR_RECORD_BYTES, make_input
from measure import TICKS, process_tree, run_measured
from PIL import Image

UNIT_BYTES = 100_000_000
# Rows of a unit, by the input it is made of.
UNIT_ROWS = {"csv": 275_000, "cifar": UNIT_BYTES // CIFAR_RECORD_BYTES, "images": 1_350}
MADE_OF = {"parquet": "csv", "tfrecord": "cifar"}
FORMATS = (*UNIT_ROWS, *MADE_OF)
# Bytes of shards and scratch together for a byte of input, rounded up.
DISK_BYTES = {"csv": 5.4, "cifar": 2.2, "images": 1.1, "parquet": 9.0, "tfrecord": 2.2}
COMMAND = (sys.executable, "-m", "recordmill")


@dataclass(frozen=True)
class Run:
    """One run, as scale.json keeps it.

    Attributes:
      name: of what was converted.
      setting: what differs from other runs of the same name.
      input_bytes: of all its files.
      output_bytes: of all shards.
      seconds: of the whole process.
      cpu_seconds: of the processor, of the process and those that work for it.
      peak_bytes: resident memory of the process tree at its most.
      other_cores: cores that other processes had meanwhile, on average.
      peaks: of a cluster, the resident memory of the largest process of each role.
      shipped_bytes: of a cluster, what its steps wrote for one another.
      disk_bytes: of a cluster, the files of its TaskManagers at their most.
    """

    name: str
    setting: str
    input_bytes: int
    output_bytes: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    other_cores: float
    peaks: dict[str, int] = field(default_factory=dict)
    shipped_bytes: int = 0
    disk_bytes: int = 0


class RunError(Exception):
    """A run failed, or does not fit on the disk."""


def make_unit(name: str, folder: Path) -> Path:
    """Returns the folder of a unit, made now unless it is there already."""
    base = MADE_OF.get(name, name)
    made = make_input(base, UNIT_ROWS[base], folder)
    if name == base:
        return made
    target = folder / f"unit-{name}"
    if not target.exists():
        aside = folder / f"unit-{name}.making"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        _convert_unit(name, made, aside)
        aside.rename(target)
    return target


def _convert_unit(name: str, made: Path, target: Path) -> None:
    """Writes a unit of one format from that of another."""
    if name == "parquet":
        import pyarrow.csv
        import pyarrow.parquet

        rows = pyarrow.csv.read_csv(made / "rows.csv")
        file = target / "rows.parquet"
        pyarrow.parquet.write_table(rows, file, row_group_size=50_000)
        return
    words = [*COMMAND, "convert", "cifar", made, target / "out", "--shards", 1]
    subprocess.run([*map(str, words)], check=True, stdout=subprocess.DEVNULL)
    (shard,) = (target / "out").glob("*.tfrecord*")
    shard.rename(target / "rows.tfrecord")
    shutil.rmtree(target / "out")


def link_units(unit: Path, count: int, target: Path) -> int:
    """Links the files of a unit into a folder under several names; returns their bytes.

    What was in the folder is removed.
    """
    shutil.rmtree(target, ignore_errors=True)
    files = sorted(path for path in unit.rglob("*") if path.is_file())
    num_bytes = 0
    for number in range(count):
        for file in files:
            place = target / file.relative_to(unit).parent
            place.mkdir(parents=True, exist_ok=True)
            os.link(file, place / f"part-{number:04d}-{file.name}")
            num_bytes += file.stat().st_size
    return num_bytes


def link_images(count: int, target: Path) -> int:
    """Links a tiny PNG of each of 20 classes under many names; returns their bytes."""
    shutil.rmtree(target, ignore_errors=True)
    num_bytes = 0
    for label in range(20):
        folder = target / f"class-{label:02d}"
        folder.mkdir(parents=True)
        first = folder / "image-0000000.png"
        Image.new("RGB", (1, 1), (label, 0, 0)).save(first)
        own = count // 20
        for number in range(1, own):
            os.link(first, folder / f"image-{number:07d}.png")
        num_bytes += own * first.stat().st_size
    return num_bytes


def make_sparse(num_bytes: int, target: Path) -> int:
    """Makes CIFAR files of about 1 GB that take no disk: all pixels and labels are 0."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    size = 10**9 // CIFAR_RECORD_BYTES * CIFAR_RECORD_BYTES
    count = max(1, round(num_bytes / size))
    for number in range(count):
        with (target / f"data_batch_{number + 1}.bin").open("wb") as file:
            file.truncate(size)
    return count * size


def require_disk(num_bytes: float, folder: Path) -> None:
    """Refuses what would not leave 2 GB of the disk free."""
    free = shutil.disk_usage(folder).free - 2e9
    if num_bytes > free:
        raise RunError(
            f"needs {num_bytes / 1e9:.0f} GB of disk, {free / 1e9:.0f} GB are there"
        )


def tree_cpu_seconds(root: int) -> float:
    """Returns the processor seconds of a process and of all that it started."""
    total = 0
    for pid in process_tree(root):
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # it has ended
        # Behind the name, which may hold anything: fields 14 to 17 of all.
        total += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return total / TICKS


def run_convert(
    name: str,
    setting: str,
    input_bytes: int,
    words: Sequence[object],
    output: Path,
    *,
    on_cluster: bool = False,
    writes: bool = True,
) -> Run:
    """Runs `recordmill convert` once, and removes its output.

    Args:
      name: of the run.
      setting: of the run.
      input_bytes: of the input.
      words: format, input and options.
      output: a folder that is removed before and after.
      on_cluster: whether processes that this one started work for the command.
      writes: whether it writes a dataset, as it does without `--plan`.
    """
    shutil.rmtree(output, ignore_errors=True)
    os.sync()
    source, given, *options = words
    command = [*COMMAND, "convert", source, given, output, *options]
    log = output.with_name(f"{output.name}.log")
    own = tree_cpu_seconds(os.getpid())
    took = run_measured([*map(str, command)], log=log)
    tree = tree_cpu_seconds(os.getpid()) - own
    cpu = tree if on_cluster else took.cpu_seconds
    others = took.other_cores - (cpu - took.cpu_seconds) / took.seconds
    if took.exit_code or writes != (output / "manifest.json").is_file():
        text = log.read_text(errors="replace")[-2000:]
        raise RunError(f"exit status {took.exit_code}: {command}\n{text}")
    output_bytes = sum(path.stat().st_size for path in output.glob("*.tfrecord*"))
    shutil.rmtree(output, ignore_errors=True)
    run = Run(
        name,
        setting,
        input_bytes,
        output_bytes,
        round(took.seconds, 2),
        round(cpu, 2),
        took.peak_rss_bytes,
        round(max(0.0, others), 2),
    )
    print(json.dumps(run.__dict__), file=sys.stderr, flush=True)
    return run
