"""Measure one table as CSV, under gzip, from standard input, and as Parquet.

    .venv/bin/python tests/bench/table_formats.py [--rows 1000000] [--repeat 3]

The table is that of `run.py csv`. Whole processes, start-up included, in turns. Goals, of the
medians of the seconds: Parquet takes at most those of the CSV; the CSV under gzip at most
1.2 times those of `zcat table.csv.gz | recordmill convert csv -`. Exit status as run.py.
"""

from __future__ import annotations

import argparse
import gzip
import shlex
import shutil
import sys
from pathlib import Path
from statistics import median

import pyarrow.csv
import pyarrow.parquet
from inputs import make_input
from measure import Measurement, run_measured

GOALS = (("Parquet", "CSV", 1.0), ("gzip", "zcat", 1.2))


def make_tables(rows: int, folder: Path) -> tuple[Path, Path, Path]:
    """Make the CSV, and from it the others, if they are not there yet."""
    table = make_input("csv", rows, folder) / "rows.csv"
    packed = folder / f"formats-{rows}.csv.gz"
    if not packed.exists():
        with table.open("rb") as plain, gzip.open(packed, "wb", 6) as file:
            shutil.copyfileobj(plain, file, 1 << 20)
    parquet = folder / f"formats-{rows}.parquet"
    if not parquet.exists():
        found = pyarrow.csv.read_csv(table)
        pyarrow.parquet.write_table(found, parquet, row_group_size=50_000)
    return table, packed, parquet


def commands(rows: int, folder: Path, recordmill: str) -> dict[str, list[str]]:
    """Return the command of each."""
    table, packed, parquet = make_tables(rows, folder)
    out = str(folder / "formats-out")
    convert = [recordmill, "-m", "recordmill", "convert"]
    piped = shlex.join([*convert, "csv", "-", out])
    return {
        "CSV": [*convert, "csv", str(table), out],
        "Parquet": [*convert, "parquet", str(parquet), out],
        "gzip": [*convert, "csv", str(packed), out],
        "zcat": ["sh", "-c", f"zcat {shlex.quote(str(packed))} | {piped}"],
    }


def main() -> int:
    """Run all, one after the other, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each")
    parser.add_argument("--recordmill", default=sys.executable, help="its Python")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    args = parser.parse_args()
    args.folder.mkdir(exist_ok=True)
    todo = commands(args.rows, args.folder, args.recordmill)
    runs: dict[str, list[Measurement]] = {name: [] for name in todo}
    log = args.folder / "last-run.log"
    for _ in range(args.repeat):
        for name, words in todo.items():
            shutil.rmtree(args.folder / "formats-out", ignore_errors=True)
            runs[name].append(run_measured(words, log=log))
            if runs[name][-1].exit_code != 0:
                raise SystemExit(f"{name}: it failed, see {log}")
    shutil.rmtree(args.folder / "formats-out")
    seconds = {
        name: median(run.seconds for run in found) for name, found in runs.items()
    }
    for name, found in runs.items():
        cpu = median(run.cpu_seconds for run in found)
        peak = max(run.peak_rss_bytes for run in found) / 1e6
        print(
            f"{name:8} {seconds[name]:6.2f} s, {cpu:6.2f} s of processor time, {peak:.0f} MB"
        )
    missed = False
    for above, below, goal in GOALS:
        ratio = seconds[above] / seconds[below]
        missed |= ratio > goal
        print(f"{above} by {below}: {ratio:.2f}x (goal: at most {goal:g}x)")
    return 3 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
