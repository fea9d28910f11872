"""Reads a dataset again and again, as a trainer would, while another process replaces it.

    python loop_reader.py DATASET WAY FOLDER

Each read appends a line to FOLDER/reads: the versions of its rows, and their number, or the
error. It ends after the first read that begins once FOLDER/stop exists.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from recordmill import open_dataset, read_rows
from recordmill.beam_jobs.cli.main import run
from recordmill.schemas.errors import RecordmillError


def read_by_index(dataset: str) -> list[int]:
    rows = open_dataset(dataset)
    return [int(rows[index]["version"]) for index in range(len(rows))]


def read_in_order(dataset: str) -> list[int]:
    return [int(row["version"]) for row in read_rows(dataset)]


WAYS = {"open_dataset": read_by_index, "read_rows": read_in_order}


def main(dataset: str, way: str, folder: str) -> None:
    stop, reads = Path(folder, "stop"), Path(folder, "reads")
    last = False
    while not last:
        last = stop.exists()
        if way == "verify":
            line = f"status {run(['verify', dataset])}"
        else:
            try:
                line = f"rows {dict(Counter(WAYS[way](dataset)))}"
            except RecordmillError as error:
                line = f"{type(error).__name__}: {error}"
        with reads.open("a") as file:
            file.write(line.replace("\n", " ") + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
