"""Measure what exact splits, labels and the look for copies cost, beside a plain run.

    .venv/bin/python tests/bench/splits.py [--rows 1000000] [--repeat 3]

The input is the table of `run.py csv`, as CSV and as Parquet. All runs of one repetition
follow each other; ratios are of the medians of seconds, and of those of processor time.
"""

import argparse
import shutil
import sys
from pathlib import Path
from statistics import median

import pyarrow.csv
import pyarrow.parquet
from inputs import make_input
from measure import Measurement, run_measured

SPLITS = ["--split", "train=0.8", "--split", "test=0.2"]
VARIANTS = {
    "plain": SPLITS,
    "exact": [*SPLITS, "--split-exact"],
    "stratified": [*SPLITS, "--stratify-by", "category"],
    "label": [*SPLITS, "--label", "category"],
    "label, stratified": [*SPLITS, "--label", "category", "--stratify-by", "category"],
    "split column": ["--split-column", "is_member"],
    "duplicates": [*SPLITS, "--duplicates", "report"],
}


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--recordmill", type=Path, default=Path(".venv/bin/recordmill"))
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Measure, and print a line for each format and variant."""
    arguments = parse_arguments(argv)
    table = make_input("csv", arguments.rows, arguments.folder) / "rows.csv"
    rows = pyarrow.csv.read_csv(table)
    parquet = arguments.folder / "splits.parquet"
    pyarrow.parquet.write_table(rows, parquet, row_group_size=50_000)
    del rows
    for source, file in (("csv", table), ("parquet", parquet)):
        found: dict[str, list[Measurement]] = {name: [] for name in VARIANTS}
        for _ in range(arguments.repeat):
            for name, options in VARIANTS.items():
                output = arguments.folder / "splits-out"
                shutil.rmtree(output, ignore_errors=True)
                words = [arguments.recordmill, "convert", source, file, output]
                words += [*options, "--workers", arguments.workers]
                found[name].append(run_measured([str(word) for word in words]))
        shutil.rmtree(output)
        plain = found["plain"]
        for name, runs in found.items():
            if any(run.exit_code for run in runs):
                print(f"{source} {name}: failed", file=sys.stderr)
                return 1
            seconds = median(run.seconds for run in runs)
            cpu = median(run.cpu_seconds for run in runs)
            memory = max(run.peak_rss_bytes for run in runs)
            print(
                f"{source:8} {name:18} {seconds:6.2f} s, "
                f"{seconds / median(run.seconds for run in plain):5.2f} x plain; "
                f"processor {cpu / median(run.cpu_seconds for run in plain):5.2f} x; "
                f"{memory / 1e6:5.0f} MB"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
