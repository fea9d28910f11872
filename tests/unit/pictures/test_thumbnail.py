"""Small pictures of picture files and of arrays."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind
from recordmill.transforms.pictures.image_header import ImageHeaderError
from recordmill.transforms.pictures.thumbnail import holds_pictures, thumbnail_of


def feature(**facts: Any) -> FeatureSpec:
    return FeatureSpec("f", Kind.BYTES, **{"dtype": "uint8", **facts})


FILE = feature(shape=(None, None, None), content=Content.PICTURE)


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
    assert holds_pictures(spec) == drawn


@pytest.mark.parametrize("form", ["PNG", "BMP", "WEBP"])
def test_a_picture_is_shrunk_and_never_enlarged(form: str) -> None:
    pixels = np.full((60, 20, 3), (10, 20, 30), np.uint8)
    data = encoded(pixels, form)
    small = thumbnail_of(data, FILE, 30, 30)
    assert small.shape == (30, 10, 3)
    assert np.abs(small.astype(int) - (10, 20, 30)).max() <= 3
    assert thumbnail_of(data, FILE, 300, 300).shape == (60, 20, 3)


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (np.full((2, 2), 7, np.uint8), (7, 7, 7)),
        (np.full((2, 2), 0x1234, np.uint16), (0x12,) * 3),
        (np.full((2, 2, 4), (1, 2, 3, 255), np.uint8), (1, 2, 3)),
        (np.full((2, 2, 4), (1, 2, 3, 0), np.uint8), (128,) * 3),  # nothing but gray
    ],
)
def test_every_kind_of_pixels_becomes_colours(
    pixels: np.ndarray[Any, Any], expected: tuple[int, ...]
) -> None:
    assert (thumbnail_of(encoded(pixels), FILE, 9, 9) == expected).all()


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1), (2, 3, 3), (2, 3, 4)])
def test_arrays(shape: tuple[int, ...]) -> None:
    pixels = np.full(shape, 255, np.uint8)
    for sides in (shape, (None, *shape[1:])):
        spec = feature(shape=sides, content=Content.ARRAY)
        drawn = thumbnail_of(pixels.tobytes(), spec, 9, 9)
        assert drawn.shape == (2, 3, 3)
        assert (drawn == 255).all()


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ImageHeaderError):
        thumbnail_of(b"no picture", FILE, 9, 9)
    with pytest.raises(ValueError, match="reshape"):
        thumbnail_of(b"12345", feature(shape=(2, 3), content=Content.ARRAY), 9, 9)
