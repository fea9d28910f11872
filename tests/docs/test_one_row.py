"""docs/one-row.md names functions that a run enters, in the order of their calls."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from entered_functions import entered_functions
from pages import ROOT
from PIL import Image

PAGE = (ROOT / "docs/one-row.md").read_text()
# More than one input range each: one range alone has no graph.
CSV_BYTES = 17 << 20
IMAGES = 4100


def tables() -> dict[str, list[str]]:
    """Returns the functions below each heading."""
    return {
        heading: re.findall(r"^\| `([\w/.]+:[\w.]+)` \|", part, re.MULTILINE)
        for heading, part in re.findall(
            r"^## (\w+):(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL
        )
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    numbers = ",".join(f"{number}.25" for number in range(40))
    row = f"dog,{numbers}\n"
    names = ",".join(["name", *(f"c{number}" for number in range(40))])
    path.write_text(f"{names}\n" + row * (CSV_BYTES // len(row)))
    return path


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    image = io.BytesIO()
    Image.new("RGB", (1, 1)).save(image, "PNG")
    for label in ("cat", "dog"):
        (folder / label).mkdir()
        for number in range(IMAGES // 2):
            (folder / label / f"{number}.png").write_bytes(image.getvalue())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["scratch", "engine", "reference"])
def test_a_run_enters_each_function(
    exchange: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    source = "images" if exchange == "reference" else "csv"
    given = request.getfixturevalue("images" if source == "images" else "table")
    job = ["convert", source, str(given), str(tmp_path / "out"), "--shards", "2"]
    entered = entered_functions([*job, "--exchange", exchange], tmp_path)
    named = tables()[exchange.capitalize()]
    assert len(named) > 15
    assert [name for name in named if name not in entered] == []


def test_every_exchange_has_its_table() -> None:
    assert sorted(tables()) == ["Engine", "Reference", "Scratch"]
