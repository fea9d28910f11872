"""Compares recordmill on arrays with the tutorials' loop over rows, in one run.

    .venv/bin/python tests/bench/arrays.py [--repeat 3]

MNIST's size as IDX (60,000 x 28 x 28), plain and under gzip; images.npy of the tutorials
(1,000 x 224 x 224 x 3) with labels.npy; and 60,000 records of CIFAR-10 by declaration
beside `convert cifar`. The loop has TensorFlow's own writer, is not shuffled, writes one
file, and runs in .venv-interop. Times are of whole processes, interleaved; medians.
"""

import argparse
import gzip
import shutil
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).parents[2]
LOOP = """
import gzip, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
kind, folder, output = sys.argv[1:]
def idx(name, skip):
    path = f"{folder}/{name}"
    data = gzip.open(path + ".gz").read() if kind == "gz" else open(path, "rb").read()
    return np.frombuffer(data, np.uint8, offset=skip)
if kind == "npy":
    images = np.load(f"{folder}/images.npy", mmap_mode="r")
    labels = np.load(f"{folder}/labels.npy")
else:
    labels = idx("train-labels-idx1-ubyte", 8)
    images = idx("train-images-idx3-ubyte", 16).reshape(len(labels), 28, 28)
F = tf.train.Feature
with tf.io.TFRecordWriter(output) as writer:
    for image, label in zip(images, labels):
        feature = {
            "image": F(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
            "label": F(int64_list=tf.train.Int64List(value=[int(label)])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        writer.write(example.SerializeToString())
"""
RECORD = "label:u8,image:u8[3,32,32]:chw->hwc"


def make_inputs(folder: Path) -> None:
    """Writes the inputs."""
    random = np.random.default_rng(3)
    for name in ("idx", "gz", "npy", "cifar"):
        (folder / name).mkdir()
    for kind, shape in ("images", (60_000, 28, 28)), ("labels", (60_000,)):
        array = random.integers(0, 10 if kind == "labels" else 256, shape, np.uint8)
        array[..., :14] = 0  # half of the pixels: MNIST's are mostly black
        head = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        name = f"train-{kind}-idx{len(shape)}-ubyte"
        data = head + array.tobytes()
        (folder / "idx" / name).write_bytes(data)
        (folder / "gz" / f"{name}.gz").write_bytes(gzip.compress(data, 6))
    images = random.integers(0, 256, (1000, 224, 224, 3), np.uint8)
    np.save(folder / "npy/images.npy", images)
    np.save(folder / "npy/labels.npy", random.integers(0, 10, 1000))
    records = random.integers(0, 256, (60_000, 3073), np.uint8)
    records[:, 0] %= 10
    records.tofile(folder / "cifar/data_batch_1.bin")


def seconds(command: list[str]) -> float:
    """Runs a command, and returns how long it took."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def commands(folder: Path, output: Path) -> dict[str, list[str]]:
    """Returns what is measured, by name; "loop X" is the peer of "X"."""
    ours = [str(ROOT / ".venv/bin/recordmill"), "convert"]
    peer = [str(ROOT / ".venv-interop/bin/python"), "-c", LOOP]
    out = str(output / "out")
    found = {}
    for kind, source in ("idx", "idx"), ("gz", "idx"), ("npy", "numpy"):
        data = str(folder / kind)
        found[kind] = [*ours, source, data, out]
        found[f"loop {kind}"] = [*peer, kind, data, str(output / "loop.tfrecord")]
    cifar = str(folder / "cifar")
    found["declared"] = [*ours, "binary", cifar, out, "--record", RECORD]
    found["loop declared"] = [*ours, "cifar", cifar, out]
    return found


def main() -> int:
    """Measures all, and prints medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder)
        output = folder / "output"
        found: dict[str, list[float]] = {}
        for _ in range(repeat):
            for kind, command in commands(folder, output).items():
                shutil.rmtree(output, ignore_errors=True)
                output.mkdir()
                found.setdefault(kind, []).append(seconds(command))
    medians = {kind: statistics.median(times) for kind, times in found.items()}
    for kind in ("idx", "gz", "npy", "declared"):
        mine, other = medians[kind], medians[f"loop {kind}"]
        peer = "convert cifar" if kind == "declared" else "loop"
        print(f"{kind:8} {mine:5.2f} s   {peer} {other:5.2f} s   {other / mine:.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
