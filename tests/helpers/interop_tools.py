"""Asks TensorFlow and TFDS, which live in an environment of their own."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = "RECORDMILL_INTEROP_PYTHON"
LIMIT_SECONDS = 600  # TensorFlow's import alone takes seconds, on a cold disk many


def ask(script: str, *arguments: str | Path, given: Any = None) -> list[Any]:
    """What a script of tests/interop says, one value for each line of JSON.

    Args:
      script: its name.
      arguments: of its command line.
      given: what it reads as JSON.
    """
    file = str(ROOT / "tests" / "interop" / script)
    printed = _run(ROOT, [file, *map(str, arguments)], json.dumps(given))
    return [json.loads(line) for line in printed.splitlines()]


def run_in_interop(folder: Path, *command: str | Path) -> str:
    """Runs Python code or a script where TensorFlow is, and returns what it printed.

    Args:
      folder: the current folder of the process.
      command: what follows `python`.
    """
    return _run(folder, [str(word) for word in command], "")


def _run(folder: Path, command: list[str], given: str) -> str:
    """Runs a command in a fork of the process that has TensorFlow imported."""
    with TemporaryDirectory() as files:
        paths = {name: Path(files, name) for name in ("stdin", "stdout", "stderr")}
        for path in paths.values():
            path.write_text(given if path.name == "stdin" else "")
        request = {"folder": str(folder), "command": command}
        request |= {name: str(path) for name, path in paths.items()}
        server = _warm_python()
        assert server.stdin is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = _answer_of(server)
        errors = paths["stderr"].read_text()
        assert answer == "0\n", f"{command[0]} ended with {answer}: {errors}"
        return paths["stdout"].read_text()


def _answer_of(server: subprocess.Popen[str]) -> str:
    """Waits for the line that says how a request ended; "" if the server is gone."""
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], LIMIT_SECONDS)
    if not ready:
        os.killpg(server.pid, signal.SIGKILL)
        _warm_python.cache_clear()
        pytest.fail(f"TensorFlow did not answer in {LIMIT_SECONDS} s")
    line = server.stdout.readline()
    if not line:
        _warm_python.cache_clear()
    return line


@cache
def _warm_python() -> subprocess.Popen[str]:
    """Starts the process that runs all requests of this one; it ends with this one."""
    server = subprocess.Popen(
        [interop_python(), ROOT / "tests" / "interop" / "warm_python.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    # It holds nothing that has to be closed.
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def interop_python() -> Path:
    """Returns the Python of the environment with TensorFlow; fails without one."""
    python = Path(os.environ.get(PYTHON, ROOT / ".venv-interop" / "bin" / "python"))
    if not python.is_file():
        pytest.fail(
            f"{python}: no such file. These tests need TensorFlow in an environment of "
            f"its own: `make test` builds it, {PYTHON} names another"
        )
    return python
