"""Images that are cut or damaged are rejects, however closely they are checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from job_tools import SAMPLES, convert, recordmill
from PIL import Image
from pixel_zoo import IMAGES, png_chunk

from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import CheckLevel, ImageHeaderError

COUNTS = {"splits by folder", "classes", "images"}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(SAMPLES / "images", tmp_path / "in"))
    whole = next(folder.rglob("*.jpg"))
    (whole.parent / "cut.jpg").write_bytes(whole.read_bytes()[:-500])
    return folder


def test_an_image_that_is_cut_is_rejected(images: Path, tmp_path: Path) -> None:
    ran = recordmill("convert", "images", images, tmp_path / "out")
    assert ran.status == 65
    assert "1 of 11 rows" in ran.err
    ran = convert("images", images, tmp_path / "out", "--max-rejects", 1)
    found = json.loads((tmp_path / "out" / "run.json").read_text())["understood"]
    told = {name: value for name, value in found["facts"].items() if name in COUNTS}
    assert told
    for name, value in told.items():  # the dataset has one less
        assert value.endswith(" in the input")
        assert f"  {name}: {value}\n" in ran.err
    ran = recordmill("rejects", tmp_path / "out")
    assert "JPEG is cut short: no end-of-image marker (FF D9)" in ran.out
    assert recordmill("verify", tmp_path / "out", "--deep").status == 0


def test_the_plan_tells_counts_of_the_input(images: Path, tmp_path: Path) -> None:
    cut = next(images.rglob("cut.jpg"))
    command = ("convert", "images", images, tmp_path / "out", "--plan", "--json")

    def classes() -> str:
        return json.loads(recordmill(*command).out)["understood"]["facts"]["classes"]

    cut.write_bytes(b"")
    assert classes().endswith(") in the input")
    cut.unlink()
    assert classes().endswith(")")


LEVELS: list[tuple[CheckLevel, bytes, str]] = [
    ("header", b"", ""),
    ("structure", b"cut", "PNG is cut short"),
    ("decode", b"cut", "PNG is cut short"),
    ("decode", b"pixels", "png cannot be decoded"),
]


@pytest.mark.parametrize(("level", "what", "message"), LEVELS)
def test_levels(level: CheckLevel, what: bytes, message: str) -> None:
    data, (_, height, width, _) = IMAGES["rgb.png"]
    if what == b"cut" or level == "header":
        data = data[:-10]
    if what == b"pixels":
        data = with_other_pixels(data)
    if not message:
        found = check_image(data, level=level)
        assert (found.height, found.width) == (height, width)
        return
    with pytest.raises(ImageHeaderError, match=message):
        check_image(data, level=level)


def with_other_pixels(data: bytes) -> bytes:
    """The PNG with an IDAT of zeros, whose CRC is right."""
    start = data.index(b"IDAT") - 4
    size = int.from_bytes(data[start : start + 4], "big")
    return data[:start] + png_chunk(b"IDAT", bytes(size)) + data[start + 12 + size :]


def test_max_pixels() -> None:
    data, _ = IMAGES["rgb.png"]
    with pytest.raises(ImageHeaderError, match=r"png of 5 x 7 pixels \(expected 34 "):
        check_image(data, max_pixels=34)


def test_only_our_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify --deep` takes what convert took, however large for Pillow."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    data, _ = IMAGES["rgb.png"]
    assert check_image(data, level="decode").width == 7
