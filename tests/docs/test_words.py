"""The pages keep to the glossary, and the glossary to itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import PAGES, ROOT, page_name

GLOSSARY = ROOT / "docs/glossary.md"
# Words of the glossary's last column, and phrases that only this project used.
AVOIDED = re.compile(
    r"\b(conform\w*|misfits?|unattended|tid(?:y|ied|ies)|leftovers?|workplaces?"
    r"|shel(?:f|ves)|handed over|excerpts?|the sums for|hangs? on|never part)\b"
)


def rows() -> list[list[str]]:
    """Returns the cells of each concept: word, meaning, words that are not used."""
    lines = [line for line in GLOSSARY.read_text().splitlines() if line[:2] == "| "]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in cells if row[0] != "word"]


def test_a_word_has_one_line() -> None:
    words = [word for word, _, _ in rows()]
    assert sorted(words) == sorted(set(words))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_keeps_to_the_words(page: Path) -> None:
    if page == GLOSSARY:
        return
    text = page.read_text()
    assert [match[0] for match in AVOIDED.finditer(text)] == []
