"""Floor: reads a table of text into memory, all types guessed; nothing is encoded.

    python tests/bench/peer_read.py pyarrow|polars|duckdb INPUT [FOLDER OUTPUT]

With a folder also copies another output by `cp`, and syncs it: a program that reads the same
table and writes the same bytes does hardly less. pyarrow has two threads, as recordmill
has; the others take all cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

THREADS = 2


def by_pyarrow(source: Path) -> int:
    """Reads by pyarrow; returns the rows."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    pa.set_cpu_count(THREADS)
    pa.set_io_thread_count(THREADS)
    return pa_csv.read_csv(source).num_rows


def by_polars(source: Path) -> int:
    """Reads by Polars; returns the rows."""
    import polars

    return polars.read_csv(source, infer_schema_length=10_000).height


def by_duckdb(source: Path) -> int:
    """Reads by DuckDB into a table in memory; returns the rows."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("create table t as from read_csv(?)", [str(source)])
    (rows,) = connection.execute("select count(*) from t").fetchone()
    return int(rows)


READERS = {"pyarrow": by_pyarrow, "polars": by_polars, "duckdb": by_duckdb}


def copy(folder: Path, output: Path) -> None:
    """Copies a folder, on disk when it returns."""
    subprocess.run(["cp", "-r", str(folder), str(output)], check=True)
    for path in output.rglob("*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def main(reader: str, source: str, *to_copy: str) -> None:
    """Reads a table, and prints its rows."""
    print(READERS[reader](Path(source)))
    if to_copy:
        copy(*map(Path, to_copy))


if __name__ == "__main__":
    main(*sys.argv[1:])
