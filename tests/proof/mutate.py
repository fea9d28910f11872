"""Change single operators and numbers of modules, and see whether their tests notice.

    python tests/proof/mutate.py [ROOM ...] [--share 0.25] [--seed 0] [--workers 2]
    python tests/proof/mutate.py --again

Each change (mutant) is made in a copy of HEAD, and those tests run there that reach the
changed line, the quickest first. What passes all the same has survived: read it, then
add a test, or add it to known_equivalents.toml with the reason why it changes nothing.
`--again` tries those alone that survived the last time, or were not tried yet. README.md
explains the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from mutant_rooms import ROOMS
from mutants import (
    Change,
    Mutant,
    draw,
    known_equivalents,
    list_changes,
    make_mutants,
)
from survey import Survey, join

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "mutants"
START_SECONDS = 15.0  # more than pytest takes to begin

Ask = Callable[[dict[str, Any]], dict[str, Any]]


def prepare(copy: Path) -> None:
    """Makes a copy of HEAD whose package is found by its own path."""
    shutil.rmtree(copy, ignore_errors=True)
    (copy / "tmp").mkdir(parents=True)
    files = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "HEAD"], check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", str(copy)], check=True, input=files.stdout)
    subprocess.run(["make", "-s", "build/types/recordmill"], cwd=copy, check=True)
    for loops in (ROOT / "transforms" / "native").glob("*.so"):
        shutil.copy(loops, copy / "transforms" / "native")


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


def survey_tests(ask: Ask, room: str, tests: Iterable[str]) -> Survey:
    """Runs some test files of a room without a change, or takes what is known of them."""
    return join(_survey_file(ask, room, file) for file in tests)


def _survey_file(ask: Ask, room: str, file: str) -> Survey:
    own = [*ROOMS[room].modules, file]
    texts = [(ROOT / each).read_bytes() for each in own]
    texts += [path.read_bytes() for path in sorted(ROOT.glob("tests/helpers/*.py"))]
    place = FOLDER / "surveys" / f"{sha256(b''.join(texts)).hexdigest()}.json"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        answer = ask({"survey": ROOMS[room].modules, "tests": [file]})
        place.write_text(json.dumps(answer))
    answer = json.loads(place.read_text())
    lines = {
        module: {int(line): tests for line, tests in found.items()}
        for module, found in answer["lines"].items()
    }
    return Survey(answer["seconds"], lines, answer["imported"])


@dataclass
class Trial:
    """The mutants of a room that were drawn.

    Attributes:
      room: its name.
      killed: how many were killed.
      same: how many are equivalents.
      left: those that survived, or were not tried yet.
    """

    room: str
    killed: int
    same: int
    left: list[Mutant]

    @classmethod
    def of(cls, room: str, mutants: list[Mutant], killed: int = 0) -> Trial:
        known = known_equivalents()
        left = [one for one in mutants if not any(e.is_of(one) for e in known)]
        return cls(room, killed, len(mutants) - len(left), left)

    def kill(self, mutant: Mutant) -> None:
        self.killed += 1
        self.left.remove(mutant)
        self.keep()

    def keep(self) -> None:
        """Writes what `--again` goes on with."""
        keys = [_key(one) for one in self.left]
        kept = {"killed": self.killed, "same": self.same, "left": keys}
        place = _results(self.room)
        place.with_suffix(".part").write_text(json.dumps(kept))
        place.with_suffix(".part").rename(place)


def draw_trial(room: str, share: float | None, seed: int) -> Trial:
    """Draws mutants of a room."""
    part = share or ROOMS[room].share
    return Trial.of(room, make_mutants(ROOT, draw(_changes(room), part, seed)))


def trial_again(room: str) -> Trial:
    """Returns the last trial of a room, which may have been interrupted."""
    kept = json.loads(_results(room).read_text())
    keys = {tuple(key) for key in kept["left"]}
    lines = {key[:2] for key in keys}
    near = [one for one in _changes(room) if (one.module, one.line) in lines]
    left = [one for one in make_mutants(ROOT, near) if _key(one) in keys]
    found = Trial.of(room, left, kept["killed"])
    found.same += kept["same"]
    return found


def _changes(room: str) -> list[Change]:
    return [one for file in ROOMS[room].modules for one in list_changes(ROOT, file)]


def _results(room: str) -> Path:
    return FOLDER / f"trial-{room}.json"


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
    FOLDER.mkdir(parents=True, exist_ok=True)
    for room in asked.rooms:
        if asked.again:
            trial = trial_again(room)
        else:
            trial = draw_trial(room, asked.share, asked.seed)
        found = try_all(trial, asked.workers) if trial.left else []
        tried = trial.killed + len(found)
        share = f", {trial.killed / tried:.1%}" if tried else ""
        print(
            f"{room}: {trial.killed} of {tried} killed{share}; {trial.same} equivalent",
            flush=True,
        )
        for one, note in found:
            print(f"  {one.module}:{one.line} {one.operator} ({note})")
            print(*(f"    - {line}" for line in one.was.splitlines()), sep="\n")
            print(*(f"    + {line}" for line in one.now.splitlines()), sep="\n")


def try_all(trial: Trial, workers: int) -> list[tuple[Mutant, str]]:
    """Tries mutants; returns those that survived, each with how many tests ran."""
    room = trial.room
    trial.keep()
    waiting: SimpleQueue[Mutant | None] = SimpleQueue()
    found: list[tuple[Mutant, str]] = []
    lock = Lock()
    surveys = [Future[Survey]() for _ in range(workers)]

    def work(number: int) -> None:
        with serving(FOLDER / f"{room}-{number}") as ask:
            try:
                own = ROOMS[room].tests[number::workers]
                surveys[number].set_result(survey_tests(ask, room, own))
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
                if answer["killed"]:
                    with lock:
                        trial.kill(mutant)
                    continue
                note = f"{len(tests)} tests, {seconds:.1f} s"
                found.append((mutant, note))
                left = max(0, waiting.qsize() - workers)
                print(f"{room}: {left} left. {mutant.now} ({note})", file=sys.stderr)

    for one in [*trial.left, *[None] * workers]:
        waiting.put(one)
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work, number) for number in range(workers)]:
            done.result()
    return sorted(found, key=lambda item: (item[0].module, item[0].line, item[0].now))


if __name__ == "__main__":
    main()
