"""Reads tables that others wrote, beside DuckDB and pandas; shows where they differ.

    python tests/misreading/measure_foreign.py FOLDER --peer /path/to/python --show

Nobody knows the truth of these files: where recordmill reads one without a warning and not
as DuckDB or pandas do, a person must look. Each difference is one line: the file, the first
thing that differs, and which of the two peers agrees.

CSV and TSV go through `plan_run`, which the command calls, and the source that the run
reads with; Parquet, Arrow and JSON Lines through the command, of which rows are compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "helpers"))

_PEER = r"""
import duckdb, json, sys, warnings
import pandas as pd
warnings.simplefilter("ignore")
duckdb.sql("set threads = 1")
def kind(name):
    name = str(name).lower()
    for part, what in (("bool", "bool"), ("int", "int64"), ("double", "float32"),
                       ("float", "float32"), ("decimal", "float32")):
        if part in name:
            return what
    return "string"
def by_duckdb(path):
    typed, text = duckdb.read_csv(path), duckdb.read_csv(path, all_varchar=True)
    cells = [["" if c is None else c for c in col] for col in zip(*text.fetchall())]
    return text.columns, [kind(each) for each in typed.types], cells
def by_pandas(path):
    sep = "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else ","
    typed = pd.read_csv(path, sep=sep, low_memory=False, index_col=False)
    text = pd.read_csv(path, sep=sep, dtype=str, keep_default_na=False, index_col=False)
    cells = [text.iloc[:, at].tolist() for at in range(text.shape[1])]
    return [str(name) for name in text.columns], [kind(t) for t in typed.dtypes], cells
for line in sys.stdin:
    answers = []
    for read in (by_duckdb, by_pandas):
        try:
            answers.append(read(line.rstrip("\n")))
        except Exception as error:
            answers.append((str(error).splitlines() or [repr(error)])[0])
    print(json.dumps(answers), flush=True)
"""


_WITHOUT_NAME = ("column", "Unnamed: ")  # as DuckDB and pandas number such columns
_NUMBERS = {"int64", "float32"}


class Reading(NamedTuple):
    """How one reads a table: its columns as text, and what they are of."""

    names: list[str]
    dtypes: list[str]
    cells: list[list[str]]
    warnings: tuple[str, ...] = ()


def read(path: Path) -> Reading | str:
    """Returns how recordmill reads a table of text, or why it does not."""
    from recordmill.beam_jobs.service.prepare import plan_run
    from recordmill.schemas.errors import RecordmillError
    from recordmill.schemas.job import JobSpec, RunOptions
    from recordmill.transforms.sources.base import RangeFindings
    from recordmill.transforms.sources.registry import load_format

    inputs = RunOptions(inputs=(str(path),), output="/no such folder/out")
    job = JobSpec(name="t", source="csv", source_options=load_format("csv").options())
    try:
        plan = plan_run(job, inputs)
        assert plan.prepared is not None
        assert plan.estimate is not None
        if plan.estimate.num_rejects:
            return f"rows rejected: {'; '.join(map(str, plan.input_report.warnings))}"
        source, ranges = plan.prepared.context.source, plan.prepared.ranges
        sink, names = RangeFindings(), source.columns().names
        cells: list[list[str]] = [[] for _ in names]
        for each in source.input_source.apply_boundaries(ranges, [*range(len(ranges))]):
            for rows in source.read_as_text(each):
                for at, column in enumerate(rows.batch.columns):
                    cells[at] += [cell or "" for cell in column.to_pylist()]
            for _ in source.read(each, source.sample_type_flags(each), sink):
                pass
        schema = source.schema(sink.type_flags, sink.null_counts)
    except RecordmillError as error:
        return str(error)
    dtypes = [schema[name].dtype for name in names]
    return Reading(names, dtypes, cells, tuple(map(str, plan.input_report.warnings)))


def are_whole(cells: list[str]) -> bool:
    """Returns whether all numbers of a column are whole, as 2, 2.0, 2e0 or missing."""
    try:
        return all(not cell.strip() or float(cell).is_integer() for cell in cells)
    except ValueError:
        return False


def difference(own: Reading, other: Reading) -> str:
    """Returns the first thing in which two readings differ, or ""."""
    if len(own.names) != len(other.names):
        return f"columns: {len(own.names)}, not {len(other.names)}"
    rows = [len(reading.cells[0]) if reading.cells else 0 for reading in (own, other)]
    if rows[0] != rows[1]:
        return f"rows: {rows[0]}, not {rows[1]}"
    for name, there in zip(own.names, other.names, strict=True):
        is_without = name.startswith("column_") and there.startswith(_WITHOUT_NAME)
        if name.strip() != there.strip() and not is_without:
            return f"names: {name!r}, not {there!r}"
    for at, name in enumerate(own.names):
        for row, pair in enumerate(zip(own.cells[at], other.cells[at], strict=True)):
            found, there = pair
            if found.strip() != there.strip():
                return f"cells: {name!r}, row {row}: {found!r}, not {there!r}"
    columns = zip(own.names, own.cells, own.dtypes, other.dtypes, strict=True)
    for name, cells, dtype, there in columns:
        if dtype != there and not ({dtype, there} == _NUMBERS and are_whole(cells)):
            return f"types: {name!r}: {dtype}, not {there}"
    return ""


def compare(path: Path, answers: list[Any]) -> tuple[str, str]:
    """Returns the outcome of a table, and what there is to look at."""
    own = read(path)
    readings = [each if isinstance(each, str) else Reading(*each) for each in answers]
    if isinstance(own, str):
        read_by = [not isinstance(each, str) for each in readings]
        peers = {2: "both read it", 1: "one reads it", 0: "none reads it"}
        return f"refused; of DuckDB and pandas {peers[sum(read_by)]}", own
    found = [
        "" if isinstance(each, str) else difference(own, each) for each in readings
    ]
    agreed = [
        not isinstance(e, str) and not f for e, f in zip(readings, found, strict=True)
    ]
    if all(agreed):
        return "as DuckDB and pandas", ""
    if own.warnings:
        return "with a warning, not as both", f"{found} {own.warnings[0]}"
    if any(agreed):
        peer = "DuckDB" if agreed[0] else "pandas"
        other = "pandas" if agreed[0] else "DuckDB"
        return f"as {peer}, not as {other}", found[agreed[0]]
    if all(isinstance(each, str) for each in readings):
        return "read, where neither reads it", ""
    return "as neither", f"DuckDB {found[0]}; pandas {found[1]}"


def read_rows(path: Path, source: str) -> tuple[str, str]:
    """Returns the outcome of a file with types: by the command, and pyarrow's rows."""
    import pyarrow.feather
    import pyarrow.parquet
    from job_tools import recordmill

    rows = None
    if source != "jsonl":
        module = pyarrow.parquet if source == "parquet" else pyarrow.feather
        try:
            rows = module.read_table(path).num_rows
        except Exception as error:
            rows = f"{error}".split("\n")[0]
    with tempfile.TemporaryDirectory() as folder:
        ran = recordmill("convert", source, path, f"{folder}/out", "--json")
    if ran.status:
        by = "too" if isinstance(rows, str) else "not"
        return f"{source}: refused; by pyarrow {by}", ran.err.split("\n")[0]
    done = json.loads(ran.out)
    if rows is not None and done["records"] != rows:
        return f"{source}: not the rows of pyarrow", f"{done['records']}, not {rows}"
    told = done["understood"]["warnings"]
    return f"{source}: read{', with a warning' * bool(told)}", f"{told[:1]}"


_SOURCES = {
    "parquet": "parquet", "arrow": "arrow", "feather": "arrow", "jsonl": "jsonl",
    "ndjson": "jsonl",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", required=True, help="a Python with duckdb, pandas")
    parser.add_argument("--show", action="store_true")
    asked = parser.parse_args()
    counted: Counter[str] = Counter()
    files = sorted(path for path in asked.folder.rglob("*") if path.is_file())
    with subprocess.Popen(
        [asked.peer, "-c", _PEER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for path in files:
            source = _SOURCES.get(path.suffix.lower()[1:])
            if source:
                outcome, why = read_rows(path, source)
            else:
                peer.stdin.write(f"{path}\n")
                peer.stdin.flush()
                outcome, why = compare(path, json.loads(peer.stdout.readline()))
                outcome = f"text: {outcome}"
            counted[outcome] += 1
            if asked.show:
                name = path.relative_to(asked.folder)
                print(f"{outcome} | {name} | {why[:400]}", flush=True)
    for outcome, number in sorted(counted.items()):
        print(f"{number:5} {number / len(files):7.2%}  {outcome}")


if __name__ == "__main__":
    main()
