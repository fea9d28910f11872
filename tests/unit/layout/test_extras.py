"""The extras of the package have names that pip, uv and Poetry all accept."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from recordmill.transforms.storage.cloud_access import access_of

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOLDERS = (
    "src",
    "beam_jobs",
    "schemas",
    "transforms",
    "docs",
    "examples",
    "deploy",
    "tests",
)
# '.[s3,gcs]' and 'recordmill[otel]' behind `pip install`; the extra `coco`
_NAMED = re.compile(
    r"['\"](?:\.|recordmill)\[([^]]+)\]|\bextra `([\w.-]+)`|`([\w.-]+)` extra\b"
)


def normal_form(extra: str) -> str:
    """Returns the name of an extra as in PEP 685."""
    return re.sub(r"[-_.]+", "-", extra).lower()


def texts() -> list[Path]:
    """Returns the pages, and the modules whose messages may name an extra."""
    endings = (".md", ".py", ".sh", ".ipynb", ".yaml", ".yml", ".toml")
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files += [ROOT / "Makefile", *ROOT.glob("*.md"), *ROOT.glob(".ci/*")]
    return [
        path
        for path in files
        if path.is_file() and (path.suffix in endings or path.parent.name == ".ci")
    ]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_has_its_normal_form(extra: str) -> None:
    """Pip 23.2 compares the name that was typed with the normal form in a wheel.

    So the extra array_record installed nothing, and array-record does.
    """
    assert extra == normal_form(extra)


def test_every_extra_that_a_text_names_exists() -> None:
    unknown = {
        f"{path.relative_to(ROOT)}: {extra}"
        for path in texts()
        for names in _NAMED.findall(path.read_text(errors="replace"))
        for extra in "".join(names).split(",")
        if extra not in EXTRAS and "{" not in extra  # a message that fills it in
    }
    assert unknown == set()


def test_every_store_names_an_extra_that_exists() -> None:
    schemes = ("s3", "gs", "az", "hf")
    assert {access_of(f"{scheme}://x").extra for scheme in schemes} <= set(EXTRAS)
