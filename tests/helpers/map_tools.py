"""Tools for tests of a person's function: one that gives back other rows, and inputs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from job_tools import SAMPLES

from recordmill import open_dataset

# Drops, multiplies and refuses rows, by the position of a row's own text or file.
UNEVEN = """
import numpy as np
import pyarrow as pa
import zlib

def uneven(batch):
    name = "filename" if "filename" in batch.schema.names else "t"
    texts = [value.encode() if isinstance(value, str) else value
             for value in batch[name].to_pylist()]
    kinds = [zlib.crc32(b"a" + text) % 5 for text in texts]
    if 4 in kinds:
        raise ValueError("a row of kind 4")
    rows = np.repeat(np.arange(len(kinds)), kinds)
    return batch.take(pa.array(rows)), rows
"""


def rows_of(folder: Path, split: str = "train") -> list[dict[str, object]]:
    """Returns the rows of a split of a dataset."""
    return [dict(row) for row in open_dataset(str(folder), split)]


def script(folder: Path, text: str, name: str = "my_map.py") -> Path:
    """Writes a file of text, such as one with a function."""
    path = folder / name
    path.write_text(text)
    return path


def table(path: Path, numbers: range, text: str = "%d") -> Path:
    """Writes a table of numbers and texts: 7, t7."""
    lines = "".join(f"{text % n},t{n}\n" for n in numbers)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"n,t\n{lines}")
    return path


def three_inputs(parent: Path) -> dict[str, Path]:
    """Writes an input of some dozen rows for each of three formats."""
    folder = parent / "in"
    table(folder / "a.csv", range(60))
    rows = pa.table({"n": range(60), "t": [f"t{n}" for n in range(60)]})
    pq.write_table(rows, folder / "a.parquet", row_group_size=7)
    image = (SAMPLES / "images/medicine/microaneurysms.png").read_bytes()
    for number in range(14):
        path = folder / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    return {
        "csv": folder / "a.csv",
        "parquet": folder / "a.parquet",
        "images": folder / "images",
    }
