"""docs/architecture.md names the rooms as they are, and pages name files that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT, page_name

TOPS = "schemas|transforms|beam_jobs|tests|docs|examples|deploy"


def rooms() -> tuple[str, ...]:
    """Returns ROOMS of the test of imports."""
    tree = ast.parse((ROOT / "tests/unit/layout/test_imports.py").read_text())
    (found,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS"
    ]
    return tuple(ast.literal_eval(found))


def test_the_table_of_rooms_is_that_of_the_imports() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    _, _, table = text.partition("\n## Folders\n")
    table = table.split("| what it has |")[1].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)) == rooms()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(rf"`((?:{TOPS})/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name
