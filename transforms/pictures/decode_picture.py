"""Decodes a picture for what is made of it: smaller if that is enough, and turned.

A JPEG that is to become much smaller is decoded at a half, a quarter or an eighth of its
size, which its decoder does in less time; never below twice the size that is asked for,
so that the filter still has pixels to choose from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordmill.schemas.text import human_bytes
from recordmill.transforms.pictures.eight_bits import GRAY_16, in_eight_bits
from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.pictures.orientation import (
    Box,
    swaps_sides,
    turned,
    turned_back,
    turned_box,
)
from recordmill.transforms.pictures.pixel_rules import MAX_PIXEL_BYTES, PixelRules
from recordmill.transforms.pictures.reencode import has_deep_colours

if TYPE_CHECKING:
    from PIL import Image

_DRAFT = 2  # a JPEG is decoded at this many times the size asked for, or more
_DEEP_PNG_AT = 24  # offset of the bits a channel in a PNG
# Of more bits than anybody says what black and white are, or of another meaning.
_NO_PICTURES = frozenset({"I", "F", "LAB", "HSV"})


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded picture.

    Attributes:
      picture: its pixels.
      box: where the whole picture lies in them: a JPEG whose sides are not multiples of
        eight is decoded to a little more.
      width, height: of the picture, before it was decoded at a smaller size.
    """

    picture: Image.Image
    box: Box
    width: int
    height: int


def is_deep(picture: Image.Image, data: bytes, header: ImageHeader) -> bool:
    """Tells whether a picture has 16 bits a channel."""
    if picture.mode in GRAY_16:
        return True
    if header.format == "png":
        return data[_DEEP_PNG_AT] == 16
    return header.format == "tiff" and has_deep_colours(picture)


def decode_picture(
    picture: Image.Image, header: ImageHeader, rules: PixelRules, orientation: int
) -> Decoded:
    """Decodes a picture, in 8 bits a channel, and turns it if the rules say so."""
    width, height = picture.size
    box: Box | None = None
    if header.format == "jpeg" and rules.resize is not None:
        swapped = rules.turns and swaps_sides(orientation)
        sides = (height, width) if swapped else (width, height)
        wanted = rules.resize.size_of(*sides)
        if swapped:
            wanted = wanted[1], wanted[0]
        drafted = picture.draft(None, (_DRAFT * wanted[0], _DRAFT * wanted[1]))
        box = drafted[1] if drafted else None
    check_pixel_bytes(picture.size, len(picture.getbands()), f"{header.kind} has")
    if picture.mode in _NO_PICTURES:
        raise ImageHeaderError(
            f"{header.kind} has pixels of the kind {picture.mode} (expected 8 or 16 "
            "bits a channel, gray or colours)"
        )
    picture.load()
    pixels = in_eight_bits(picture)
    box = box or (0, 0, *pixels.size)
    if header.format == "tiff":  # Pillow has turned it
        pixels = pixels if rules.turns else turned_back(pixels, orientation)
        box = (0, 0, *pixels.size)
        width, height = pixels.size
    elif rules.turns:
        box = turned_box(box, pixels.size, orientation)
        pixels = turned(pixels, orientation)
        if swaps_sides(orientation):
            width, height = height, width
    return Decoded(pixels, box, width, height)


def check_pixel_bytes(size: tuple[int, int], channels: int, what: str) -> None:
    """Checks that a picture of this width and height is not too large to be held.

    Raises:
      ImageHeaderError: it is.
    """
    width, height = size
    if width * height * channels > MAX_PIXEL_BYTES:
        raise ImageHeaderError(
            f"{what} {height:,} x {width:,} pixels, "
            f"{human_bytes(width * height * channels)} of them (expected "
            f"{human_bytes(MAX_PIXEL_BYTES)} or less)"
        )
