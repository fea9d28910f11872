"""Measures `recordmill report`: seconds and peak memory, on CSV and CIFAR of two sizes.

    python tests/bench/report_page.py [ROWS]

A table of 10 columns and a tenth of ROWS, then of ROWS rows (1,000,000); CIFAR of a fifth
of that. Inputs, datasets and pages are made in a temporary folder, of 3 GB.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from measure import run_measured

COMMAND = Path(sys.executable).with_name("recordmill")
CHUNK = 10_000  # rows made at once: a child begins with the peak memory of its parent
COUNTRIES = np.array(["Chile", "France", "Ghana", "India", "Japan", "Peru", "Spain"])


def table(random: np.random.Generator, first: int, rows: int) -> pa.Table:
    """Numbers of several distributions, texts with few and with many values, gaps."""
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "user": [f"u{n:06d}" for n in random.integers(0, 200_000, rows)],
            "country": random.choice(COUNTRIES, rows),
            "amount": np.round(random.lognormal(3, 1, rows), 2),
            "items": random.poisson(3, rows),
            "score": np.round(random.normal(0, 1, rows), 4),
            "paid": random.random(rows) < 0.9,
            "note": [f"note {n:x}" for n in random.integers(0, 1 << 40, rows)],
            "lat": np.round(random.uniform(-90, 90, rows), 5),
            "weight": pa.array(
                np.round(random.normal(70, 12, rows), 1), mask=random.random(rows) < 0.1
            ),
        }
    )


def make_csv(path: Path, rows: int) -> None:
    random = np.random.default_rng(1)
    schema = table(random, 0, 1).schema
    with pyarrow.csv.CSVWriter(path, schema) as writer:
        for start in range(0, rows, CHUNK):
            writer.write_table(table(random, start, min(CHUNK, rows - start)))


def make_cifar(path: Path, rows: int) -> None:
    random = np.random.default_rng(2)
    with path.open("wb") as file:
        for start in range(0, rows, CHUNK):
            shape = (min(CHUNK, rows - start), 3073)
            records = random.integers(0, 256, shape, np.uint8)
            records[:, 0] %= 10
            records.tofile(file)


def main(rows: int) -> None:
    """Prints a line for each dataset."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, count, make in (
            ("csv", rows // 10, make_csv),
            ("csv", rows, make_csv),
            ("cifar", rows // 50, make_cifar),
            ("cifar", rows // 5, make_cifar),
        ):
            source = folder / ("rows.csv" if kind == "csv" else "data_batch_1.bin")
            output, page = folder / f"{kind}-{count}", folder / "report.html"
            make(source, count)
            for command in (
                ["convert", kind, source, output],
                ["report", output, "-o", page],
            ):
                measured = run_measured([str(word) for word in (COMMAND, *command)])
                if measured.exit_code:
                    raise SystemExit(f"{command} failed")
            print(
                f"{kind}, {count:,} rows: {measured.seconds:.1f} s, "
                f"{measured.peak_rss_bytes / 1e6:.0f} MB, page of "
                f"{page.stat().st_size / 1000:.0f} kB"
            )
            source.unlink()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
