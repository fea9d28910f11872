"""Measures how often tables with a known truth are read right, wrong in silence, or refused.

    python tests/misreading/measure_misreading.py --seed 1 --cases 20000 --command 300
    python tests/misreading/measure_misreading.py --seed 1 --cases 2000 --duckdb /path/to/python

Each table goes through `plan_run`, which the command calls, and its rows through the source
that the run reads with; some through the command itself. csv.Sniffer, DuckDB and pandas (by an
interpreter that has them) get the same tables.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import misread_tables as tables

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "helpers"))

# right: as it is; led: refused, and as it is with the options that the error names; told: as
# it is not, with a warning; asked: refused, and not plain; refused: although it is plain;
# wrong: as it is not, in silence.
OUTCOMES = ("right", "led", "told", "asked", "refused", "wrong")
_NAMED = re.compile(r"`(header|delimiter|skip_rows|comment)=(none|[^`]+)`")
_NUMBERS = ("int64", "float32", "bool")


def problem_of(
    table: tables.Table, names: list[str], dtypes: list[str], cells: list[list[str]]
) -> str:
    """Returns how a reading differs from the table, or "".

    Columns without a name and a cell count for nothing.
    """
    kept = [at for at, c in enumerate(table.columns) if c.name or any(c.cells)]
    if len(names) < len(kept):
        return f"{len(names)} columns, not {len(kept)}"
    if len(names) > len(table.columns):
        return f"{len(names)} columns, not {len(table.columns)}"
    for at in kept:
        column = table.columns[at]
        if table.has_header and names[at] != column.name:
            return f"column {names[at]!r}, not {column.name!r}"
        if len(cells[at]) != table.num_rows:
            return f"{len(cells[at])} rows, not {table.num_rows}"
        if dtypes[at] != column.dtype and any(column.cells):
            return f"{column.name}: {dtypes[at]}, not {column.dtype}"
        for row, (found, true) in enumerate(zip(cells[at], column.cells, strict=True)):
            if found != true and row not in column.odd:
                return f"{column.name}: {found!r}, not {true!r}"
    return ""


def read_by_plan(table: tables.Table, path: Path) -> tuple[str, str]:
    """Returns the outcome of a table by the functions that the command calls, and why."""
    from recordmill.beam_jobs.service.prepare import plan_run
    from recordmill.schemas.errors import RecordmillError
    from recordmill.schemas.job import JobSpec, RunOptions
    from recordmill.transforms.sources.base import RangeFindings
    from recordmill.transforms.sources.registry import load_format

    path.write_bytes(table.text)
    inputs = RunOptions(inputs=(str(path),), output=str(path.with_suffix(".out")))

    def read(options: dict[str, str]) -> tuple[str, str]:
        source_options = load_format("csv").options(**options)
        job = JobSpec(name="table", source="csv", source_options=source_options)
        try:
            plan = plan_run(job, inputs)
        except RecordmillError as error:
            return "refused", str(error)
        assert plan.prepared is not None
        assert plan.estimate is not None
        if plan.estimate.num_rejects:
            return "refused", "; ".join(map(str, plan.input_report.warnings))
        source, ranges = plan.prepared.context.source, plan.prepared.ranges
        [only] = source.input_source.apply_boundaries(ranges, [0])
        sink, names = RangeFindings(), source.columns().names
        cells: list[list[str]] = [[] for _ in names]
        for rows in source.read_as_text(only):
            for at, column in enumerate(rows.batch.columns):
                cells[at] += [cell or "" for cell in column.to_pylist()]
        for _ in source.read(only, source.sample_type_flags(only), sink):
            pass
        schema = source.schema(sink.type_flags, sink.null_counts)
        why = problem_of(table, names, [schema[name].dtype for name in names], cells)
        return (
            "told" if plan.input_report.warnings else "wrong"
        ) if why else "right", why

    outcome, why = read({})
    if outcome != "refused" or table.is_plain:
        return outcome, why
    options: dict[str, str] = {}
    text = why
    for _ in range(3):  # one way out after the other
        found = dict(reversed(_NAMED.findall(text)))
        if not found.keys() - options.keys():
            break
        options = found | options
        led, text = read(options)
        if led == "right":
            return "led", why
    return "asked", why


def read_by_command(table: tables.Table, path: Path) -> tuple[str, str]:
    """Returns the outcome of a table by the command."""
    import shutil

    from job_tools import recordmill

    path.write_bytes(table.text)
    output = path.with_suffix(".out")
    shutil.rmtree(output, ignore_errors=True)
    ran = recordmill("convert", "csv", path, output, "--json")
    if ran.status != 0:
        return ("refused" if table.is_plain else "asked"), ran.err
    done = json.loads(ran.out)
    manifest = json.loads((output / "manifest.json").read_bytes())
    found = {each["name"]: each["dtype"] for each in manifest["features"]}
    own = [column.name for column in table.columns]
    if not table.has_header:
        own = [f"column_{at}" for at in range(len(found))]
    # Features are in no order of columns; other ones come last.
    names = sorted(found, key=lambda name: own.index(name) if name in own else 99)
    cells = [column.cells for column in table.columns][: len(names)]
    rows = manifest["rows_read"]
    same = [[*column] if rows == table.num_rows else [""] * rows for column in cells]
    same += [[""] * rows] * (len(names) - len(same))
    why = problem_of(table, names, [found[name] for name in names], same)
    if why:
        warned = done["understood"]["warnings"]
        return ("told" if warned else "wrong"), why
    return "right", ""


def read_by_sniffer(table: tables.Table) -> tuple[str, str]:
    """Returns the outcome of delimiter and header by csv.Sniffer."""
    text = table.text.decode("utf-8-sig")
    try:
        dialect = csv.Sniffer().sniff(text[:65536])
        has_header = csv.Sniffer().has_header(text[:65536])
    except csv.Error as error:
        return ("refused" if table.is_plain else "asked"), str(error)
    if len(table.columns) > 1 and dialect.delimiter != table.delimiter:
        return "wrong", f"delimiter {dialect.delimiter!r}"
    if has_header != table.has_header:
        return "wrong", f"header {has_header}"
    return "right", ""


def _outcome(number: int, folder: str, how: str) -> tuple[int, str, str]:
    table = tables.make_table(number)
    path = Path(folder) / f"table-{number}.csv"
    read = {"plan": read_by_plan, "command": read_by_command}.get(how)
    outcome, why = read(table, path) if read else read_by_sniffer(table)
    path.unlink(missing_ok=True)
    return number, outcome, why


_PEER = r"""
import json, sys, warnings
warnings.simplefilter("ignore")
def by_duckdb(path):
    rows = duckdb.read_csv(path)
    cells = [list(map(lambda c: "" if c is None else str(c), col)) for col in
             zip(*rows.fetchall())] or [[] for _ in rows.columns]
    return rows.columns, [str(each) for each in rows.types], cells
def by_pandas(path):
    rows = pandas.read_csv(path, sep=None, engine="python", index_col=False)
    cells = [rows.iloc[:, at].map(str).tolist() for at in range(rows.shape[1])]
    return [*map(str, rows.columns)], [str(each) for each in rows.dtypes], cells
if sys.argv[1] == "DuckDB":
    import duckdb
    duckdb.sql("set threads = 1")
else:
    import pandas
for line in sys.stdin:
    try:
        read = {"DuckDB": by_duckdb, "pandas": by_pandas}[sys.argv[1]]
        print(json.dumps(read(line.rstrip("\n"))), flush=True)
    except Exception as error:
        print(json.dumps((str(error).splitlines() or [""])[0]), flush=True)
"""


def read_by_peer(
    name: str, numbers: list[int], python: str, folder: str
) -> list[tuple[int, str, str]]:
    """Returns the outcomes by DuckDB or pandas; of cells, their number is compared."""
    found = []
    with subprocess.Popen(
        [python, "-c", _PEER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for number in numbers:
            table = tables.make_table(number)
            path = Path(folder) / f"{name}-{number}.csv"
            path.write_bytes(table.text)
            peer.stdin.write(f"{path}\n")
            peer.stdin.flush()
            answer = json.loads(peer.stdout.readline())
            path.unlink()
            if isinstance(answer, str):
                found.append((number, "refused" if table.is_plain else "asked", answer))
                continue
            names, types, cells = answer
            dtypes = [_dtype_of(each) for each in types]
            own = [column.cells for column in table.columns]
            same = [
                own[at] if at < len(own) and len(column) == len(own[at]) else column
                for at, column in enumerate(cells)
            ]
            why = problem_of(table, names, dtypes, same)
            found.append((number, "wrong" if why else "right", why))
    return found


def _dtype_of(name: str) -> str:
    """Returns what DuckDB's or pandas' type is called here."""
    name = name.lower()
    if "interval" not in name and ("int" in name or name == "integer"):
        return "int64"
    if name.startswith("bool"):
        return "bool"
    return "float32" if name.startswith(("double", "float")) else "string"


def report(
    title: str, found: list[tuple[int, str, str]], show: int
) -> dict[str, object]:
    """Prints and returns the shares of outcomes; undecidable tables apart."""
    by_class: dict[str, Counter[str]] = {}
    total: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    shown = 0
    for number, outcome, why in found:
        table = tables.make_table(number)
        if table.is_undecidable:
            apart[outcome] += 1
            continue
        total[outcome] += 1
        if table.is_plain:
            plain[outcome] += 1
        for kind in (table.oddities | table.defects) or {"plain"}:
            by_class.setdefault(kind, Counter())[outcome] += 1
        if outcome in ("wrong", "refused") and shown < show:
            shown += 1
            kinds = ", ".join(sorted(table.oddities | table.defects)) or "plain"
            print(f"  {number} [{kinds}] {outcome}: {why[:200]}")
            print(f"      {table.text[:120]!r}")
    print(f"{title}: {total.total():,} tables, {apart.total():,} undecidable")
    for name, counts in [
        *sorted(by_class.items()),
        ("all", total),
        ("undecidable", apart),
    ]:
        shares = "  ".join(
            f"{each} {counts[each] / max(1, counts.total()):7.2%}" for each in OUTCOMES
        )
        print(f"  {name:14} {counts.total():6,}  {shares}")
    return {"all": dict(total), "plain": dict(plain), "undecidable": dict(apart)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--command", type=int, default=0)
    parser.add_argument("--duckdb", default="", help="a Python that has it")
    parser.add_argument("--pandas", default="", help="a Python that has it")
    parser.add_argument("--sniffer", action="store_true")
    parser.add_argument("--peers-only", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", type=int, default=0)
    asked = parser.parse_args()
    numbers = [asked.seed * 1_000_003 + each for each in range(asked.cases)]
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        planned = 0 if asked.peers_only else len(numbers)
        ways = [("plan", planned), ("command", asked.command)]
        ways += [("csv.Sniffer", len(numbers))] * asked.sniffer
        for how, some in ways:
            if not some:
                continue
            with ProcessPoolExecutor(asked.workers) as pool:
                work = partial(_outcome, folder=folder, how=how)
                found = [*pool.map(work, numbers[:some], chunksize=20)]
            report(how, found, asked.show)
        for name, python in (("DuckDB", asked.duckdb), ("pandas", asked.pandas)):
            if python:
                found = read_by_peer(name, numbers, python, folder)
                report(name, found, asked.show)


if __name__ == "__main__":
    main()
