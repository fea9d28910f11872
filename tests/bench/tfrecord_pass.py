"""Times `convert tfrecord` against a copy that checks: the floor of the pass-through.

    python tests/bench/tfrecord_pass.py [--bytes 1e9] [--record 100000 1000] [--rounds 3]

The floor reads each file, computes the CRC-32C of all bytes, writes them to another file
and syncs it, with two threads. Both run on the same files, in turns, in one process tree.
A few records are converted, too: that is start-up, whose share falls with the size
(`--bytes 4e9`). The ratio is the median of those of the pairs. Exit status as run.py.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, crc32c, seal

FILE_BYTES = 128 << 20
GOAL = 1.5
_BLOCK = 4 << 20
_SCHEMA = Schema(
    (FeatureSpec("data", Kind.BYTES), FeatureSpec("label", Kind.INT64)),
)


def write_files(
    folder: Path, num_bytes: int, record_bytes: int, least_bytes: int = FILE_BYTES
) -> None:
    """Writes shards of random examples, each of so many bytes at least."""
    rng = np.random.default_rng(0)
    for number in range(max(1, num_bytes // FILE_BYTES)):
        with (folder / f"old-{number:05d}.tfrecord").open("wb") as file:
            while file.tell() < least_bytes:
                rows = max(1, (8 << 20) // record_bytes)
                values = [rng.bytes(record_bytes) for _ in range(rows)]
                batch = pa.record_batch(
                    [pa.array(values), pa.array(range(rows))], ["data", "label"]
                )
                framed = encode(
                    batch, _SCHEMA, head_room=HEAD_BYTES, tail_room=TAIL_BYTES
                )
                seal(framed)
                offsets, data = array_parts(framed)
                file.write(data.data[: offsets[-1]])
    os.sync()


def copy_checked(source: Path, target: Path) -> int:
    """Copies a file; returns the checksum of its bytes."""
    crc = 0
    with source.open("rb", buffering=0) as file, target.open("wb", buffering=0) as out:
        while block := file.read(_BLOCK):
            crc = crc32c(block, crc)
            out.write(block)
        os.fsync(out.fileno())
    return crc


@dataclass(frozen=True)
class Taken:
    """Seconds by the wall and of the processor."""

    wall: float
    cpu: float


def taken(action: Callable[[], object], who: int) -> Taken:
    """Returns what an action takes, of this process or of its children."""
    before, start = resource.getrusage(who), time.perf_counter()
    action()
    wall, after = time.perf_counter() - start, resource.getrusage(who)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(wall, cpu)


def time_copy(folder: Path, target: Path) -> Taken:
    target.mkdir()
    files = sorted(folder.iterdir())
    targets = [target / file.name for file in files]
    with ThreadPoolExecutor(2) as pool:
        return taken(
            lambda: list(pool.map(copy_checked, files, targets)), resource.RUSAGE_SELF
        )


def time_convert(folder: Path, target: Path, options: list[str]) -> Taken:
    words = [sys.executable, "-m", "recordmill", "convert", "tfrecord", str(folder)]
    command = [*words, str(target), *options]
    return taken(
        lambda: subprocess.run(command, check=True, capture_output=True),
        resource.RUSAGE_CHILDREN,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=float, default=1e9)
    parser.add_argument("--record", type=int, nargs="+", default=[100_000, 1_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--option", nargs="*", default=[])
    given = parser.parse_args()
    missed = False
    for record_bytes in given.record:
        with tempfile.TemporaryDirectory() as made:
            base = Path(made)
            (base / "in").mkdir()
            write_files(base / "in", int(given.bytes), record_bytes)
            (base / "few").mkdir()
            write_files(base / "few", 1, record_bytes, least_bytes=1)
            copies, converts, starts = [], [], []
            for _ in range(given.rounds):
                copies.append(time_copy(base / "in", base / "copy"))
                shutil.rmtree(base / "copy")
                for times, folder in ((converts, "in"), (starts, "few")):
                    times.append(
                        time_convert(base / folder, base / "out", given.option)
                    )
                    shutil.rmtree(base / "out")
            print(f"{given.bytes / 1e9:g} GB of records of {record_bytes:,} bytes")
            for name, times in (
                ("copy and checksum", copies),
                ("convert", converts),
                ("convert a few records", starts),
            ):
                wall = median(each.wall for each in times)
                cpu = median(each.cpu for each in times)
                print(f"  {name:22} {wall:6.2f} s, {cpu:6.2f} s of processor time")
            ratios = [
                c.wall / floor.wall for c, floor in zip(converts, copies, strict=True)
            ]
            print(
                f"  {median(ratios):.2f}x the seconds of the copy (goal {GOAL}x; pairs: "
                f"{', '.join(f'{ratio:.2f}' for ratio in ratios)})",
                flush=True,
            )
            missed |= median(ratios) > GOAL
    return 3 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
