"""Tables that Spark and DuckDB wrote become what these read of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import command
from reader_tools import run_reader
from services import JAVA_OPTIONS, class_path, java

from recordmill import open_dataset

DUCKDB = """
import os, sys
import duckdb

to = sys.argv[1]
os.makedirs(to)
duckdb.execute('''CREATE TABLE t AS SELECT i AS id, (i * 3)::SMALLINT AS small,
  i / 4.0::DOUBLE AS x, (i / 8)::FLOAT AS y, (i * 1.25)::DECIMAL(10, 2) AS price,
  CASE WHEN i % 5 > 0 THEN concat('gr\u00fcn ', i, ', "', i, '"') END AS t, i % 2 = 0 AS flag,
  DATE '2026-11-27' + i::INT AS day,
  TIMESTAMP '2023-11-14 22:13:20.123456' + to_microseconds(10 * i) AS at,
  list_transform(range(0, i % 3), lambda k: k * 0.5::DOUBLE) AS list,
  {'a': i, 'b': CASE WHEN i % 4 > 0 THEN ['x' || i] END} AS deep,
  CASE WHEN i % 7 != 3 THEN 'k/' || (i % 3) END AS key, 2025 + i % 2 AS year
  FROM range(40) s(i)''')
plain = "(SELECT id, small, x, y, price, t, flag, day, year, key FROM t)"
duckdb.execute(f"COPY t TO '{to}/parquet' (FORMAT parquet, PARTITION_BY (year, key))")
duckdb.execute(f"COPY {plain} TO '{to}/csv' (FORMAT csv, PARTITION_BY (year, key))")
duckdb.execute(f"COPY t TO '{to}/jsonl' (FORMAT json, PARTITION_BY (key))")
for source, read in {
    "parquet": f"read_parquet('{to}/parquet/**/*.parquet', hive_partitioning = true)",
    "csv": f"read_csv('{to}/csv/**/*.csv', hive_partitioning = true)",
    "jsonl": f"read_json('{to}/jsonl/**/*.json', hive_partitioning = true)",
}.items():
    os.makedirs(f"{to}/of-{source}")
    duckdb.execute(f"COPY (SELECT * FROM {read}) TO '{to}/of-{source}/a.json' (FORMAT json)")
"""


def write_duckdb(folder: Path) -> None:
    run_reader(folder, "-c", DUCKDB, folder / "tables")


def write_spark(folder: Path) -> None:
    program = Path(__file__).with_name("SparkTables.java")
    run = [java(), *JAVA_OPTIONS, "-Xmx600m", "-cp", class_path("spark"), str(program)]
    with (folder / "spark.log").open("wb") as log:
        subprocess.run(
            [*run, str(folder / "tables")],
            stdout=log,
            stderr=log,
            check=True,
            timeout=900,
        )


@pytest.fixture(
    scope="module", params=[write_spark, write_duckdb], ids=["spark", "duckdb"]
)
def tables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """The name of the program, and a folder for each format beside what it reads of it."""
    folder = tmp_path_factory.mktemp("foreign")
    write: Callable[[Path], None] = request.param
    write(folder)
    return write.__name__, folder / "tables"


def flat(row: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Returns the columns of a row as recordmill names them."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        inner = {above + name: value}
        if isinstance(value, dict):
            inner = flat(value, f"{above}{name}/")
        found |= inner
    return found


def as_text(name: str, value: Any) -> Any:
    """Returns a value as the programs write it to JSON: days and times are text there."""
    start = datetime(1970, 1, 1)
    if name == "day" and isinstance(value, int):
        return str((start + timedelta(days=value)).date())
    if name == "at" and isinstance(value, int):
        micros = value // 1000 if value > 1 << 60 else value  # of int96, nanoseconds
        return str(start + timedelta(microseconds=micros))
    return value.tolist() if isinstance(value, np.ndarray) else value


SOURCES = ("parquet", "csv", "jsonl", "packed", "delta", "purged")


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_those_that_the_program_reads(
    tables: tuple[str, Path], tmp_path: Path, source: str
) -> None:
    program, folder = tables
    if not (folder / source).exists():
        assert program == "write_duckdb"
        assert source in ("packed", "delta", "purged")
        return
    given, out = folder / source, tmp_path / "out"
    of_program = [*(folder / f"of-{source}").glob("*.json")]
    is_delta = source in ("delta", "purged")
    source = {"packed": "csv", "delta": "parquet", "purged": "parquet"}.get(
        source, source
    )
    ran = command("convert", source, given, out)
    if program == "write_spark" and source == "csv":
        # It writes a backslash before a quote within quotes: a warning has the way out.
        assert ran.status != 0
        assert "escaped-quotes" in ran.err
        ran = command("convert", source, given, out, "--escape", "backslash")
    assert ran.status == 0, ran.err
    expected = {}
    for file in of_program:
        for line in file.read_text().splitlines():
            row = flat(json.loads(line))
            expected[row["id"]] = row
    assert len(expected) == 40 - is_delta  # one row is deleted there
    found = {row["id"]: row for row in open_dataset(out, "train")}
    assert found.keys() == expected.keys()
    for key, own in expected.items():
        for name, value in own.items():
            assert as_text(name, found[key][name]) == value, (key, name)


def test_rows_that_spark_marks_as_deleted_are_refused(
    tables: tuple[str, Path], tmp_path: Path
) -> None:
    """The way out is in the other test, for the same table once Spark purged it."""
    program, folder = tables
    if program == "write_duckdb":
        return
    ran = command("convert", "parquet", folder / "marked", tmp_path / "out")
    assert ran.status != 0
    assert (
        "uses deletionVectors, so its rows differ from the rows in its files" in ran.err
    )
    assert "Rewrite it in Spark (REORG TABLE name APPLY (PURGE))" in ran.err
