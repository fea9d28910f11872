"""Input that is large enough for several input ranges (16 MiB, or 4,096 images)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from PIL import Image

FIRST_ROWS = 17_300  # just above 16 MiB: two input ranges
MIXED_ROWS = 26_000
_CHARACTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     " * 4 + b',"\n;', np.uint8)


@dataclass(frozen=True)
class MixedInput:
    """26,000 rows in two files of three input ranges.

    Attributes:
      files: the first has FIRST_ROWS rows, the second the others.
      groups: the column "group", by the column "id".
      texts: the column "text" (0 to 2,000 characters; commas, quotes and newlines).
    """

    files: tuple[Path, Path]
    groups: Sequence[str]
    texts: Sequence[str]


def make_mixed(folder: Path) -> MixedInput:
    random = np.random.default_rng(5)
    lengths = random.integers(0, 2001, MIXED_ROWS)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    letters = _CHARACTERS[random.integers(0, len(_CHARACTERS), offsets[-1])]
    table = pa.table(
        {
            "id": np.arange(MIXED_ROWS),
            "group": [f"g{n}" for n in random.integers(0, 500, MIXED_ROWS)],
            "score": random.integers(0, 1000, MIXED_ROWS) / 8,
            "text": pa.StringArray.from_buffers(
                MIXED_ROWS, pa.py_buffer(offsets), pa.py_buffer(letters)
            ),
        }
    )
    files = (folder / "first.csv", folder / "second.csv")
    pyarrow.csv.write_csv(table[:FIRST_ROWS], files[0])
    pyarrow.csv.write_csv(table[FIRST_ROWS:], files[1])
    return MixedInput(files, table["group"].to_pylist(), table["text"].to_pylist())


def make_cifar(folder: Path) -> None:
    """CIFAR-10 in the data set's own files; the first has two input ranges."""
    random = np.random.default_rng(6)
    for name, records in (
        ("data_batch_1.bin", 5500),
        ("data_batch_2.bin", 1000),
        ("test_batch.bin", 500),
    ):
        data = random.integers(0, 256, (records, 3073), np.uint8)
        data[:, 0] %= 10
        data.tofile(folder / name)


def make_images(folder: Path) -> None:
    """4,200 images of three classes, two input ranges."""
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2), (10, 20, 30)).save(buffer, "PNG")
    image = buffer.getvalue()
    classes = ("ant", "bee", "cat")
    for name in classes:
        (folder / name).mkdir()
    random = np.random.default_rng(7)
    for number, size in enumerate(random.integers(0, 2000, 4200).tolist()):
        # What follows an image's end belongs to the file, and differs in size.
        path = folder / classes[number % 3] / f"{number}.png"
        path.write_bytes(image + random.bytes(size))
