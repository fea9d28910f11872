"""Compares readers of one dataset of CIFAR rows in batches: rows a second, after imports.

    python tests/bench/readers.py [ROWS]

Each reads every batch as arrays once to warm up and once with a clock, in a process of its
own; three rounds, one reader after the other. tf.data runs in .venv-interop, the package
tfrecord in .tools/readers (`make tools`), if these are there; tfrecord gives rows, not batches.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
INTEROP = ROOT / ".venv-interop" / "bin" / "python"
# Others run where recordmill does.
PYTHONS = {
    "tf.data, parse_example": INTEROP,
    "tfrecord": ROOT / ".tools" / "readers" / "bin" / "python",
}
BATCH = 256

HEAD = """
import json, sys, time
output, files = sys.argv[1], json.loads(sys.argv[2])
def timed(read):
    read()
    start, cpu = time.perf_counter(), time.process_time()
    rows = read()
    print(rows / (time.perf_counter() - start), rows / (time.process_time() - cpu))
"""
READERS = {
    "recordmill, as they lie": """
from recordmill import open_dataset
data = open_dataset(output)
timed(lambda: sum(len(b["image"]) for b in data.numpy_batches(256)))
""",
    "recordmill, shuffled": """
from recordmill import open_dataset
data = open_dataset(output)
timed(lambda: sum(len(b["image"]) for b in data.numpy_batches(256, seed=1)))
""",
    "tf.data, parse_example": """
import tensorflow as tf
features = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}
def parse(records):
    found = tf.io.parse_example(records, features)
    image = tf.io.decode_raw(found["image"], tf.uint8)
    return tf.reshape(image, [-1, 32, 32, 3]), found["label"]
def read():
    data = tf.data.TFRecordDataset(files).batch(256)
    data = data.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)
    return sum(len(image) for image, _ in data.as_numpy_iterator())
timed(read)
""",
    "tfrecord": """
from tfrecord.reader import tfrecord_loader
kinds = {"image": "byte", "label": "int"}
timed(lambda: sum(1 for file in files for _ in tfrecord_loader(file, None, kinds)))
""",
}


def write_cifar(folder: Path, rows: int) -> None:
    """Writes random images in CIFAR-10's layout."""
    data = np.random.default_rng(1).integers(0, 256, (rows, 3073), np.uint8)
    data[:, 0] %= 10
    folder.mkdir()
    data.tofile(folder / "data_batch_1.bin")


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_cifar(folder / "in", rows)
        output = folder / "out"
        command = [Path(sys.executable).with_name("recordmill"), "convert", "cifar"]
        subprocess.run([*command, folder / "in", output, "--shards", "4"], check=True)
        manifest = json.loads((output / "manifest.json").read_bytes())
        shards = manifest["splits"]["train"]["shards"]
        files = json.dumps([str(output / shard["file"]) for shard in shards])
        found: dict[str, list[list[float]]] = {name: [] for name in READERS}
        for _ in range(3):
            for name, code in READERS.items():
                python = PYTHONS.get(name, Path(sys.executable))
                if not python.exists():
                    continue
                ran = subprocess.run(
                    [python, "-c", HEAD + code, output, files],
                    capture_output=True,
                    text=True,
                    check=False,
                    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                )
                if ran.returncode:
                    print(f"{name}: {ran.stderr.strip().splitlines()[-1]}")
                else:
                    found[name].append([float(x) for x in ran.stdout.split()[-2:]])
    print(f"{'rows a second':28}{'wall':>12}{'processor':>12}")
    for name, runs in found.items():
        if runs:
            wall, cpu = (statistics.median(run[n] for run in runs) for n in (0, 1))
            print(f"{name:28}{wall:12,.0f}{cpu:12,.0f}")


if __name__ == "__main__":
    main()
