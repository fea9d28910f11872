"""Reads cases.txt: sections of lines, whose fields stand between tabs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def section(name: str, fields: int) -> Iterator[tuple[Any, ...]]:
    """Yields the lines of a section; "-" is an empty line, a missing field is ""."""
    lines = (Path(__file__).parent / "cases.txt").read_text().split("\n")
    start = lines.index(f"== {name}") + 1
    for line in lines[start:]:
        if line.startswith("== ") or not line:
            return
        parts = [] if line == "-" else [_value(part) for part in line.split("\t")]
        yield (*parts, *[""] * (fields - len(parts)))


def _value(text: str) -> Any:
    """Returns a field: text with escapes, "bytes:" or "eval:" with an expression."""
    if text.startswith("eval:"):
        return eval(text[5:])
    if text.startswith("bytes:"):
        return text[6:].encode().decode("unicode_escape").encode("latin-1")
    return text.encode().decode("unicode_escape")
