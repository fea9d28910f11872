"""Change single operators and numbers of a module, and see whether its tests notice.

    python tests/proof/mutate.py [MODULE ...] [--share 0.25] [--workers 2]

Each change (mutant) of cosmic-ray is made in a copy of HEAD, and the module's tests run
there. What passes all the same has survived: read it, then add a test, or say why it
changes nothing. A share of the mutants is drawn with a fixed seed. Needs `make mutants`,
which makes the environment.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTEST = "-m pytest -x -q -n0 -p no:cacheprovider"
TIMEOUT_SECONDS = 300.0  # of one run of the tests; a mutant may loop for ever
# The tests that are to notice a change of the module, the fastest first.
MODULES = {
    "transforms/encode/wire.py": (
        "tests/unit/encode/test_wire.py",
        "tests/unit/encode/test_encode_examples.py",
    ),
    "transforms/exchange/keys.py": (
        "tests/unit/exchange/test_keys.py",
        "tests/unit/sources/test_csv_source.py",
    ),
    "transforms/exchange/plan.py": ("tests/unit/exchange/test_plan.py",),
    "transforms/tfrecord.py": (
        "tests/unit/encode/test_tfrecord.py",
        "tests/unit/encode/test_tfrecord_damage.py",
    ),
    "transforms/commit/commit.py": (
        "tests/unit/commit/test_staged_files.py",
        "tests/unit/commit/test_staging.py",
        "tests/jobs/test_commit.py",
        "tests/unit/commit/test_adversary.py",
    ),
}


@dataclass(frozen=True)
class Survivor:
    """A change that no test noticed."""

    line: int
    operator: str
    diff: str


def prepare(module: str, folder: Path) -> Path:
    """Make a copy of HEAD whose package is found by its own path; returns it."""
    copy = folder / module.replace("/", "-").removesuffix(".py")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    files = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "HEAD"], check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", str(copy)], check=True, input=files.stdout)
    subprocess.run(["make", "-s", "build/types/recordmill"], cwd=copy, check=True)
    for loops in (ROOT / "transforms" / "compiled").glob("*.so"):
        shutil.copy(loops, copy / "transforms" / "compiled")
    return copy


def survivors_of(module: str, copy: Path, share: float) -> tuple[int, list[Survivor]]:
    """Run the tests on mutants of a module; returns their number, and who survived."""
    python = ROOT / ".venv" / "bin" / "python"
    session, config = copy / "session.sqlite", copy / "mutants.toml"
    config.write_text(
        f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = {TIMEOUT_SECONDS}\n'
        "excluded-modules = []\n"
        f'test-command = "{python} {PYTEST} {" ".join(MODULES[module])}"\n'
        '[cosmic-ray.distributor]\nname = "local"\n'
    )
    run_tool(copy, "init", str(config), str(session), "--force")
    run_tool(copy, "baseline", str(config))  # the tests must pass without a change
    with sqlite3.connect(session) as database:
        drawn = draw(database, annotations(copy / module), share)
        for table in ("work_items", "mutation_specs"):
            database.execute(f"delete from {table} where job_id not in {drawn}")
    run_tool(copy, "exec", str(config), str(session))
    with sqlite3.connect(session) as database:
        found = database.execute(
            "select start_pos_row, operator_name, diff, test_outcome"
            " from mutation_specs join work_results using (job_id)"
        ).fetchall()
    alive = [
        Survivor(line, name.removeprefix("core/"), diff)
        for line, name, diff, outcome in sorted(found)
        if outcome == "SURVIVED"
    ]
    return len(found), alive


def annotations(path: Path) -> list[tuple[int, int, int, int]]:
    """List where types are named, which no test can notice: nothing runs there."""
    nodes: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.AnnAssign | ast.arg):
            nodes.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            nodes.append(node.returns)
    return [
        (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        for node in nodes
        if node is not None
    ]


def draw(
    database: sqlite3.Connection,
    left_out: list[tuple[int, int, int, int]],
    share: float,
) -> tuple[str, ...]:
    """Draw a share of the mutants, without those in some places."""
    rows = database.execute(
        "select job_id, start_pos_row, start_pos_col from mutation_specs"
        " order by start_pos_row, start_pos_col, operator_name, occurrence"
    ).fetchall()
    jobs = [
        job
        for job, line, column in rows
        if not any(
            (first, start) <= (line, column) < (last, end)
            for first, start, last, end in left_out
        )
    ]
    number = max(2, round(share * len(jobs)))
    return tuple(random.Random(0).sample(jobs, min(number, len(jobs))))


def run_tool(copy: Path, *arguments: str) -> None:
    """Run cosmic-ray in a copy."""
    tool = Path(sys.executable).with_name("cosmic-ray")
    environment = os.environ | {
        "PYTHONPATH": str(copy / "build" / "types"),
        "RECORDMILL_EXAMPLES": "1",  # five times as many as `make test`: less luck
        "PYTHONDONTWRITEBYTECODE": "1",  # a mutant may be as old as what it replaces
    }
    subprocess.run([str(tool), *arguments], cwd=copy, env=environment, check=True)


def main(argv: list[str]) -> None:
    """Print a line for each module, and what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", default=list(MODULES))
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    asked = parser.parse_args(argv)

    def work(module: str) -> tuple[int, list[Survivor]]:
        copy = prepare(module, asked.folder.resolve())
        return survivors_of(module, copy, asked.share)

    total = killed = 0
    with ThreadPoolExecutor(asked.workers) as pool:
        results = pool.map(work, asked.modules)
        for module, (count, alive) in zip(asked.modules, results, strict=True):
            total, killed = total + count, killed + count - len(alive)
            print(f"{module}: {count - len(alive)} of {count} killed", flush=True)
            for one in alive:
                changed = [
                    line
                    for line in one.diff.splitlines()
                    if line[:1] in "+-" and line[:3] not in ("+++", "---")
                ]
                print(f"  line {one.line}, {one.operator}", *changed, sep="\n    ")
    print(f"all: {killed} of {total} killed, {killed / total:.0%}")


if __name__ == "__main__":
    main(sys.argv[1:])
