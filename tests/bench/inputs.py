"""Generate the benchmark's inputs, the same bytes for the same seed and size.

    python tests/bench/inputs.py csv|cifar|images [--rows N] [--folder bench-data]

More kinds are in more_inputs.py. Needs numpy, pyarrow and Pillow: recordmill's own
environment has them.
"""

import argparse
import csv
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from columns import COLUMN_KINDS
from PIL import Image

SEED = 20_240_901
DEFAULT_ROWS = {"csv": 1_000_000, "cifar": 500_000, "images": 5_000}
CSV_CHUNK_ROWS = 50_000
CIFAR_RECORD_BYTES = 1 + 3 * 32 * 32
CIFAR_FILE_RECORDS = 100_000
CIFAR_CHUNK_RECORDS = 20_000
IMAGE_CLASSES = 10
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
    pools = {
        kind: text_pool(int(kind.removeprefix("text:")), index)
        for index, kind in enumerate(kinds)
        if kind.startswith("text")
    }
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


def write_images(target: Path, num_rows: int) -> None:
    """Write JPEG files of smoothed noise, about 75 kB each, in ten class folders."""
    for class_index in range(IMAGE_CLASSES):
        (target / f"class_{class_index:02d}").mkdir(parents=True)
    for image_index in range(num_rows):
        rng = np.random.default_rng((SEED, 4, image_index))
        width, height = (int(side) for side in rng.integers(330, 501, 2))
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
    from more_inputs import MORE, make

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
