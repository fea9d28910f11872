"""Readers in other processes, while runs replace a dataset, append to it and clean it.

A read has all rows of one published state, or ends with an error that says to open the
dataset again. `verify` reports no damage.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import loop_reader
import pytest
from example_counts import FACTOR
from job_tools import convert, recordmill

from recordmill.schemas.errors import ReplacedDatasetError

NUM_ROWS, NUM_APPENDED_ROWS = 2000, 500
ROUNDS = max(2, round(15 * FACTOR))  # 3 in `make test`, 300 in `make test-long`
GUARD_SECONDS = 600
REPLACED = re.compile(r"ReplacedDatasetError: .*open the dataset again")


def write_rows(path: Path, version: int, num_rows: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    rows = "".join(f"{version},{row}\n" for row in range(num_rows))
    path.write_text(f"version,row\n{rows}")
    return path


def replace_append_and_clean(folder: Path, output: Path) -> None:
    for version in range(1, ROUNDS + 1):
        inputs = folder / f"version-{version}"
        write_rows(inputs / "first.csv", version, NUM_ROWS)
        convert("csv", inputs, output, "--shards", 2, "--overwrite")
        write_rows(inputs / "second.csv", version, NUM_APPENDED_ROWS)
        convert("csv", inputs, output, "--shards", 2, "--append")
        if version % 2:
            assert recordmill("clean", output).status == 0


@pytest.mark.slow
def test_readers_while_runs_publish(tmp_path: Path) -> None:
    output = tmp_path / "dataset"
    first = write_rows(tmp_path / "version-0" / "first.csv", 0, NUM_ROWS)
    convert("csv", first.parent, output, "--shards", 2)
    folders = [tmp_path / name for name in (*loop_reader.WAYS, "verify")]
    readers = []
    for folder in folders:
        folder.mkdir()
        words = [sys.executable, loop_reader.__file__, output, folder.name, folder]
        with (folder / "errors").open("wb") as errors:
            readers.append(
                subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
            )
    end = time.monotonic() + GUARD_SECONDS
    while not all((folder / "reads").exists() for folder in folders):
        assert time.monotonic() < end
        time.sleep(0.05)
    try:
        replace_append_and_clean(tmp_path, output)
    finally:
        for folder in folders:
            (folder / "stop").touch()
    for reader, folder in zip(readers, folders, strict=True):
        assert reader.wait(GUARD_SECONDS) == 0, (folder / "errors").read_text()
        reads = (folder / "reads").read_text().splitlines()
        last, *earlier = reversed(reads)
        if folder.name == "verify":
            # 75: a run was at work, and its files were not in the manifest yet
            assert set(earlier) <= {"status 0", "status 75"}
            assert last == "status 0"
        else:
            states = [
                {version: num_rows}
                for version in range(ROUNDS + 1)
                for num_rows in (NUM_ROWS, NUM_ROWS + NUM_APPENDED_ROWS)
            ]
            whole = {f"rows {state}" for state in states}
            assert {line for line in earlier if not REPLACED.match(line)} <= whole
            assert last == f"rows {states[-1]}"


def test_a_dataset_that_was_replaced_twice(tmp_path: Path) -> None:
    output = tmp_path / "dataset"
    for version in range(3):
        inputs = tmp_path / f"version-{version}"
        write_rows(inputs / "rows.csv", version, 100)
        convert("csv", inputs, output, "--shards", 2, "--overwrite")
        if version == 0:
            rows = loop_reader.open_dataset(str(output))
    with pytest.raises(ReplacedDatasetError, match="open the dataset again"):
        [rows[index] for index in range(len(rows))]
