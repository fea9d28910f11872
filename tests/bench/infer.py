"""Measure `recordmill schema infer csv` beside pyarrow.csv.read_csv, in whole processes.

    python tests/bench/infer.py [--rows 2750000] [--repeat 5]

Both look at the same file with the same number of threads: the input of `run.py csv`
with more rows, 1 GB by default. read_csv guesses types from the first block, holds the
table in memory and counts no values. Exit status as run.py.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from measure import Measurement, run_measured
from report import Line, print_lines

HERE = Path(__file__).resolve().parent
MAX_RATIO = 2.0
MAX_PEAK_BYTES = 700_000_000
ROWS_OF_1_GB = 2_750_000
READ_CSV = (
    "import sys, pyarrow, pyarrow.csv; pyarrow.set_cpu_count(int(sys.argv[2])); "
    "pyarrow.set_io_thread_count(int(sys.argv[2])); "
    "pyarrow.csv.read_csv(sys.argv[1])"
)


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS_OF_1_GB)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each")
    parser.add_argument("--workers", type=int, default=2, help="threads of each")
    parser.add_argument("--recordmill", type=Path, default=Path(".venv/bin/recordmill"))
    parser.add_argument("--python", type=Path, help="default: beside --recordmill")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    return parser.parse_args(argv)


def make_input(python: Path, num_rows: int, folder: Path) -> Path:
    """Make the file in a process of its own; that also leaves it in the page cache."""
    words = [python, HERE / "inputs.py", "csv", "--rows", num_rows, "--folder", folder]
    made = subprocess.run(
        [*map(str, words)], check=True, stdout=subprocess.PIPE, text=True
    )
    file = Path(made.stdout.strip()) / "rows.csv"
    subprocess.run(["cat", str(file)], check=True, stdout=subprocess.DEVNULL)
    return file


def measure(name: str, command: list[str], log: Path) -> Measurement:
    """Run a command once; say its wall and processor seconds on stderr."""
    before = os.times()
    measurement = run_measured(command, log=log)
    after = os.times()
    if measurement.exit_code != 0:
        raise SystemExit(f"{name}: exit status {measurement.exit_code}, see {log}")
    cpu_seconds = (
        after.children_user
        - before.children_user
        + after.children_system
        - before.children_system
    )
    print(
        f"{name}: {measurement.seconds:.2f} s, {cpu_seconds:.2f} s of processor time",
        file=sys.stderr,
    )
    return measurement


def main(argv: list[str]) -> int:
    """Measure both in turns; 1: a run failed, 3: a goal was missed."""
    arguments = parse_arguments(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    python = arguments.python or arguments.recordmill.parent / "python"
    file = make_input(python, arguments.rows, arguments.folder)
    workers = str(arguments.workers)
    schema = arguments.folder / "schema.yaml"
    infer = ["schema", "infer", "csv", str(file), "--workers", workers]
    commands = {
        "read_csv": [str(python), "-c", READ_CSV, str(file), workers],
        "infer": [
            str(arguments.recordmill),
            *infer,
            *("--output", str(schema), "--overwrite"),
        ],
    }
    runs: dict[str, list[Measurement]] = {name: [] for name in commands}
    log = arguments.folder / "last-run.log"
    for _ in range(arguments.repeat):
        for name, command in commands.items():
            runs[name].append(measure(name, command, log))
    if f"rows: {arguments.rows:,}\n" not in schema.read_text():
        raise SystemExit(f"{schema}: is not of {arguments.rows:,} rows")
    peer, own = (
        Line.of_runs(name, arguments.rows, measured) for name, measured in runs.items()
    )
    lines = [
        peer,
        own.over(peer.seconds, below=MAX_RATIO),
        own.within_peak(MAX_PEAK_BYTES),
    ]
    print_lines(lines)
    return 3 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
