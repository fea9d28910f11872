"""Measures what it costs to look for digits that float32 loses.

One process, each input read and encoded with and without the look in turns; processor
time, the least of all turns.

    .venv/bin/python tests/bench/float_digits.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from source_tools import prepare

from recordmill.schemas.job.job_spec import JobSpec
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.tasks.frame_records import frame_rows

COLUMNS, ROWS, TURNS = 20, 40_000, 9
ROUNDED_IN = "recordmill.transforms.sources.csv.source.rounded_in"
FORMATS = {
    "prices (19.99)": lambda x: f"{abs(x) * 9:.2f}",
    "six digits (-12.3456)": lambda x: f"{x:.6g}",
    "six places (-12.345678)": lambda x: f"{x:.6f}",
    "float64 (-12.345678901234567)": repr,
    "exponents (-1.234567890123456789e+01)": lambda x: f"{x:.18e}",
}


def seconds(source: CsvSource, reading: object) -> float:
    """Reads and encodes all rows."""
    job = JobSpec(source="csv", name="a")
    began = time.process_time()
    for input_range in reading.ranges:  # type: ignore[attr-defined]
        for rows in source.read(input_range, (4,) * COLUMNS):
            for _ in frame_rows(rows.batch, source.schema((4,) * COLUMNS), job):
                pass
    return time.process_time() - began


def main() -> None:
    random = np.random.default_rng(1)
    values = random.normal(0, 90, (ROWS, COLUMNS)).tolist()
    for name, form in FORMATS.items():
        with TemporaryDirectory() as folder:
            path = Path(folder, "in.csv")
            header = ",".join(f"c{n}" for n in range(COLUMNS))
            lines = [header, *(",".join(map(form, row)) for row in values)]
            path.write_text("\n".join(lines))
            reading = prepare(CsvSource(), [path])
            source = reading.source
            assert isinstance(source, CsvSource)
            with_look, without = [], []
            for _ in range(TURNS):
                with_look.append(seconds(source, reading))
                with mock.patch(ROUNDED_IN, return_value=()):
                    without.append(seconds(source, reading))
            share = min(with_look) / min(without) - 1
            rate = path.stat().st_size / min(with_look) / 1e6
            print(f"{name:40} {100 * share:+5.1f} %  {rate:4.0f} MB/s")


if __name__ == "__main__":
    main()
