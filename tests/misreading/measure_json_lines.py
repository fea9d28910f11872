"""Measures how often types of JSON Lines with a known truth are read right.

    python tests/misreading/measure_json_lines.py --seed 1 --cases 2000 --peer /path/to/python

The columns are those of `misread_tables.py`: numbers as numbers of JSON, Booleans as its
Booleans, all else as strings; missing cells are null or left out; odd cells are strings
among numbers. Each file goes through `plan_run`, which the command calls, and the source
that the run reads with; DuckDB and pandas read the same.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import misread_tables as tables

# right: names, types and numbers of rows are those of the table; asked: refused, with an
# odd cell; told: not as it is, with a warning; refused: without one; wrong: in silence.
OUTCOMES = ("right", "told", "asked", "refused", "wrong")
_PEER = r"""
import json, sys, warnings
import duckdb
import pandas
warnings.simplefilter("ignore")
duckdb.sql("set threads = 1")
def by_duckdb(path):
    rows = duckdb.read_json(path, format="newline_delimited")
    return dict(zip(rows.columns, map(str, rows.types))), len(rows.fetchall())
def by_pandas(path):
    rows = pandas.read_json(path, lines=True)
    return {str(name): str(kind) for name, kind in rows.dtypes.items()}, len(rows)
for line in sys.stdin:
    answers = []
    for read in (by_duckdb, by_pandas):
        try:
            answers.append(read(line.rstrip("\n")))
        except Exception as error:
            answers.append((str(error).splitlines() or [""])[0])
    print(json.dumps(answers), flush=True)
"""


def json_lines(table: tables.Table) -> bytes:
    """Returns the columns of a table, without its footers and delimiters, as JSON Lines."""
    rng = random.Random(table.number)
    as_null = rng.random() < 0.5
    lines = []
    for row in range(table.num_rows):
        values: dict[str, object] = {}
        for column in table.columns:
            cell = column.cells[row]
            if not column.name:
                continue
            is_missing = cell == "" or cell in tables.MISSING
            if row in column.odd or column.dtype == "string":
                values[column.name] = cell
            elif is_missing and (as_null or not row):
                values[column.name] = None
            elif not is_missing:
                values[column.name] = json.loads(cell.replace(",", "."))
        lines.append(json.dumps(values) + "\n")
    return "".join(lines).encode()


def judge(table: tables.Table, dtypes: dict[str, str], rows: int) -> str:
    """Returns in what a reading differs from the table, or ""."""
    true = {each.name: each.dtype for each in table.columns if each.name}
    if rows != table.num_rows:
        return f"{rows} rows, not {table.num_rows}"
    if dtypes.keys() != true.keys():
        return f"columns {[*dtypes]}, not {[*true]}"
    bad = [
        f"{n}: {dtypes[n]}, not {each}" for n, each in true.items() if dtypes[n] != each
    ]
    return next(iter(bad), "")


def read(table: tables.Table, path: Path) -> tuple[str, str]:
    """Returns the outcome by the functions that the command calls, and why."""
    from recordmill.beam_jobs.service.prepare import plan_run
    from recordmill.schemas.errors import RecordmillError
    from recordmill.schemas.job import JobSpec, RunOptions
    from recordmill.transforms.sources.base import RangeFindings
    from recordmill.transforms.sources.registry import load_format

    is_odd = any(column.odd for column in table.columns)
    options = load_format("jsonl").options()
    inputs = RunOptions(inputs=(str(path),), output=str(path.with_suffix(".out")))
    try:
        plan = plan_run(
            JobSpec(name="t", source="jsonl", source_options=options), inputs
        )
        assert plan.prepared is not None
        assert plan.estimate is not None
        if plan.estimate.num_rejects:
            return "asked" if is_odd else "refused", "; ".join(
                map(str, plan.input_report.warnings)
            )
        source, sink = plan.prepared.context.source, RangeFindings()
        ranges = plan.prepared.ranges
        rows = 0
        for each in source.input_source.apply_boundaries(ranges, [*range(len(ranges))]):
            for part in source.read(each, source.sample_type_flags(each), sink):
                rows += part.batch.num_rows
        schema = source.schema(sink.type_flags, sink.null_counts)
    except RecordmillError as error:
        return "asked" if is_odd else "refused", str(error)
    why = judge(table, {each.name: each.dtype for each in schema.features}, rows)
    return ("told" if plan.input_report.warnings else "wrong") if why else "right", why


def _dtype_of(name: str) -> str:
    name = name.lower()
    if "int" in name and "interval" not in name:
        return "int64"
    if name.startswith("bool"):
        return "bool"
    return "float32" if name.startswith(("double", "float")) else "string"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--peer", default="", help="a Python with duckdb and pandas")
    parser.add_argument("--show", type=int, default=0)
    asked = parser.parse_args()
    counted: dict[tuple[str, str], Counter[str]] = {}
    peer = None
    if asked.peer:
        peer = subprocess.Popen(
            [asked.peer, "-c", _PEER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    with tempfile.TemporaryDirectory() as folder:
        for number in range(asked.cases):
            table = tables.make_table(asked.seed * 1_000_003 + number)
            kind = (
                "odd cell" if any(column.odd for column in table.columns) else "plain"
            )
            path = Path(folder) / f"{number}.jsonl"
            path.write_bytes(json_lines(table))
            found = {"recordmill": read(table, path)}
            if peer is not None:
                assert peer.stdin is not None
                assert peer.stdout is not None
                peer.stdin.write(f"{path}\n")
                peer.stdin.flush()
                answers = json.loads(peer.stdout.readline())
                for name, answer in zip(("DuckDB", "pandas"), answers, strict=True):
                    if isinstance(answer, str):
                        found[name] = "asked" if kind != "plain" else "refused", answer
                        continue
                    types = {each: _dtype_of(name) for each, name in answer[0].items()}
                    why = judge(table, types, answer[1])
                    found[name] = "wrong" if why else "right", why
            path.unlink()
            for name, (outcome, why) in found.items():
                counted.setdefault((name, kind), Counter())[outcome] += 1
                if outcome in ("wrong", "refused") and asked.show:
                    print(f"  {number} [{kind}] {name} {outcome}: {why[:200]}")
    for (name, kind), counts in sorted(counted.items()):
        shares = "  ".join(
            f"{each} {counts[each] / counts.total():7.2%}" for each in OUTCOMES
        )
        print(f"{name:10} {kind:9} {counts.total():6,}  {shares}")


if __name__ == "__main__":
    main()
