"""Asks TensorFlow and TFDS, which live in an environment of their own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
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
    done = subprocess.run(
        [interop_python(), ROOT / "tests" / "interop" / script, *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_in_interop(folder: Path, *command: str | Path) -> str:
    """Runs Python code or a script where TensorFlow is, and returns what it printed.

    Args:
      folder: the current folder of the process.
      command: what follows `python`.
    """
    done = subprocess.run(
        [interop_python(), *command],
        cwd=folder,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def interop_python() -> Path:
    """Returns the Python of the environment with TensorFlow; fails without one."""
    python = Path(os.environ.get(PYTHON, ROOT / ".venv-interop" / "bin" / "python"))
    if not python.is_file():
        pytest.fail(
            f"{python}: no such file. These tests need TensorFlow in an environment of "
            f"its own: `make test` builds it, {PYTHON} names another"
        )
    return python
