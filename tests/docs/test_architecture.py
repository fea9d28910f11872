"""docs/architecture.md names the rooms as they are, and pages name files that exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pages import PAGES, ROOT, page_name

sys.path.insert(0, str(ROOT / "tests/unit/layout"))
from test_imports import ROOMS

TOPS = "schemas|transforms|beam_jobs|tests|docs|examples|deploy"


def test_the_table_of_rooms_is_that_of_the_imports() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    table = text.split("| room | what it has |")[1].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)) == ROOMS


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(rf"`((?:{TOPS})/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name
