"""PNG files of image files and of arrays."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind
from recordmill.transforms.images.header import ImageHeaderError
from recordmill.transforms.statistics.thumbnails import holds_images, png_of


def feature(**facts: Any) -> FeatureSpec:
    return FeatureSpec("f", Kind.BYTES, **{"dtype": "uint8", **facts})


FILE = feature(shape=(None, None, None), content=Content.IMAGE)


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
