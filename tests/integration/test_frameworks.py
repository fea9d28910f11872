"""The pages' code for PyTorch, Hugging Face, Grain and tfrecord runs; so does the quickstart.

tests/docs runs all other code of the pages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from interop_tools import interop_python
from pages import PAGES, ROOT, blocks, check_printed, page_name, run_shell
from PIL import Image
from reader_tools import TORCH_PACKAGES, reader_environment, run_reader
from store_servers import tool
from transcripts import Command, matches, run_command, transcript

from recordmill.beam_jobs.cli.main import run

WITH_FRAMEWORKS = [
    page for page in PAGES if any(b.uses_framework for b in blocks(page))
]
QUICKSTART = ROOT / "docs" / "quickstart.md"
TRANSCRIPTS = {
    name: transcript(block.text)
    for name, block in zip(
        ("tensorflow", "tfds", "torch"),
        (block for block in blocks(QUICKSTART) if block.language == "console"),
        strict=True,
    )
}


def test_pages_show_code_of_all_frameworks() -> None:
    shown = "".join(block.text for page in WITH_FRAMEWORKS for block in blocks(page))
    for name in ("torch", "datasets", "grain", "tfrecord"):
        assert f"import {name}" in shown or f"from {name}" in shown


@pytest.mark.parametrize("page", WITH_FRAMEWORKS, ids=page_name)
def test_code_of_frameworks_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    """Commands of the page make the datasets; each block is a program of its own."""
    shutil.copytree(ROOT / "tests/samples", tmp_path / "tests/samples")
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.language == "sh":
            run_shell(block, run, ("make", "python", "."))
    for block in blocks(page):
        if block.uses_framework:
            printed = run_reader(tmp_path, "-c", block.text)
            assert printed != "", block.text
            check_printed(block, printed)


def test_train_pytorch(tmp_path: Path) -> None:
    """The one example that tests/docs/test_examples.py cannot run."""
    schema, table = ROOT / "examples/iris.yaml", ROOT / "tests/samples/iris/iris.csv"
    out = tmp_path / "flowers"
    assert run(["convert", "csv", str(table), str(out), "--schema", str(schema)]) == 0
    printed = run_reader(tmp_path, ROOT / "examples/train_pytorch.py", out)
    assert float(printed.removeprefix("accuracy ")) > 0.9


def test_readers_need_neither_beam_nor_tensorflow(tmp_path: Path) -> None:
    """Nor do they take a rank that there is not."""
    code = """
import sys
import recordmill
recordmill.open_dataset, recordmill.read_rows, recordmill.TorchRows
print(sorted({name.partition(".")[0] for name in sys.modules} & {
    "apache_beam", "tensorflow", "yaml", "click", "rich"}))
try:
    recordmill.TorchRows([], rank=2, num_ranks=2)
except Exception as error:
    print(error)
"""
    told = "rank=2 of num_ranks=2: expected a rank from 0 to num_ranks - 1"
    assert run_reader(tmp_path, "-c", code) == f"[]\n{told}\n"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing in it but a folder of images."""
    folder = tmp_path_factory.mktemp("fresh")
    draw = np.random.default_rng(1)
    for name in ("cat", "dog"):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(10):
            pixels = draw.integers(0, 256, (64, 64, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"images/{name}/{number}.jpg")
    return folder


def borrow_environment(clone: Path) -> None:
    """Makes the environment of a clone of what lies in ours, as nothing would differ."""
    venv = clone / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    add_path(venv, clone / "src", Path(sysconfig.get_path("purelib")))
    script = venv / "bin" / "recordmill"
    script.write_text(
        f"#!{venv}/bin/python\nimport sys\n"
        "from recordmill.beam_jobs.cli.main import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    (venv / ".run").touch()


def add_path(venv: Path, *folders: Path) -> None:
    (packages,) = venv.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("".join(f"{f}\n" for f in folders))


def tensorflow_python(folder: Path) -> dict[str, str]:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
    return {"PATH": f"{interop_python().parent}:/usr/bin:/bin", **quiet}


@cache
def torch_python(folder: Path) -> dict[str, str]:
    """An environment with PyTorch in which pip can install; it asks for no packages."""
    venv = folder / "with-torch"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (readers,) = Path(tool("readers/bin/python")).parents[1].glob("lib/*/site-packages")
    add_path(venv, readers, TORCH_PACKAGES)
    return {
        "LD_LIBRARY_PATH": reader_environment(folder)["LD_LIBRARY_PATH"],
        "PATH": f"{venv}/bin:/usr/bin:/bin",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # which pip takes for: no isolation
        "PIP_NO_INDEX": "1",
    }


PYTHONS: dict[str, Callable[[Path], dict[str, str]]] = {
    "tensorflow": tensorflow_python,
    "tfds": tensorflow_python,
    "torch": torch_python,
}


@pytest.fixture(scope="module")
def printed(fresh: Path) -> Callable[[Command, str], list[str]]:
    """Runs commands of the transcripts; those that all begin with run once."""

    @cache
    def once(text: str, framework: str) -> list[str]:
        environment = PYTHONS[framework](fresh) if framework else {}
        command = Command(text, ())
        lines = run_command(command, fresh, environment | {"RECORDMILL": str(ROOT)})
        if text.startswith("git clone"):
            borrow_environment(fresh / "recordmill")
        return lines

    def of(command: Command, framework: str) -> list[str]:
        ours = command.text.startswith("python")
        return once(command.text, framework if ours else "")

    return of


@pytest.mark.parametrize("framework", PYTHONS)
def test_quickstart(
    printed: Callable[[Command, str], list[str]], framework: str
) -> None:
    commands = TRANSCRIPTS[framework]
    assert len(commands) <= 5
    for command in commands:
        lines = printed(command, framework)
        assert matches(lines, command.shown), f"$ {command.text}\n" + "\n".join(lines)


def test_the_first_commands_of_the_readme(
    printed: Callable[[Command, str], list[str]], fresh: Path
) -> None:
    """In a clone, after `make demo`, which the quickstart runs."""
    for command in TRANSCRIPTS["torch"][:2]:
        printed(command, "")
    first = next(
        block for block in blocks(ROOT / "README.md") if block.language == "sh"
    )
    demo, *rest = first.text.splitlines()
    assert demo.split()[:2] == ["make", "demo"]
    lines = run_command(Command("\n".join(rest), ()), fresh / "recordmill", {})
    assert [line for line in lines if line.startswith("photos 1.0.0: 10 records")]
