"""Scales, crops and pads the pixels of a picture.

The filter is Pillow's bicubic one, which takes all pixels into account that a smaller
picture's pixel covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.transforms.pictures.decode_picture import Decoded, check_pixel_bytes
from recordmill.transforms.pictures.image_header import ImageHeaderError
from recordmill.transforms.pictures.orientation import Box
from recordmill.transforms.pictures.pixel_rules import PixelRules

if TYPE_CHECKING:
    from PIL import Image


def placed(pixels: Image.Image, decoded: Decoded, rules: PixelRules) -> Image.Image:
    """Returns a picture scaled, cropped and padded.

    What is cropped away is not scaled: the filter is asked for the part that stays.
    """
    width, height = decoded.width, decoded.height
    if rules.resize is not None:
        width, height = rules.resize.size_of(width, height)
    left, upper, kept_width, kept_height = 0, 0, width, height
    if rules.crop is not None:
        kept_height, kept_width = rules.crop
        if kept_height > height or kept_width > width:
            raise ImageHeaderError(
                f"has {height:,} x {width:,} pixels, fewer than are cropped (expected "
                f"{kept_height:,} x {kept_width:,} or more, because of `crop`); use "
                f"`resize=shorter={max(rules.crop)}`, or `pad` in place of `crop`"
            )
        left, upper = (width - kept_width) // 2, (height - kept_height) // 2
    check_pixel_bytes((kept_width, kept_height), len(pixels.getbands()), "would have")
    part = (left, upper, left + kept_width, upper + kept_height)
    if rules.resize is None:
        pixels = pixels.crop(part) if rules.crop is not None else pixels
    else:
        pixels = _scaled(pixels, decoded.box, (width, height), part)
    return pixels if rules.pad is None else _padded(pixels, rules)


def _scaled(
    pixels: Image.Image,
    box: Box,
    size: tuple[int, int],
    part: tuple[int, int, int, int],
) -> Image.Image:
    """Returns a part of what a box of a picture is when it is scaled to a size."""
    from PIL.Image import Resampling

    across, down = (box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]
    source = (
        max(0.0, box[0] + part[0] * across),
        max(0.0, box[1] + part[1] * down),
        min(float(pixels.width), box[0] + part[2] * across),
        min(float(pixels.height), box[1] + part[3] * down),
    )
    kept = (part[2] - part[0], part[3] - part[1])
    return pixels.resize(kept, Resampling.BICUBIC, box=source)


def _padded(pixels: Image.Image, rules: PixelRules) -> Image.Image:
    from PIL import Image

    height, width = rules.pad or (0, 0)
    if pixels.height > height or pixels.width > width:
        raise ImageHeaderError(
            f"has {pixels.height:,} x {pixels.width:,} pixels, more than it is padded to "
            f"(expected {height:,} x {width:,} or fewer, because of `pad`); use "
            f"`resize=longer={min(height, width)}`, or `crop` in place of `pad`"
        )
    around = Image.new("RGB", (1, 1), rules.colour).convert(pixels.mode)
    made = around.resize((width, height))
    made.paste(pixels, ((width - pixels.width) // 2, (height - pixels.height) // 2))
    return made
