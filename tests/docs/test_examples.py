"""The examples run as their docstrings say."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from interop_tools import run_in_interop
from pages import ROOT

from recordmill.beam_jobs.cli.main import run

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
IRIS = ROOT / "tests/samples/iris/iris.csv"


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset that most examples read."""
    output = tmp_path_factory.mktemp("examples") / "flowers"
    more = ["--schema", str(EXAMPLES / "iris.yaml"), "--shards", "2"]
    assert run(["convert", "csv", str(IRIS), str(output), *more]) == 0
    return output


def run_example(name: str, *arguments: str | Path) -> str:
    """Returns what an example prints."""
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_docstring_has_the_command_to_run_it(script: Path) -> None:
    text = ast.get_docstring(ast.parse(script.read_text())) or ""
    commands = [line for line in text.splitlines() if line.startswith("python ")]
    assert [shlex.split(line)[1] for line in commands] == [f"examples/{script.name}"]


def accuracy(printed: str) -> float:
    (found,) = re.findall(r"^accuracy ([\d.]+)$", printed, re.MULTILINE)
    return float(found)


def test_nearest_numpy(flowers: Path) -> None:
    assert accuracy(run_example("nearest_numpy.py", flowers)) > 0.9


def test_train_tensorflow(flowers: Path, tmp_path: Path) -> None:
    printed = run_in_interop(tmp_path, EXAMPLES / "train_tensorflow.py", flowers)
    assert accuracy(printed) > 0.9


def test_pipeline(tmp_path: Path) -> None:
    letters = sum(map(len, ["apple", "pear", "plum", "cherry", "quince"] * 20))
    assert run_example("pipeline.py", tmp_path / "words") == f"{letters} letters\n"


def test_jobs(tmp_path: Path) -> None:
    job = str(EXAMPLES / "jobs/iris.yaml")
    output = tmp_path / "iris-job"
    assert run(["run", job, "--set", f"output={output}"]) == 0
    assert run(["verify", str(output)]) == 0


def test_the_nightly_job(tmp_path: Path) -> None:
    """Two nights: the second one has a file more, and publishes a version more."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "metrics").mkdir()
    job = str(EXAMPLES / "jobs/nightly.yaml")
    for night in (1, 2):
        rows = "".join(f"u{row},{row}\n" for row in range(night * 10))
        (tmp_path / "raw" / f"{night}.csv").write_text(f"user,value\n{rows}")
        assert run(["run", job, "--set", f"root={tmp_path}"]) == 0
    versions = tmp_path / "datasets/events"
    assert {path.name for path in versions.iterdir() if path.is_dir()} >= {
        "1.0.0",
        "1.0.1",
    }
    assert (tmp_path / "metrics/events.prom").exists()
