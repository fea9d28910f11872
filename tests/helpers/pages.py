"""The project's pages: their code blocks, and how each kind of block is run."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from interop_tools import run_in_interop

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
_FRAMEWORKS = re.compile(
    r"^(?:from|import) (torch|torchdata|datasets|grain|tfrecord)\b", re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
      language: what stands behind the three backquotes.
      text: its lines.
    """

    language: str
    text: str

    @property
    def uses_tensorflow(self) -> bool:
        return "import tensorflow" in self.text

    @property
    def uses_framework(self) -> bool:
        """Whether it needs what only the environment of test_frameworks.py has."""
        return self.language == "python" and bool(_FRAMEWORKS.search(self.text))


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """Returns the code blocks of a page, in order."""
    found = re.findall(
        r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return [Block(language, text) for language, text in found]


def commands(block: Block) -> list[list[str]]:
    """Returns the commands of a block of shell, as words; comments are left out."""
    lines = block.text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line for line in words if line]


def run_python(block: Block, folder: Path, names: dict[str, object]) -> None:
    """Runs a block of Python: here, or where TensorFlow is; of frameworks only compiles.

    Args:
      block: what to run.
      folder: the current folder.
      names: variables of the page's earlier blocks, which this one adds to.
    """
    if block.uses_framework:  # run by tests/integration/test_frameworks.py
        compile(block.text, "framework", "exec")
    elif block.uses_tensorflow:
        check_printed(block, run_in_interop(folder, "-c", block.text))
    else:
        with redirect_stdout(StringIO()) as printed:
            exec(compile(block.text, "page", "exec"), names)
        check_printed(block, printed.getvalue())


def check_printed(block: Block, printed: str) -> None:
    """Checks what a page says that a block prints: comments behind calls of print."""
    shown = re.findall(r"^ *print\(.*\)  # (.+)$", block.text, re.MULTILINE)
    assert [line for line in shown if line not in printed.splitlines()] == [], printed


def run_shell(block: Block, run: object, others: Sequence[str]) -> None:
    """Runs the commands of a block that are recordmill's, or make folders.

    It fails at unknown ones.

    Args:
      block: of shell.
      run: recordmill's main function: words to exit status.
      others: first words of commands that other tests are about.
    """
    assert callable(run)
    for words in commands(block):
        if words[0] == "recordmill":
            assert run(words[1:]) == 0, words
        elif words[0] in ("mkdir", "cp"):  # to show what an input looks like
            subprocess.run(words, check=True)
        else:
            assert words[0] in others, words
