"""Small images of every kind of large one."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from pixel_zoo import IMAGES

from recordmill.transforms.statistics import thumbnails
from recordmill.transforms.statistics.thumbnails import (
    ALL,
    SIDE,
    ContactSheet,
    Thumbnail,
    thumbnail_of_file,
    thumbnail_of_pixels,
)


def opened(thumbnail: Thumbnail) -> Image.Image:
    assert thumbnail.mime, thumbnail.problem
    return Image.open(io.BytesIO(thumbnail.data))


@pytest.mark.parametrize("name", IMAGES)
def test_every_kind_of_image(name: str) -> None:
    made = thumbnail_of_file(IMAGES[name][0])
    if made.mime:
        assert max(opened(made).size) <= SIDE
    else:
        assert made.problem


def test_large_ones_become_small_and_keep_their_sides() -> None:
    file = io.BytesIO()
    Image.new("RGB", (4000, 1000), (200, 10, 10)).save(file, "JPEG")
    made = thumbnail_of_file(file.getvalue())
    assert opened(made).size == (SIDE, SIDE // 4)
    assert (made.width, made.height) == (4000, 1000)
    assert len(made.data) < 4000


def test_small_ones_keep_every_pixel() -> None:
    pixels = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
    made = thumbnail_of_pixels(pixels)
    assert made.mime == "image/png"
    assert np.array_equal(np.asarray(opened(made)), pixels)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_of_any_channels(channels: int) -> None:
    made = thumbnail_of_pixels(np.zeros((200, 100, channels), np.uint8))
    assert opened(made).size == (SIDE // 2, SIDE)


def test_gray_of_16_bits_is_shown_as_everywhere() -> None:
    """By the higher 8 bits, as the terminal shows it and as `resize` makes it."""
    file = io.BytesIO()
    Image.fromarray(np.array([[0x100, 0xFFFF]], np.uint16)).save(file, "PNG")
    small = opened(thumbnail_of_file(file.getvalue()))
    assert np.asarray(small.convert("L")).tolist() == [[1, 255]]


def test_what_cannot_be_decoded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not an image" in thumbnail_of_file(b"hello").problem
    file = io.BytesIO()
    Image.new("L", (60, 60)).save(file, "PNG")
    monkeypatch.setattr(thumbnails, "MAX_PIXELS", 100)
    assert thumbnail_of_file(file.getvalue()).problem


def test_the_first_images_of_each_class() -> None:
    sheet = ContactSheet("image", "label", num_classes=3, max_images=6)
    taken = []

    def make(index: int) -> Thumbnail:
        taken.append(index)
        return Thumbnail("image/png", b"x")

    for _ in range(2):
        sheet.add(np.array([0, 0, 0, 2, -1, 7]), 6, make)
    assert taken == [0, 1, 3, 3]
    rows = sheet.rows
    assert [(name, len(row)) for name, row in rows] == [(0, 2), (1, 0), (2, 2)]


def test_images_without_classes() -> None:
    sheet = ContactSheet("image", "", num_classes=0, max_images=5)
    for _ in range(4):
        sheet.add(None, 2, lambda index: Thumbnail("image/png", b"x"))
    ((name, row),) = sheet.rows
    assert (name, len(row)) == (ALL, 5)
