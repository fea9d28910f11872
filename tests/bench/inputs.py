"""Generate the benchmark's inputs, the same bytes for the same seed and size.

    python tests/bench/inputs.py csv|cifar|images [--rows N] [--folder bench-data]
    python tests/bench/inputs.py batches|csvs|jsonl|wide|shards|photos|large-images [--rows N]

Needs numpy, pyarrow and Pillow: recordmill's own environment has them. `cifar` of more than
2,000,000 records and `images` of more than 5,000 files are links to those, under more names:
the bytes are read as often, but lie on the disk once.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from columns import COLUMN_KINDS
from PIL import Image

SEED = 20_240_901
DEFAULT_ROWS = {"csv": 1_000_000, "cifar": 500_000, "images": 5_000}
CSV_CHUNK_ROWS = 50_000
BATCH_ROWS = 11_000  # of the 40 columns about what a CSV range is read by
CIFAR_RECORD_BYTES = 1 + 3 * 32 * 32
CIFAR_FILE_RECORDS = 100_000
CIFAR_CHUNK_RECORDS = 20_000
IMAGE_CLASSES = 10
ARROW_TYPES = {
    "int": pa.int64(),
    "decimal": pa.float32(),
    "text": pa.binary(),
    "bool": pa.bool_(),
}
COLUMN_TYPES = {n: ARROW_TYPES[k.partition(":")[0]] for n, k in COLUMN_KINDS.items()}
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


def quoted(text: str) -> str:
    """Quote a text only where csv.writer would."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def text_pool(num_texts: int, column_index: int) -> pa.Array:
    """Make texts of 3 to 20 characters; 1 in 50 has a comma, 1 in 500 a quote."""
    rng = np.random.default_rng((SEED, 1, column_index))
    texts = []
    for length, draw in zip(
        rng.integers(3, 21, num_texts), rng.integers(0, 500, num_texts), strict=True
    ):
        letters = rng.choice(LETTERS, length)
        if draw < 11:
            letters[1] = ord('"') if draw == 0 else ord(",")
        if length > 9:
            letters[4] = ord(" ")
        texts.append(quoted(letters.tobytes().decode()))
    return pa.array(texts, pa.string())


def text_pools() -> dict[str, pa.Array]:
    """Make the texts of each kind of text column."""
    return {
        kind: text_pool(int(kind.removeprefix("text:")), index)
        for index, kind in enumerate(COLUMN_KINDS.values())
        if kind.startswith("text")
    }


def decimal_texts(millionths: np.ndarray) -> pa.Array:
    """Print integers of 10**-6 as decimals with six places."""
    # A 128-bit decimal is its low and its high 64 bits; the high are the sign.
    words = np.stack([millionths, millionths >> 63], axis=1)
    decimals = pa.Array.from_buffers(
        pa.decimal128(18, 6), len(millionths), [None, pa.py_buffer(words)]
    )
    return decimals.cast(pa.string())


def csv_cells(
    rng: np.random.Generator, kind: str, num_rows: int, pools: dict[str, pa.Array]
) -> pa.Array:
    """Make one column of CSV cells of a kind, see columns.py."""
    name, _, size = kind.partition(":")
    if name == "int":
        digits = rng.integers(1, int(size) + 1, num_rows)
        return pa.array(rng.integers(0, 10**digits)).cast(pa.string())
    if name == "decimal":
        spread_evenly = rng.normal(0.0, float(size), num_rows)
        return decimal_texts(np.rint(spread_evenly * 1e6).astype(np.int64))
    if name == "bool":
        return pa.array(["False", "True"]).take(pa.array(rng.integers(0, 2, num_rows)))
    pool = pools[kind]
    return pool.take(pa.array(rng.integers(0, len(pool), num_rows)))


def write_csv(target: Path, num_rows: int) -> None:
    """Write one CSV file, roughly 375 bytes a row; a smaller one is its start."""
    kinds = list(COLUMN_KINDS.values())
    pools = text_pools()
    target.mkdir(parents=True)
    with (target / "rows.csv").open("wb") as file:
        file.write((",".join(COLUMN_KINDS) + "\n").encode())
        for start in range(0, num_rows, CSV_CHUNK_ROWS):
            # Whole chunks, cut afterwards: the draws do not depend on num_rows.
            rng = np.random.default_rng((SEED, 2, start))
            columns = [csv_cells(rng, kind, CSV_CHUNK_ROWS, pools) for kind in kinds]
            lines = pc.binary_join_element_wise(*columns, ",")
            lines = pc.binary_join_element_wise(lines, "", "\n")
            lines = lines.slice(0, num_rows - start)
            end = lines.offset + len(lines)
            offsets = np.frombuffer(lines.buffers()[1], np.int32)
            file.write(lines.buffers()[2][: int(offsets[end])])


def write_cifar(target: Path, num_rows: int) -> None:
    """Write CIFAR-10 records with random pixels, at most 100,000 to a file."""
    target.mkdir(parents=True)
    for file_index, start in enumerate(range(0, num_rows, CIFAR_FILE_RECORDS)):
        file_records = min(CIFAR_FILE_RECORDS, num_rows - start)
        rng = np.random.default_rng((SEED, 3, file_index))
        with (target / f"data_batch_{file_index + 1}.bin").open("wb") as file:
            for chunk_start in range(0, file_records, CIFAR_CHUNK_RECORDS):
                shape = (CIFAR_CHUNK_RECORDS, CIFAR_RECORD_BYTES)
                records = rng.integers(0, 256, shape, np.uint8)
                records[:, 0] %= 10
                file.write(records[: file_records - chunk_start])


def write_images(target: Path, num_rows: int, sides: tuple[int, ...] = ()) -> None:
    """Write JPEG files of smoothed noise, about 75 kB each, in ten class folders.

    They have these sides, or some of 330 to 500 pixels.
    """
    for class_index in range(IMAGE_CLASSES):
        (target / f"class_{class_index:02d}").mkdir(parents=True)
    for image_index in range(num_rows):
        rng = np.random.default_rng((SEED, 4, image_index))
        width, height = sides or (int(side) for side in rng.integers(330, 501, 2))
        coarse = rng.integers(0, 256, (height // 4, width // 4, 3), np.uint8)
        image = Image.fromarray(coarse).resize(
            (width, height), Image.Resampling.BICUBIC
        )
        folder = target / f"class_{image_index % IMAGE_CLASSES:02d}"
        image.save(folder / f"image_{image_index:05d}.jpg", quality=86)


Writer = Callable[[Path, int], None]
WRITERS: dict[str, Writer] = {
    "csv": write_csv,
    "cifar": write_cifar,
    "images": write_images,
}


def stamp_of(target: Path, kind: str, num_rows: int) -> dict[str, str | int]:
    """Describe an input folder: what it was made from, and its size in bytes."""
    num_bytes = sum(p.stat().st_size for p in target.rglob("*") if p.is_file())
    return {"kind": kind, "rows": num_rows, "seed": SEED, "bytes": num_bytes}


def make_input(
    kind: str, num_rows: int, folder: Path, *, writer: Writer | None = None
) -> Path:
    """Return the input of a kind and size, made now unless it is there already."""
    target = folder / f"{kind}-{num_rows}"
    stamp = folder / f"{kind}-{num_rows}.json"
    if stamp.exists() and json.loads(stamp.read_text()) == stamp_of(
        target, kind, num_rows
    ):
        return target
    shutil.rmtree(target, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    print(f"making {target}", file=sys.stderr)
    (writer or WRITERS[kind])(target, num_rows)
    stamp.write_text(json.dumps(stamp_of(target, kind, num_rows)) + "\n")
    return target


def main(argv: list[str]) -> int:
    """Make one input and print its path: of a single file, or of a folder."""

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*WRITERS, *MORE])
    parser.add_argument("--rows", type=int, help="default: see the README")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--tools", type=Path, default=Path(".tools"))
    arguments = parser.parse_args(argv)
    num_rows = arguments.rows
    if num_rows is None:
        num_rows = DEFAULT_ROWS.get(arguments.kind, 0)
    print(make(arguments.kind, num_rows, arguments.folder, arguments.tools))
    return 0


MOST_CIFAR = 2_000_000
MOST_IMAGES = 5_000
MOST_LARGE_IMAGES = 1_000
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
    """Links each image under several names."""
    link_files(target, make_input("images", MOST_IMAGES, target.parent), num_rows)


def link_large_images(target: Path, num_rows: int) -> None:
    """Links images of 1024 x 768 pixels, about 300 kB each, under several names."""
    with TemporaryDirectory(dir=target.parent) as folder:
        base = Path(folder)
        write_images(base, min(MOST_LARGE_IMAGES, num_rows), (1024, 768))
        link_files(target, base, num_rows)


def link_files(target: Path, base: Path, num_rows: int) -> None:
    """Links each file of a folder of classes under several names."""
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
    pools = text_pools()
    target.mkdir()
    with pa.ipc.new_file(target / "rows.arrow", pa.schema(COLUMN_TYPES)) as writer:
        for start in range(0, num_rows, BATCH_ROWS):
            rng = np.random.default_rng((SEED, 5, start))
            rows = min(BATCH_ROWS, num_rows - start)
            columns = {
                name: csv_cells(rng, kind, rows, pools).cast(COLUMN_TYPES[name])
                for name, kind in COLUMN_KINDS.items()
            }
            writer.write_batch(pa.RecordBatch.from_pydict(columns))


def write_shards(target: Path, num_rows: int) -> None:
    """Writes the records of the CSV in plain shards, by recordmill."""
    source = make_input("csv", num_rows, target.parent) / "rows.csv"
    command = [sys.executable, "-m", "recordmill", "convert", "csv", source, target]
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def link_photos(target: Path, source: Path) -> None:
    """Copies the photographs of scikit-image, and links each under more names."""
    files = [p for p in sorted(source.iterdir()) if p.suffix in (".jpg", ".png")]
    if not files:
        raise FileNotFoundError(f"{source} has no images")
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
    "large-images": link_large_images,
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
        return lambda target, _: link_photos(target, tools / "images/photos")
    return MORE.get(kind) or WRITERS[kind]


def make(kind: str, num_rows: int, folder: Path, tools: Path) -> Path:
    """Returns an input of any kind, made now unless it is there already."""
    writer = writer_of(kind, num_rows, folder, tools)
    target = make_input(kind, num_rows, folder, writer=writer)
    return target / SINGLE.get(kind, ".")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
