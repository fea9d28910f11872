"""Writes what the code says to people as pages, for `make words`.

    python tests/helpers/message_texts.py FOLDER

messages.md has the texts of errors, warnings, results and options, docstrings.md those of
the public names. A value in a text is shown as `value`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import recordmill

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "transforms", "beam_jobs", "src")
# Three words and more, one after the other, are read by people.
_SENTENCE = re.compile(r"[A-Za-z]{2,} [A-Za-z'`]+ [A-Za-z`'(]")
_PROGRAM = re.compile(r"^(?:from|import) \w+|^[ #]", re.MULTILINE)
_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def text_of(node: ast.AST) -> str:
    """Returns the text of a string, or of an f-string with `value` in place of values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "`value`" for part in node.values)
    constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if constant else ""  # type: ignore[attr-defined]


def messages(node: ast.AST) -> Iterator[str]:
    """Yields the texts of a module that are sentences, but for docstrings."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if _SENTENCE.search(text := text_of(node)) and not _PROGRAM.search(text):
        yield text
    for below in () if text else ast.iter_child_nodes(node):
        yield from messages(below)


def all_messages() -> str:
    texts: dict[str, None] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            found = list(messages(ast.parse(path.read_text())))
            texts |= dict.fromkeys((f"## `{path.relative_to(ROOT)}`", *found))
    return "\n\n".join(texts) + "\n"


def docstrings() -> str:
    """Returns the docstrings of the public names and of their methods, a section each."""
    parts = []
    for name, module in recordmill._MODULES.items():
        path = ROOT / f"{module.removeprefix('recordmill.').replace('.', '/')}.py"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, _DOCUMENTED) and node.name == name:
                public = (
                    below
                    for below in node.body
                    if isinstance(below, _DOCUMENTED) and below.name[0] != "_"
                )
                found = (ast.get_docstring(each) or "" for each in (node, *public))
                parts += [f"## {name}", *map(without_examples, found)]
    return "\n\n".join(parts) + "\n"


def without_examples(docstring: str) -> str:
    lines = (line.strip() for line in docstring.splitlines())
    return "\n".join(line for line in lines if not line.startswith((">>>", "...")))


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "messages.md").write_text(all_messages())
    (folder / "docstrings.md").write_text(docstrings())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
