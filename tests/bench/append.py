"""Measure an append of 1 % new files beside the full run, in whole processes.

    python tests/bench/append.py [--files 100] [--rows 40000] [--repeat 3]

The input is that of `run.py csv`, cut into files of so many rows: 1.5 GB in 100 files by
default, and one file more. Both runs have the same options; each full run is followed by
the append of the one file, once the disk has what was written before. Exit status as
run.py.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from measure import Measurement, run_measured
from report import Line, print_lines

HERE = Path(__file__).resolve().parent
MAX_SHARE = 0.05


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100, help="of the full run")
    parser.add_argument("--rows", type=int, default=40_000, help="of each file")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each")
    parser.add_argument("--workers", type=int, default=2, help="threads")
    parser.add_argument("--recordmill", type=Path, default=Path(".venv/bin/recordmill"))
    parser.add_argument("--python", type=Path, help="default: beside --recordmill")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    return parser.parse_args(argv)


def make_files(python: Path, num_files: int, num_rows: int, folder: Path) -> Path:
    """Cut the benchmark's table into files; that also leaves them in the page cache."""
    total = num_files * num_rows
    words = [python, HERE / "inputs.py", "csv", "--rows", total, "--folder", folder]
    made = subprocess.run(
        [*map(str, words)], check=True, stdout=subprocess.PIPE, text=True
    )
    target = folder / f"append-{num_files}x{num_rows}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with (Path(made.stdout.strip()) / "rows.csv").open("rb") as table:
        header = table.readline()
        for number in range(num_files):
            with (target / f"part-{number:04d}.csv").open("wb") as part:
                part.write(header)
                part.writelines(line for _, line in zip(range(num_rows), table))  # noqa: B905 (the table is longer)
    return target


@contextlib.contextmanager
def aside(file: Path) -> Iterator[None]:
    """Keep a file out of its folder, for as long as the block takes."""
    place = file.parent.parent / file.name
    file.rename(place)
    try:
        yield
    finally:
        place.rename(file)


def measure(name: str, command: list[str], log: Path) -> Measurement:
    """Run a command once; say its wall and processor seconds on stderr."""
    os.sync()
    before = os.times()
    measurement = run_measured(command, log=log)
    after = os.times()
    if measurement.exit_code != 0:
        raise SystemExit(f"{name}: exit status {measurement.exit_code}, see {log}")
    cpu_seconds = sum(after[2:4]) - sum(before[2:4])  # of children: user and system
    print(
        f"{name}: {measurement.seconds:.2f} s, {cpu_seconds:.2f} s of processor time",
        file=sys.stderr,
    )
    return measurement


def main(argv: list[str]) -> int:
    """Measure both in turns; 1: a run failed, 3: the goal was missed."""
    arguments = parse_arguments(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    python = arguments.python or arguments.recordmill.parent / "python"
    rows, files = arguments.rows, arguments.files
    source = make_files(python, files + 1, rows, arguments.folder)
    output = arguments.folder / "appended"
    command = [str(arguments.recordmill), "convert", "csv", str(source), str(output)]
    command += ["--append", "--workers", str(arguments.workers)]
    log = arguments.folder / "last-run.log"
    full, appends = [], []
    for _ in range(arguments.repeat):
        shutil.rmtree(output, ignore_errors=True)
        with aside(source / f"part-{files:04d}.csv"):
            full.append(measure("full", command, log))
        appends.append(measure("append", command, log))
        manifest = json.loads((output / "manifest.json").read_bytes())
        if (manifest["rows_read"], manifest["appended"]) != ((files + 1) * rows, 1):
            raise SystemExit(f"{output}: does not hold all {files + 1} files' rows")
    whole = Line.of_runs("full", files * rows, full)
    more = Line.of_runs("append", rows, appends)
    print_lines([whole, line := more.over(whole.seconds, below=MAX_SHARE)])
    return 0 if line.met else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
