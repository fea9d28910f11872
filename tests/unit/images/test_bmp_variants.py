"""BMPs that TensorFlow does not decode, or decodes to another image."""

from __future__ import annotations

import pytest
from pixel_zoo import IMAGES, bmp

from recordmill.transforms.images.decode import check_image

GRAY = b"".join(bytes((shade, shade, shade, 0)) for shade in range(256))


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (IMAGES["1-bit.bmp"][0], "bmp with 1 bits per pixel"),
        (IMAGES["16-bit.bmp"][0], "bmp with 16 bits per pixel"),
        (IMAGES["os2-info.bmp"][0], "bmp of OS/2"),
        (IMAGES["colour-palette.bmp"][0], "bmp with a palette"),
        (IMAGES["rgb.bmp"][0] + b"x", "bmp with more bytes than its pixels"),
        (bmp(8, palette=GRAY), "bmp"),
        (IMAGES["gray.bmp"][0], "bmp"),
        (IMAGES["v5-info.bmp"][0], "bmp"),
        (IMAGES["32-bit-no-alpha.bmp"][0], "bmp"),
        (IMAGES["rgb.png"][0], "png"),
    ],
)
def test_kind(image: bytes, kind: str) -> None:
    assert check_image(image).kind == kind


def test_run_lengths() -> None:
    whole = bytearray(IMAGES["gray.bmp"][0])
    whole[30:34] = (1).to_bytes(4, "little")
    assert check_image(bytes(whole)).kind == "bmp with compression 1"
