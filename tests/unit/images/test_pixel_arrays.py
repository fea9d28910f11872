"""Images become arrays of their pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from pixel_zoo import IMAGES

from recordmill.schemas.errors import OutputError
from recordmill.transforms.images.decode import pixels_of


@pytest.mark.parametrize(
    ("mode", "channels", "dtype"),
    [
        ("1", 1, "uint8"),
        ("L", 1, "uint8"),
        ("I;16", 1, "uint16"),
        ("LA", 2, "uint8"),
        ("P", 3, "uint8"),
        ("RGB", 3, "uint8"),
        ("RGBA", 4, "uint8"),
    ],
)
def test_channels(mode: str, channels: int, dtype: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (7, 5), (9, 9, 9)).convert("L").convert(mode).save(file, "PNG")
    pixels = pixels_of(file.getvalue())
    assert (pixels.shape, pixels.dtype) == ((5, 7, channels), dtype)


def test_two_images_in_one_jpeg_are_the_first() -> None:
    file = io.BytesIO()
    first, second = (Image.new("RGB", (7, 5), (shade, 0, 0)) for shade in (200, 10))
    first.save(file, "MPO", save_all=True, append_images=[second])
    assert pixels_of(file.getvalue())[0, 0, 0] > 150


def test_pixels_are_those_that_were_written() -> None:
    array = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    assert np.array_equal(pixels_of(file.getvalue()), array)


def test_a_damaged_image_is_told() -> None:
    data, _ = IMAGES["rgb.jpg"]
    with pytest.raises(OutputError, match=r"image of \d+ bytes: .*verify --deep"):
        pixels_of(data[: len(data) // 2])
