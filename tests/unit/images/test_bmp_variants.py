"""BMPs that TensorFlow does not decode, or decodes to another picture."""

from __future__ import annotations

import pytest
from pixel_zoo import PICTURES, bmp

from recordmill.transforms.images.decode import check_image

GRAY = b"".join(bytes((shade, shade, shade, 0)) for shade in range(256))


@pytest.mark.parametrize(
    ("picture", "kind"),
    [
        (PICTURES["1-bit.bmp"][0], "bmp with 1 bits per pixel"),
        (PICTURES["16-bit.bmp"][0], "bmp with 16 bits per pixel"),
        (PICTURES["os2-info.bmp"][0], "bmp of OS/2"),
        (PICTURES["colour-palette.bmp"][0], "bmp with a palette"),
        (PICTURES["rgb.bmp"][0] + b"x", "bmp with more bytes than its pixels"),
        (bmp(8, palette=GRAY), "bmp"),
        (PICTURES["gray.bmp"][0], "bmp"),
        (PICTURES["v5-info.bmp"][0], "bmp"),
        (PICTURES["32-bit-no-alpha.bmp"][0], "bmp"),
        (PICTURES["rgb.png"][0], "png"),
    ],
)
def test_kind(picture: bytes, kind: str) -> None:
    assert check_image(picture).kind == kind


def test_run_lengths() -> None:
    whole = bytearray(PICTURES["gray.bmp"][0])
    whole[30:34] = (1).to_bytes(4, "little")
    assert check_image(bytes(whole)).kind == "bmp with compression 1"
