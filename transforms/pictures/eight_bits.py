"""Converts decoded pictures to 8 bits a channel: gray or colours, each with alpha or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

GRAY_16 = frozenset({"I;16", "I;16L", "I;16B"})  # Pillow's modes of 16 bits of gray

_CONVERTED = {
    "1": "L",
    "P": "RGB",
    "CMYK": "RGB",
    "YCbCr": "RGB",
    "RGBX": "RGB",
    "LAB": "RGB",
    "HSV": "RGB",
    "La": "LA",
    "PA": "RGBA",
    "RGBa": "RGBA",
}


def in_eight_bits(picture: Image.Image) -> Image.Image:
    """Returns a picture in one of the modes L, LA, RGB and RGBA.

    A palette becomes its colours; four inks become red, green and blue; one colour that
    is declared transparent becomes alpha. Of 16 bits of gray the higher 8 are taken. Gray
    of 32 bits or of decimals has no fixed white: it is stretched to what is in it, which
    is for showing it only.
    """
    from PIL import Image

    if picture.mode in GRAY_16:
        deep: npt.NDArray[Any] = np.asarray(picture)
        return Image.fromarray((deep >> 8).astype(np.uint8))
    if picture.mode[:1] in "IF":
        values: npt.NDArray[Any] = np.nan_to_num(np.asarray(picture, np.float64))
        low, high = values.min(), values.max()
        scaled = (values - low) * (255 / (high - low) if high > low else 0)
        return Image.fromarray(scaled.astype(np.uint8))
    mode = _CONVERTED.get(picture.mode, picture.mode)
    if picture.has_transparency_data:
        mode = "LA" if mode in ("L", "LA") else "RGBA"
    return picture if picture.mode == mode else picture.convert(mode)


def blended(picture: Image.Image, colour: tuple[int, int, int]) -> Image.Image:
    """Returns a picture without its alpha, in gray or colours, blended over one colour.

    Args:
      picture: in one of the modes that `in_eight_bits` returns.
      colour: red, green and blue of what lies behind it.
    """
    from PIL import Image

    if picture.mode not in ("LA", "RGBA"):
        return picture
    behind = Image.new("RGB", picture.size, colour)
    opaque = picture.convert("RGB")
    behind.paste(opaque, mask=picture.getchannel("A"))
    is_gray = picture.mode == "LA" and len(set(colour)) == 1
    return behind.convert("L") if is_gray else behind
