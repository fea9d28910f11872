"""Inputs that grow, and what a dataset that was appended to has to be."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from job_tools import SAMPLES, manifest_of, payloads, shards_of

from recordmill.transforms.dataset.verify import verify_dataset


@dataclass(frozen=True)
class Growing:
    """An input in three steps.

    Attributes:
      source: its format.
      steps: each adds files to a folder.
    """

    source: str
    steps: Sequence[Callable[[Path], None]]


def write_rows(path: Path, first: int, count: int) -> None:
    """A CSV file of rows that can be told apart by their id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["id,group,score,text,sure"]
    for row in range(first, first + count):
        text = f'"a ""{row}"", b"' if row % 7 == 0 else f"text {row}"
        note = "" if row % 5 == 0 else text  # text may be missing
        sure = "true" if row % 2 else "False"
        lines.append(f"{row},g{row % 10},{row / 4},{note},{sure}")
    path.write_text("\n".join(lines) + "\n")


def _csv(name: str, first: int, count: int) -> Callable[[Path], None]:
    return lambda folder: write_rows(folder / name, first, count)


def _parquet(name: str, first: int, count: int) -> Callable[[Path], None]:
    """Makes a table of rows that can be told apart, in groups of 50."""
    rows = [
        {
            "id": n,
            "group": f"g{n % 10}",
            "note": n / 4 if n % 5 else None,
            "list": [n] * 2,
        }
        for n in range(first, first + count)
    ]

    def write(folder: Path) -> None:
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=50)

    return write


def _cifar(name: str, records: int, seed: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        data = np.random.default_rng(seed).integers(0, 256, (records, 3073), np.uint8)
        data[:, 0] %= 10
        data.tofile(folder / name)

    return write


def _images(*names: str) -> Callable[[Path], None]:
    """Copies of the samples, each under the given name."""
    samples = sorted(path for path in (SAMPLES / "images").rglob("*.*"))

    def write(folder: Path) -> None:
        for number, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(samples[(len(name) + number) % len(samples)], folder / name)

    return write


def _all(*steps: Callable[[Path], None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for step in steps:
            step(folder)

    return write


GROWING = {
    # Files of a later step stand before, between and behind those of the first.
    "csv": Growing(
        "csv",
        [
            _all(_csv("b.csv", 0, 300), _csv("d.csv", 300, 200)),
            _all(_csv("a.csv", 500, 100), _csv("new/c.csv", 600, 50)),
            _csv("e.csv", 700, 30),
        ],
    ),
    "cifar": Growing(
        "cifar",
        [
            _all(
                _cifar("data_batch_2.bin", 300, 1),
                lambda f: shutil.copy2(SAMPLES / "cifar" / "batches.meta.txt", f),
            ),
            _all(_cifar("data_batch_1.bin", 50, 2), _cifar("test_batch.bin", 40, 3)),
            _cifar("data_batch_3.bin", 20, 4),
        ],
    ),
    "parquet": Growing(
        "parquet",
        [
            _all(_parquet("b", 0, 300), _parquet("d", 300, 200)),
            _all(_parquet("a", 500, 100), _parquet("new/c", 600, 50)),
            _parquet("e", 700, 30),
        ],
    ),
    "images": Growing(
        "images",
        [
            _images(*(f"{c}/{n}.png" for c in ("cat", "dog") for n in range(20))),
            _images(*(f"cat/more/{n}.jpg" for n in range(7)), "dog/10a.png"),
            _all(_images("dog/z.png"), lambda f: (f / "notes.txt").write_text("x")),
        ],
    ),
}  # fmt: skip


def records_of(folder: Path) -> dict[str, Counter[bytes]]:
    """Each split's records, in whatever order."""
    return {
        split: Counter(data for shard in shards_of(folder, split) for data in payloads(shard))
        for split in manifest_of(folder)["splits"]
    }  # fmt: skip


def stand(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Inode, time of change and bytes of what an append must leave alone."""
    may_go = {"manifest.json", "dataset_info.json", "features.json"}
    return {
        str(path.relative_to(folder)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            path.read_bytes(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in may_go
    }


def assert_sound(folder: Path, records: int) -> None:
    """Makes sure that all is there once, and fits the schema that is told."""
    checked = verify_dataset(str(folder), deep=True)
    assert checked.problems == ()
    assert checked.records == records == manifest_of(folder)["rows_read"]
    assert not (folder / ".recordmill").exists()
    for split in manifest_of(folder)["splits"]:
        names = [shard.name for shard in shards_of(folder, split)]
        assert names == sorted(names)


GIF = b"GIF89a\x01\x00\x01\x00\x00\x00\x00;"
