"""The examples in docstrings give what stands below them."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("schemas", "transforms", "beam_jobs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "    >>> " in path.read_text()
]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings(module: str) -> None:
    outcome = doctest.testmod(import_module(f"recordmill.{module}"))
    assert outcome.attempted > 0
    assert outcome.failed == 0
