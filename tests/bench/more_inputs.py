"""Inputs that are made of other ones: large ones by hard links, shards, batches, photos.

    python tests/bench/inputs.py batches|csvs|wide|shards|photos [--rows N]

`cifar` of more than 2,000,000 records and `images` of more than 5,000 files are links to
those, under more names: the bytes are read as often, but lie on the disk once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from inputs import (
    CIFAR_FILE_RECORDS,
    SEED,
    WRITERS,
    csv_cells,
    make_input,
    text_pool,
)

MOST_CIFAR = 2_000_000
MOST_IMAGES = 5_000
CSV_ROWS = 1_000_000
# What is one file is given as that file.
SINGLE = {
    "csv": "rows.csv",
    "jsonl": "rows.jsonl",
    "wide": "rows.parquet",
    "batches": "rows.arrow",
}
# Columns of the wide table.
NUM_FLOATS, NUM_INTS, NUM_TEXTS, NUM_LISTS = 120, 40, 20, 20
PHOTO_NAMES = 100


def link_cifar(target: Path, num_rows: int) -> None:
    """Links whole files, again and again."""
    base = make_input("cifar", MOST_CIFAR, target.parent)
    files = [
        base / f"data_batch_{number + 1}.bin"
        for number in range(MOST_CIFAR // CIFAR_FILE_RECORDS)
    ]
    target.mkdir()
    for number in range(-(-num_rows // CIFAR_FILE_RECORDS)):
        name = f"data_batch_{number + 1}.bin"
        (target / name).hardlink_to(files[number % len(files)])


def link_images(target: Path, num_rows: int) -> None:
    """Links each picture under several names."""
    base = make_input("images", MOST_IMAGES, target.parent)
    files = sorted(base.glob("*/*"))
    for number in range(num_rows):
        file = files[number % len(files)]
        folder = target / file.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{number // len(files)}_{file.name}"
        (folder / name).hardlink_to(file)


def link_csvs(target: Path, num_rows: int) -> None:
    """Links a table as often as it takes to have so many rows."""
    rows = min(CSV_ROWS, num_rows)
    file = make_input("csv", rows, target.parent) / "rows.csv"
    target.mkdir()
    for number in range(num_rows // rows):
        (target / f"part-{number:04}.csv").hardlink_to(file)


def write_wide(target: Path, num_rows: int) -> None:
    """Writes a Parquet table: numbers, texts, and lists of fixed and of any length."""
    rng = np.random.default_rng((SEED, 6))
    pool = {"text:20000": text_pool(20_000, 98)}
    columns: dict[str, pa.Array] = {}
    for number in range(NUM_FLOATS):
        columns[f"float_{number:03}"] = pa.array(rng.random(num_rows, np.float32))
    for number in range(NUM_INTS):
        columns[f"int_{number:03}"] = pa.array(rng.integers(0, 10**6, num_rows))
    for number in range(NUM_TEXTS):
        columns[f"text_{number:03}"] = csv_cells(rng, "text:20000", num_rows, pool)
    for number in range(NUM_LISTS):
        lengths = rng.integers(0, 33, num_rows)
        lengths[0] = 16  # a batch without any value would have no type
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        total = int(offsets[-1])
        values = (
            pa.array(rng.random(total, np.float32))
            if number % 2
            else pa.array(rng.integers(0, 30_000, total))
        )
        columns[f"list_{number:03}"] = pa.ListArray.from_arrays(offsets, values)
    target.mkdir()
    pyarrow.parquet.write_table(
        pa.table(columns), target / "rows.parquet", row_group_size=10_000
    )


def write_jsonl(target: Path, num_rows: int) -> None:
    """Writes the rows of the CSV as JSON Lines, with the types that pyarrow finds."""
    source = make_input("csv", num_rows, target.parent) / "rows.csv"
    target.mkdir()
    with (target / "rows.jsonl").open("w") as file:
        for batch in pyarrow.csv.open_csv(source):
            file.writelines(f"{json.dumps(row)}\n" for row in batch.to_pylist())


def write_batches(target: Path, num_rows: int) -> None:
    """Writes the 40 typed columns of the CSV as batches in an Arrow file."""
    from encoder import scalar_table

    batches, _ = scalar_table(num_rows)
    target.mkdir()
    with pa.ipc.new_file(target / "rows.arrow", batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def write_shards(target: Path, num_rows: int) -> None:
    """Writes the records of the CSV in plain shards, by recordmill."""
    source = make_input("csv", num_rows, target.parent) / "rows.csv"
    command = [sys.executable, "-m", "recordmill", "convert", "csv", source, target]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def link_photos(target: Path, source: Path) -> None:
    """Copies the photographs of scikit-image, and links each under more names."""
    files = [p for p in sorted(source.iterdir()) if p.suffix in (".jpg", ".png")]
    if not files:
        raise FileNotFoundError(f"{source} has no pictures")
    for file in files:
        folder = target / file.suffix.removeprefix(".")
        folder.mkdir(parents=True, exist_ok=True)
        first = Path(shutil.copyfile(file, folder / f"000_{file.name}"))
        for number in range(1, PHOTO_NAMES):
            (folder / f"{number:03}_{file.name}").hardlink_to(first)


MORE: dict[str, Callable[[Path, int], None] | None] = {
    "csvs": link_csvs,
    "wide": write_wide,
    "jsonl": write_jsonl,
    "batches": write_batches,
    "shards": write_shards,
    "photos": None,
}


def writer_of(
    kind: str, num_rows: int, folder: Path, tools: Path
) -> Callable[[Path, int], None]:
    """Chooses what writes an input."""
    if kind == "cifar" and num_rows > MOST_CIFAR:
        return link_cifar
    whole_files = num_rows < MOST_CIFAR and num_rows % CIFAR_FILE_RECORDS == 0
    if kind == "cifar" and whole_files and (folder / f"cifar-{MOST_CIFAR}").exists():
        return link_cifar  # they would be the same bytes
    if kind == "images" and num_rows > MOST_IMAGES:
        return link_images
    if kind == "photos":
        return lambda target, _: link_photos(target, tools / "pictures/photos")
    return MORE.get(kind) or WRITERS[kind]


def make(kind: str, num_rows: int, folder: Path, tools: Path) -> Path:
    """Returns an input of any kind, made now unless it is there already."""
    writer = writer_of(kind, num_rows, folder, tools)
    target = make_input(kind, num_rows, folder, writer=writer)
    return target / SINGLE.get(kind, ".")
