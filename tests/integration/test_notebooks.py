"""Every cell of the notebooks runs, in order, as Jupyter would run them in one folder.

Cells of PyTorch and TensorFlow run where these are, as one program for each framework.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from interop_tools import run_in_interop
from pages import NOTEBOOKS, ROOT, Block, check_printed
from reader_tools import run_reader
from transcripts import Command, run_command

_FRAMEWORKS = {"pytorch": run_reader, "tensorflow": run_in_interop}
# The commands of the environment that runs the tests.
_PATH = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def cells(notebook: Path) -> list[dict[str, Any]]:
    return [
        cell
        for cell in json.loads(notebook.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


def run_cell(text: str, folder: Path, names: dict[str, object]) -> str:
    """Runs a cell as IPython does, and returns what it printed."""
    first, _, rest = text.partition("\n")
    if first == "%%bash":
        return "\n".join(run_command(Command(f"set -e\n{rest}", ()), folder, _PATH))
    if first.startswith("%%writefile "):
        (folder / first.split()[1]).write_text(f"{rest}\n")
        return ""
    with redirect_stdout(StringIO()) as printed:
        exec(compile(text, "cell", "exec"), names)
    check_printed(Block("python", text), printed.getvalue())
    return printed.getvalue()


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder beside the samples, as docs/ is in a checkout."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(folder)
    return folder


def run_notebook(notebook: Path, folder: Path) -> dict[str, str]:
    """Returns what the cells printed, by framework; "" are those without one."""
    programs: dict[str, list[str]] = {}
    printed = {"": ""}
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in cells(notebook):
        text = "".join(cell["source"])
        if tags := cell["metadata"].get("tags"):
            programs.setdefault(tags[0], []).append(text)
        else:
            printed[""] += run_cell(text, folder, names) + "\n"
    for name, texts in programs.items():
        printed[name] = _FRAMEWORKS[name](folder, "-c", "\n".join(texts))
    return printed


def test_a_model_is_trained_on_images_in_both_frameworks(docs: Path) -> None:
    printed = run_notebook(ROOT / "docs/train-on-images.ipynb", docs)
    assert "240 records" in printed[""]
    for name in ("pytorch", "tensorflow"):
        (accuracy,) = re.findall(r"^accuracy ([\d.]+)$", printed[name], re.MULTILINE)
        assert float(accuracy) >= 0.8, name


def test_a_table_is_converted_each_night(docs: Path) -> None:
    printed = run_notebook(ROOT / "docs/nightly-table.ipynb", docs)[""]
    assert re.findall(r"^orders (\S+): ([\d,]+) records", printed, re.MULTILINE) == [
        ("1.0.0", "500"),
        ("1.0.1", "1,000"),
        ("1.0.2", "1,500"),
    ]
    assert "status 65" in printed
    assert "2026-03-03.csv line 502" in printed
    assert "status 1: they differ" in printed
    assert (docs / "out/orders.prom").is_file()


def test_every_notebook_is_run_here() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["nightly-table", "train-on-images"]
