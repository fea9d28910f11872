"""Runs tests on mutants, each in a process forked from one that has imported much.

    python tests/proof/mutant_server.py COPY

In a copy of the project that nobody else uses. A line of JSON comes in for each request
and one goes out for each answer:

    {"survey": [MODULE, ...], "tests": [FILE, ...]}
        runs all tests without a change; answers the processor time of each, the tests that
        reach each line of each module, and what was imported
    {"warm": [MODULE, ...], "imported": [NAME, ...]}
        imports all that does not import the modules, so that nothing else is imported
        for each mutant; answers nothing
    {"module": MODULE, "source": TEXT, "tests": [ID, ...], "seconds": LIMIT}
        runs some tests on a changed module, until one fails; answers its outcome
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import coverage
import pytest
from hypothesis import Phase, settings

# One kind of store is enough, and what takes seconds would take hours.
SELECTED = ("--stores", "local", "-m", "not slow")
ARGUMENTS = ("-q", "-x", "-n0", "-p", "no:cacheprovider", *SELECTED)
IDLE_SECONDS = 30.0  # more than any test waits for something
MEMORY_BYTES = 6 << 30  # of addresses; a changed number may ask for any
Answer = dict[str, Any]


class Chosen:
    """A plugin of pytest that runs some tests alone, in the order given.

    Attributes:
      seconds: processor time of each test.
      failed: the first test that failed, or "".
    """

    def __init__(self, tests: list[str] | None) -> None:
        self._order = None if tests is None else {t: i for i, t in enumerate(tests)}
        self.seconds: dict[str, float] = {}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        order = self._order
        if order is not None:
            items[:] = [item for item in items if item.nodeid in order]
            items.sort(key=lambda item: order[item.nodeid])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        before = sum(os.times()[:4])  # of this process and of those that it started
        yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def survey(copy: Path, modules: list[str], tests: list[str]) -> Answer:
    """Runs all tests; returns how long each takes, and which lines it reaches."""
    data = copy / "reached.coverage"
    measured = coverage.Coverage(
        data_file=str(data), include=[str(copy / module) for module in modules]
    )
    chosen = Chosen(None)

    class Contexts:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
            measured.switch_context(item.nodeid)
            yield
            measured.switch_context("")

    measured.start()
    status = pytest.main([*ARGUMENTS, *tests], plugins=[chosen, Contexts()])
    measured.stop()
    if status != 0:
        return {"error": f"the tests fail without a change: {chosen.failed}"}
    lines = {}
    for module in modules:
        found = measured.get_data().contexts_by_lineno(str(copy / module))
        lines[module] = {line: sorted(filter(None, who)) for line, who in found.items()}
    return {
        "seconds": chosen.seconds,
        "lines": lines,
        "imported": [name for name in sys.modules if not _is_of_tests(name, copy)],
    }


def _is_of_tests(name: str, copy: Path) -> bool:
    file = getattr(sys.modules[name], "__file__", None) or ""
    return name == "__main__" or file.startswith(str(copy / "tests"))


def warm(copy: Path, modules: list[str], imported: list[str]) -> Answer:
    """Imports what no change of the modules can alter."""
    reads: dict[str, set[str]] = {}
    for path in copy.glob("[stb]*/**/*.py"):
        name = ".".join(("recordmill", *path.relative_to(copy).with_suffix("").parts))
        reads[name.removesuffix(".__init__")] = _imports_of(path.read_text())
    changed = {f"recordmill.{m.removesuffix('.py').replace('/', '.')}" for m in modules}
    size = 0
    while size < len(changed):
        size = len(changed)
        changed |= {name for name, found in reads.items() if found & changed}
    for name in imported:
        if name not in changed:
            with contextlib.suppress(Exception):
                import_module(name)
    return {}


def _imports_of(text: str) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{n.name}" for n in node.names)}
    return found


def try_mutant(tests: list[str]) -> Answer:
    """Runs tests until one fails."""
    chosen = Chosen(tests)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    status = pytest.main([*ARGUMENTS, *files], plugins=[chosen])
    return {"killed": status != 0, "by": chosen.failed or f"status {int(status)}"}


def in_child(work: Callable[[], Answer], seconds: float) -> Answer:
    """Does something in a forked process of so many seconds of processor time."""
    place = Path("answer.json")
    place.unlink(missing_ok=True)
    process = os.fork()
    if process == 0:
        _run_in_child(work, place, seconds)
    used, busy_at = 0, time.monotonic()
    while os.waitpid(process, os.WNOHANG) == (0, 0):
        before, used = used, _ticks_of(process)
        if used != before:
            busy_at = time.monotonic()
        elif time.monotonic() - busy_at > IDLE_SECONDS:  # it waits for ever
            os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        return dict(json.loads(place.read_text()))
    return {"killed": True, "by": "no end, or a crash"}


def _ticks_of(process: int) -> int:
    """Returns the processor time of a process and of those that it waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _run_in_child(work: Callable[[], Answer], place: Path, seconds: float) -> NoReturn:
    os.setsid()
    log = os.open("tests.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    whole = round(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        text = json.dumps(work())
        place.with_suffix(".part").write_text(text)
        place.with_suffix(".part").rename(place)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main(copy: Path) -> None:
    """Answers requests until there are no more."""
    _die_with_parent()
    os.chdir(copy)
    tempfile.tempdir = os.environ["TMPDIR"]
    # A failure ends a mutant: nobody reads its smallest example. The same examples each
    # time, so that figures can be compared.
    settings.register_profile(
        "mutants",
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
        database=None,
    )
    settings.load_profile("mutants")
    changed_at = int(time.time())
    for line in sys.stdin:
        asked = json.loads(line)
        if "survey" in asked:
            modules, tests = asked["survey"], asked["tests"]
            answer = in_child(lambda m=modules, t=tests: survey(copy, m, t), 3600)
        elif "warm" in asked:
            answer = warm(copy, asked["warm"], asked["imported"])
        else:
            path = copy / asked["module"]
            original = path.read_bytes()
            # A time of its own, so that compiled files of another mutant do not count.
            changed_at += 2
            path.write_text(asked["source"])
            os.utime(path, (changed_at, changed_at))
            try:
                tests = asked["tests"]
                answer = in_child(lambda t=tests: try_mutant(t), asked["seconds"])
            finally:
                path.write_bytes(original)
                changed_at += 2
                os.utime(path, (changed_at, changed_at))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
