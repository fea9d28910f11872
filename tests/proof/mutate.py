"""Change single operators and numbers of modules, and see whether their tests notice.

    python tests/proof/mutate.py [ROOM ...] [--share 0.25] [--seed 0] [--workers 2]
    python tests/proof/mutate.py --again

Each change (mutant) is made in a copy of HEAD, and those tests run there that reach the
changed line, the quickest first. What passes all the same has survived: read it, then
add a test, or add it to known_equivalents.toml with the reason why it changes nothing.
`--again` tries those alone that survived the last time. README.md explains the figures.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from mutant_rooms import ROOMS
from mutants import Mutant, draw, known_equivalents, list_changes, make_mutants

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutants"
TEST_SECONDS = 15.0  # of the tests of one mutant, the quickest ones
START_SECONDS = 15.0  # more than pytest takes to begin

Ask = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Survey:
    """Which tests reach what.

    Attributes:
      seconds: processor time of each test.
      lines: tests by module and line; at the top of a module there are none.
      imported: the modules that were imported.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]
    imported: list[str]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Lists tests that reach a mutant's statement, the quickest first."""
        lines = self.lines[mutant.module]
        span = _statement_at(ast.parse(mutant.original), mutant.line)
        if span is None:
            reached = {test for tests in lines.values() for test in tests}
        else:
            reached = {test for line in span for test in lines.get(line, ())}
        found, total = [], 0.0
        for test in sorted(reached, key=lambda test: self.seconds.get(test, 0.0)):
            total += self.seconds.get(test, 0.0)
            if total > TEST_SECONDS and found:
                break
            found.append(test)
        return found


def _statement_at(module: ast.Module, line: int) -> range | None:
    """Returns the lines of the statement in a function; None outside of functions."""
    best: range | None = None
    for node in ast.walk(module):
        if not isinstance(node, ast.FunctionDef):
            continue
        for each in node.body:
            for statement in ast.walk(each):
                if isinstance(statement, ast.stmt | ast.ExceptHandler | ast.match_case):
                    span = _own_lines(statement)
                    if line in span and (best is None or len(span) < len(best)):
                        best = span
    return best


def _own_lines(statement: ast.stmt | ast.ExceptHandler | ast.match_case) -> range:
    """Returns the lines of a statement, without those of the block below it."""
    if isinstance(statement, ast.match_case):
        return range(statement.pattern.lineno, statement.body[0].lineno)
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or 0) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def prepare(copy: Path) -> None:
    """Makes a copy of HEAD whose package is found by its own path."""
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "tmp").mkdir(parents=True)
    files = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "HEAD"], check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", str(copy)], check=True, input=files.stdout)
    subprocess.run(["make", "-s", "build/types/recordmill"], cwd=copy, check=True)
    for loops in (ROOT / "transforms" / "compiled").glob("*.so"):
        shutil.copy(loops, copy / "transforms" / "compiled")


@contextmanager
def serving(copy: Path) -> Iterator[Ask]:
    """Starts what runs tests in a copy; yields what asks it."""
    prepare(copy)
    environment = os.environ | {
        "PYTHONPATH": str(copy / "build" / "types"),
        "TMPDIR": str(copy / "tmp"),
        "HOME": str(copy / "tmp"),
        "XDG_CACHE_HOME": str(copy / "tmp" / "cache"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = copy / "tests" / "proof" / "mutant_server.py"
    server = subprocess.Popen(
        [str(ROOT / ".venv" / "bin" / "python"), str(program), str(copy)],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )

    def ask(request: dict[str, Any]) -> dict[str, Any]:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        if "error" in answer:
            raise SystemExit(answer["error"])
        return dict(answer)

    try:
        yield ask
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        shutil.rmtree(copy, ignore_errors=True)


def survey(ask: Ask, room: str, tests: Sequence[str]) -> Survey:
    """Runs some tests of a room without a change."""
    answer = ask({"survey": ROOMS[room].modules, "tests": tests})
    lines = {
        module: {int(line): tests for line, tests in found.items()}
        for module, found in answer["lines"].items()
    }
    return Survey(answer["seconds"], lines, answer["imported"])


def join(surveys: Iterable[Survey]) -> Survey:
    """Joins what several runs found."""
    joined = Survey({}, defaultdict(lambda: defaultdict(list)), [])
    for each in surveys:
        joined.seconds.update(each.seconds)
        joined.imported.extend(each.imported)
        for module, lines in each.lines.items():
            for line, tests in lines.items():
                joined.lines[module][line] += tests
    return joined


def drawn(room: str, asked: argparse.Namespace) -> list[Mutant]:
    """Draws the mutants of a room, or takes those that survived before."""
    changes = [one for file in ROOMS[room].modules for one in list_changes(ROOT, file)]
    if asked.again:
        before = {tuple(one) for one in json.loads(_results(room).read_text())}
        lines = {(module, line) for module, line, *_ in before}
        near = [one for one in changes if (one.module, one.line) in lines]
        return [one for one in make_mutants(ROOT, near) if _key(one) in before]
    share = asked.share or ROOMS[room].share
    return make_mutants(ROOT, draw(changes, share, asked.seed))


def _results(room: str) -> Path:
    """Returns where the survivors of a room are kept."""
    return FOLDER / f"survivors-{room}.json"


def _key(mutant: Mutant) -> tuple[str, int, str, str]:
    return (mutant.module, mutant.line, mutant.was, mutant.now)


def main() -> None:
    """Prints a line for each room, and what survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", default=list(ROOMS))
    parser.add_argument("--share", type=float, help="part that is drawn of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="survivors alone")
    asked = parser.parse_args()
    equivalents = known_equivalents()
    for room in asked.rooms:
        mutants = drawn(room, asked)
        same = [one for one in mutants if any(e.is_of(one) for e in equivalents)]
        tried = [one for one in mutants if one not in same]
        found = try_all(room, tried, asked.workers) if tried else []
        killed = len(tried) - len(found)
        share = f", {killed / len(tried):.1%}" if tried else ""
        print(
            f"{room}: {killed} of {len(tried)} killed{share}; {len(same)} equivalent",
            flush=True,
        )
        for one, note in found:
            print(f"  {one.module}:{one.line} {one.operator} ({note})")
            print(*(f"    - {line}" for line in one.was.splitlines()), sep="\n")
            print(*(f"    + {line}" for line in one.now.splitlines()), sep="\n")
        _results(room).write_text(json.dumps([_key(one) for one, _ in found]))


def try_all(room: str, mutants: list[Mutant], workers: int) -> list[tuple[Mutant, str]]:
    """Tries mutants; returns those that survived, each with how many tests ran."""
    waiting: SimpleQueue[Mutant | None] = SimpleQueue()
    found: list[tuple[Mutant, str]] = []
    surveys = [Future[Survey]() for _ in range(workers)]

    def work(number: int) -> None:
        with serving(FOLDER / f"{room}-{number}") as ask:
            try:
                own = ROOMS[room].tests[number::workers]
                surveys[number].set_result(survey(ask, room, own))
            except BaseException as error:
                surveys[number].set_exception(error)
            reached = join(each.result() for each in surveys)
            ask({"warm": ROOMS[room].modules, "imported": reached.imported})
            while (mutant := waiting.get()) is not None:
                tests = reached.tests_of(mutant)
                if not tests:
                    found.append((mutant, "no test reaches it"))
                    continue
                seconds = sum(reached.seconds.get(test, 0.0) for test in tests)
                asked = {"module": mutant.module, "source": mutant.source}
                limit = {"seconds": START_SECONDS + 3 * seconds}
                answer = ask({**asked, "tests": tests, **limit})
                left = waiting.qsize() + 1 - workers
                if left > 0 and left % 50 == 0:
                    print(f"{room}: {left} left", file=sys.stderr, flush=True)
                if not answer["killed"]:
                    found.append((mutant, f"{len(tests)} tests, {seconds:.1f} s"))

    for one in [*mutants, *[None] * workers]:
        waiting.put(one)
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, number) for number in range(workers)]:
            done.result()
    return sorted(found, key=lambda item: (item[0].module, item[0].line, item[0].now))


if __name__ == "__main__":
    main()
