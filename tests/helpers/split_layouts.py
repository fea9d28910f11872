"""Ten layouts of files whose names tell splits, and one row or more in each file.

What split each file is in stands beside it, so the layouts are their own oracle.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from archive_tools import ARCHIVES
from tables_in_formats import FORMATS, write_table
from tfrecord_tools import write_examples

# Files without their ending, and the split of each.
LAYOUTS: dict[str, dict[str, str]] = {
    "a file each": {"train": "train", "test": "test"},
    "of the Hub": {
        "data/train-00000-of-00002": "train",
        "data/train-00001-of-00002": "train",
        "data/test-00000-of-00001": "test",
        "data/validation-00000-of-00001": "validation",
    },
    "of WebDataset": {"train-000000": "train", "train-000001": "train", "val-0": "val"},
    "folders": {"train/a": "train", "train/b": "train", "test/a": "test"},
    "deeper folders": {
        "v1/train/a": "train",
        "v1/test/a": "test",
        "v1/test/x/b": "test",
    },
    "folders with text around": {"seg_train/a": "seg_train", "seg_test/b": "seg_test"},
    "folders and a file": {"train/a": "train", "dev": "dev"},
    "words in names": {"x_train_2026": "train", "x_dev": "dev", "x_TEST.v2": "test"},
    "one split, several files": {"test_a": "test", "test_b": "test"},
    "partitions": {"split=train/0": "train", "split=held-out/0": "held-out"},
    "no splits": {"cat": "train", "latest": "train", "sub/contest": "train"},
}
SOURCES = (*FORMATS, "webdataset", "tfrecord", "numpy", "binary")
OPTIONS = {"tfrecord": ("--records", "decode"), "binary": ("--record", "id:u8")}


def write_layout(folder: Path, source: str, layout: str) -> set[tuple[str, int]]:
    """Writes the files of a layout; returns (split, id) of each row."""
    rows = set()
    for number, (name, split) in enumerate(LAYOUTS[layout].items()):
        ids = list(range(10 * number, 10 * number + 2 + number))
        write_ids(folder / name, source, ids)
        rows |= {(split, each) for each in ids}
    return rows


def write_ids(path: Path, source: str, ids: list[int]) -> None:
    """Writes a file with a row for each id."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if source in FORMATS:
        named = write_table(path.with_name("made"), source, {"id": ids})
        named.rename(path.with_name(f"{path.name}.{source}"))
    elif source == "webdataset":
        members = {f"{n:04}.json": json.dumps({"id": n}).encode() for n in ids}
        data = ARCHIVES["in.tar"](members)
        path.with_name(f"{path.name}.tar").write_bytes(data)
    elif source == "tfrecord":
        named = path.with_name(f"{path.name}.tfrecord")
        write_examples(named, [{"id": n} for n in ids])
    elif source == "numpy":
        np.savez(path.with_name(f"{path.name}.npz"), id=np.array(ids, np.int64))
    else:
        path.with_name(f"{path.name}.bin").write_bytes(bytes(ids))
