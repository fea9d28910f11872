"""Small images of every kind of large one, and PNG files of image files and arrays."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pixel_zoo import IMAGES

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind
from recordmill.transforms.images.header import ImageHeaderError
from recordmill.transforms.statistics import thumbnails
from recordmill.transforms.statistics.thumbnails import (
    NO_CLASS,
    SIDE,
    ContactSheet,
    Thumbnail,
    holds_images,
    png_of,
    thumbnail_of,
)


def feature(**facts: Any) -> FeatureSpec:
    return FeatureSpec("f", Kind.BYTES, **{"dtype": "uint8", **facts})


FILE = feature(shape=(None, None, None), content=Content.IMAGE)


def opened(thumbnail: Thumbnail) -> Image.Image:
    assert thumbnail.mime, thumbnail.problem
    return Image.open(io.BytesIO(thumbnail.data))


@pytest.mark.parametrize("name", IMAGES)
def test_every_kind_of_image(name: str) -> None:
    made = thumbnail_of(IMAGES[name][0], FILE)
    if made.mime:
        assert max(opened(made).size) <= SIDE
    else:
        assert made.problem


def test_large_ones_become_small_and_keep_their_sides() -> None:
    file = io.BytesIO()
    Image.new("RGB", (4000, 1000), (200, 10, 10)).save(file, "JPEG")
    made = thumbnail_of(file.getvalue(), FILE)
    assert opened(made).size == (SIDE, SIDE // 4)
    assert (made.width, made.height) == (4000, 1000)
    assert len(made.data) < 4000


def test_small_ones_keep_every_pixel() -> None:
    pixels = np.arange(32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3)
    spec = feature(shape=(32, 32, 3), content=Content.ARRAY)
    made = thumbnail_of(pixels.tobytes(), spec)
    assert made.mime == "image/png"
    assert np.array_equal(np.asarray(opened(made)), pixels)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_masks_of_few_numbers_can_be_seen(dtype: str) -> None:
    file = io.BytesIO()
    mask = np.arange(400, dtype=dtype).reshape(20, 20) // 200
    Image.fromarray(mask).save(file, "PNG")
    spec = feature(shape=(None, None, 1), content=Content.IMAGE)
    made = np.asarray(opened(thumbnail_of(file.getvalue(), spec)))
    assert np.array_equal(made, mask * 255)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pixels_of_any_channels(channels: int) -> None:
    spec = feature(shape=(200, 100, channels), content=Content.ARRAY)
    made = thumbnail_of(bytes(200 * 100 * channels), spec)
    assert opened(made).size == (SIDE // 2, SIDE)


def test_what_cannot_be_decoded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not an image" in thumbnail_of(b"hello", FILE).problem
    file = io.BytesIO()
    Image.new("L", (60, 60)).save(file, "PNG")
    monkeypatch.setattr(thumbnails, "MAX_PIXELS", 100)
    assert thumbnail_of(file.getvalue(), FILE).problem


def test_the_first_images_of_each_class() -> None:
    sheet = ContactSheet("image", "label", num_classes=3, max_images=6)
    taken = []

    def make(index: int) -> Thumbnail:
        taken.append(index)
        return Thumbnail("image/png", b"x")

    for _ in range(2):
        sheet.add([0, 0, 0, 2, None, 7], make)
    assert taken == [0, 1, 3, 3]
    rows = sheet.rows
    assert [(name, len(row)) for name, row in rows] == [(0, 2), (1, 0), (2, 2)]


def test_images_without_classes() -> None:
    sheet = ContactSheet("image", "", num_classes=0, max_images=5)
    for _ in range(4):
        sheet.add([NO_CLASS, NO_CLASS], lambda index: Thumbnail("image/png", b"x"))
    ((name, row),) = sheet.rows
    assert (name, len(row)) == (NO_CLASS, 5)


def encoded(pixels: np.ndarray[Any, Any], form: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, form)
    return file.getvalue()


@pytest.mark.parametrize(
    ("spec", "drawn"),
    [
        (FILE, True),
        (feature(shape=(32, 32, 3), content=Content.ARRAY), True),
        (feature(shape=(28, 28), content=Content.ARRAY), True),
        (feature(shape=(None, 28, 1), content=Content.ARRAY), True),
        (feature(shape=(28, 28, 7), content=Content.ARRAY), False),
        (feature(shape=(28,), content=Content.ARRAY), False),
        (feature(shape=(28, 28), content=Content.ARRAY, dtype="float32"), False),
        (feature(shape=()), False),
    ],
)
def test_what_can_be_drawn(spec: FeatureSpec, drawn: bool) -> None:
    assert holds_images(spec) == drawn


def png(value: bytes, spec: FeatureSpec) -> np.ndarray[Any, Any]:
    data, width, height = png_of(value, spec)
    pixels = np.asarray(Image.open(io.BytesIO(data)))
    assert pixels.shape[:2] == (height, width)
    return pixels


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (np.full((2, 2), 7, np.uint8), 7),
        (np.full((2, 2), 0x1234, np.uint16), 0x12),
        (np.full((2, 2, 4), (1, 2, 3, 255), np.uint8), (1, 2, 3, 255)),
        (np.full((2, 2, 4), (1, 2, 3, 0), np.uint8), (1, 2, 3, 0)),
    ],
)
def test_every_kind_of_pixels_becomes_8_bits(
    pixels: np.ndarray[Any, Any], expected: int | tuple[int, ...]
) -> None:
    assert (png(encoded(pixels), FILE) == expected).all()


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 3), (2, 3, 4)])
def test_arrays(shape: tuple[int, ...]) -> None:
    pixels = np.full(shape, 255, np.uint8)
    for sides in (shape, (None, *shape[1:])):
        spec = feature(shape=sides, content=Content.ARRAY)
        drawn = png(pixels.tobytes(), spec)
        assert drawn.shape == (shape[:2] if shape[2:] == (1,) else shape)
        assert (drawn == 255).all()


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ImageHeaderError):
        png_of(b"no image", FILE)
    with pytest.raises(ValueError, match="reshape"):
        png_of(b"12345", feature(shape=(2, 3), content=Content.ARRAY))
