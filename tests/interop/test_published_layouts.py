"""Published datasets in files of independent writers equal TFDS's own reading of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from interop_tools import ask
from job_tools import convert

SOURCES = {"cifar10": "cifar", "cifar100": "cifar", "mnist": "idx", "stl10": "binary"}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    ask("published_layouts.py", "write", folder)
    return folder


@pytest.mark.parametrize("layout", SOURCES)
def test_a_published_layout_is_read_as_tfds_does(
    published: Path, tmp_path: Path, layout: str
) -> None:
    output = tmp_path / layout
    convert(SOURCES[layout], published / layout, output, "--no-shuffle")
    (found,) = ask("published_layouts.py", "read", output)
    (expected,) = ask("published_layouts.py", "expect", layout, published / layout)
    assert found == expected
    assert sum(map(len, expected["rows"].values())) > 10
