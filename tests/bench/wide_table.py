"""Compares the processor time of a wide table with that of a narrow one of as many cells.

    python tests/bench/wide_table.py [FOLDER]

It also converts many tiny files, whose time is that of opening and listing them.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = Path(sys.executable).with_name("recordmill")
TABLES = (  # rows and columns of a wide table, and of a narrow one of as many cells
    ((60, 20_000), (30_000, 40)),
    ((420, 20_000), (210_000, 40)),
)
TINY_FILES = 100_000


def write_table(path: Path, rows: int, columns: int) -> None:
    """Writes a table of small whole numbers."""
    with path.open("w") as file:
        file.write(",".join(f"c{at}" for at in range(columns)) + "\n")
        for row in range(rows):
            cells = (str((row * 7919 + at * 104_729) % 1000) for at in range(columns))
            file.write(",".join(cells) + "\n")


def write_tiny(folder: Path, count: int) -> None:
    """Writes tables of one row each."""
    folder.mkdir()
    for at in range(count):
        (folder / f"{at:06d}.csv").write_text(f"id,name\n{at},n{at}\n")


def cpu_seconds(source: Path, output: Path) -> float:
    """Returns the processor seconds of one conversion, from start to end."""
    shutil.rmtree(output, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    arguments = [COMMAND, "convert", "csv", source, output, "--workers", "1", "--json"]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    try:
        write_table(folder / "one.csv", 1, 1)
        start = cpu_seconds(folder / "one.csv", folder / "out")
        print(f"one cell: {start:.1f} s of processor time, start of the program")
        for shapes in TABLES:
            times = []
            for rows, columns in shapes:
                write_table(folder / "table.csv", rows, columns)
                times.append(cpu_seconds(folder / "table.csv", folder / "out"))
                print(f"{rows:,} rows x {columns:,} columns: {times[-1]:.1f} s")
            wide, narrow = times
            alone = (wide - start) / (narrow - start)
            print(f"ratio {wide / narrow:.1f}, without the start {alone:.1f}")
        write_tiny(folder / "tiny", TINY_FILES)
        tiny = cpu_seconds(folder / "tiny", folder / "out")
        print(f"{TINY_FILES:,} files of one row: {tiny:.1f} s")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
