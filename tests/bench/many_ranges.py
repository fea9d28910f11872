"""A whole run of many ranges, each of one CIFAR record, and the memory of the launcher.

    python tests/bench/many_ranges.py 600000 FOLDER [OPTIONS of recordmill convert]

It makes the input in a folder, converts it there with ranges of one record, and tells at
the end on standard error the most memory that the launcher had, which is the runner, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from made_files import watched

RECORD_BYTES = 3073  # a label and 3,072 samples
FILE_RECORDS = 100_000


def make_input(folder: Path, records: int) -> None:
    """Writes files of random pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for start in range(0, records, FILE_RECORDS):
        shape = min(FILE_RECORDS, records - start), RECORD_BYTES
        rows = rng.integers(0, 256, shape, dtype=np.uint8)
        rows[:, 0] %= 10
        rows.tofile(folder / f"data_batch_{start // FILE_RECORDS + 1}.bin")


def main(argv: list[str]) -> int:
    """Runs the command with small ranges, or makes its input and watches it."""
    if argv[0] == "--watched":
        from recordmill.transforms.sources import base

        base.RANGE_BYTES = RECORD_BYTES
        from recordmill.beam_jobs.cli.main import main as run

        return run(argv[1:])
    folder = Path(argv[1])
    make_input(folder / "input", int(argv[0]))
    job = ["convert", "cifar", str(folder / "input"), str(folder / "output"), *argv[2:]]
    told = watched([sys.executable, __file__, "--watched", *job])
    print(json.dumps(told), file=sys.stderr)
    return int(told["status"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
