"""Times `convert tfrecord` against a copy that checks: the floor of the pass-through.

    python tests/bench/tfrecord_pass.py [--bytes 1e9] [--record 100000 1000] [--rounds 3]

The floor reads each file, computes the CRC-32C of all bytes, writes them to another file
and syncs it, with two threads. Both run on the same files, in turns, in one process tree.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from recordmill.schemas.features.feature import FeatureSpec, Kind, Schema
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, crc32c, seal

FILE_BYTES = 128 << 20
_BLOCK = 4 << 20
_SCHEMA = Schema(
    (FeatureSpec("data", Kind.BYTES), FeatureSpec("label", Kind.INT64)),
)


def write_files(folder: Path, num_bytes: int, record_bytes: int) -> None:
    """Writes shards of random examples."""
    rng = np.random.default_rng(0)
    for number in range(max(1, num_bytes // FILE_BYTES)):
        with (folder / f"old-{number:05d}.tfrecord").open("wb") as file:
            while file.tell() < FILE_BYTES:
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


def time_copy(folder: Path, target: Path) -> float:
    target.mkdir()
    start = time.perf_counter()
    files = sorted(folder.iterdir())
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(copy_checked, files, [target / file.name for file in files]))
    return time.perf_counter() - start


def time_convert(folder: Path, target: Path, options: list[str]) -> float:
    command = [sys.executable, "-m", "recordmill", "convert", "tfrecord", str(folder)]
    start = time.perf_counter()
    subprocess.run([*command, str(target), *options], check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=float, default=1e9)
    parser.add_argument("--record", type=int, nargs="+", default=[100_000, 1_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--option", nargs="*", default=[])
    given = parser.parse_args()
    for record_bytes in given.record:
        with tempfile.TemporaryDirectory() as made:
            base = Path(made)
            (base / "in").mkdir()
            write_files(base / "in", int(given.bytes), record_bytes)
            copies, converts = [], []
            for _ in range(given.rounds):
                copies.append(time_copy(base / "in", base / "copy"))
                shutil.rmtree(base / "copy")
                converts.append(time_convert(base / "in", base / "out", given.option))
                shutil.rmtree(base / "out")
            ratio = median(converts) / median(copies)
            print(
                f"records of {record_bytes:,} bytes: copy and checksum "
                f"{median(copies):.2f} s, convert {median(converts):.2f} s: "
                f"{ratio:.2f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
