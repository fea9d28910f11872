"""Decodes a picture and writes it as PNG, the same bytes wherever that is done.

Pillow decodes, `write_png` writes. Of several frames the first is taken; the picture is
not turned as its EXIF data say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recordmill.schemas.text import human_bytes
from recordmill.transforms.pictures.eight_bits import GRAY_16
from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.pictures.open_picture import open_picture
from recordmill.transforms.pictures.orientation import (
    UPRIGHT,
    orientation_of,
    turned_back,
)
from recordmill.transforms.pictures.write_png import Palette, Pixels, write_png

if TYPE_CHECKING:
    from PIL import Image

# As Pillow's own limit for pictures of three channels. One worker needs some three times
# as much.
MAX_REENCODED_BYTES = 256 << 20

FIRST_FRAME = "its first frame"
NARROWED = "16 bits a channel made 8"

# What becomes of Pillow's modes; others are not pictures of 8 or 16 bits.
_KEPT = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_CONVERTED = {
    "1": "L",
    "CMYK": "RGB",
    "YCbCr": "RGB",
    "RGBX": "RGB",
    "La": "LA",
    "PA": "RGBA",
    "RGBa": "RGBA",
}
_WITH_ALPHA = {"1": "LA", "L": "LA", "RGB": "RGBA"}
_BITS = 258  # a tag of TIFF


@dataclass(frozen=True, slots=True)
class Reencoded:
    """A picture as PNG.

    Attributes:
      data: the PNG.
      losses: what of the picture is not in it: FIRST_FRAME, NARROWED.
    """

    data: bytes
    losses: tuple[str, ...]


def reencode(data: bytes, header: ImageHeader, max_pixels: int) -> Reencoded:
    """Returns the first frame of a picture as PNG.

    Args:
      data: the whole file.
      header: its header.
      max_pixels: largest height x width; checked before anything is decoded.

    Raises:
      ImageHeaderError: it cannot be decoded, or PNG cannot hold it.
    """
    with open_picture(data, header, max_pixels) as picture:
        _check_size(picture, header)
        losses = _losses(picture, header)
        # Pillow turns a TIFF as it decodes it; others it does not turn.
        is_turned = header.format == "tiff"
        orientation = orientation_of(picture) if is_turned else UPRIGHT
        picture.load()
        return Reencoded(_write(turned_back(picture, orientation), header), losses)


def _check_size(picture: Image.Image, header: ImageHeader) -> None:
    width, height = picture.size
    channels = len(picture.getbands()) * (2 if picture.mode.startswith("I;16") else 1)
    if width * height * channels > MAX_REENCODED_BYTES:
        raise ImageHeaderError(
            f"{header.kind} of {height:,} x {width:,} pixels has "
            f"{human_bytes(width * height * channels)} of them, too many to re-encode "
            f"(expected {human_bytes(MAX_REENCODED_BYTES)} or less, because of "
            "`undecodable=reencode`)"
        )


def _losses(picture: Image.Image, header: ImageHeader) -> tuple[str, ...]:
    losses = []
    if getattr(picture, "is_animated", False):
        losses.append(FIRST_FRAME)
    if header.format == "tiff" and has_deep_colours(picture):
        losses.append(NARROWED)
    return tuple(losses)


def has_deep_colours(picture: Image.Image) -> bool:
    """Tells whether a TIFF has 16 bits a channel of which Pillow gives 8."""
    if picture.mode in GRAY_16 or picture.mode not in {**_KEPT, **_CONVERTED}:
        return False
    bits = picture.tag_v2.get(_BITS, (1,))  # type: ignore[attr-defined]
    return bool(max(bits) == 16)


def _write(picture: Image.Image, header: ImageHeader) -> bytes:
    palette = None
    mode = picture.mode
    if mode == "P":
        palette = _palette(picture)
        channels, sample_bytes = 1, 1
    elif mode in GRAY_16:
        channels, sample_bytes = 1, 2
    else:
        if "transparency" in picture.info and mode in _WITH_ALPHA:
            mode = _WITH_ALPHA[mode]
        mode = _CONVERTED.get(mode, mode)
        if mode not in _KEPT:
            raise ImageHeaderError(
                f"{header.kind} has pixels of the kind {mode} (expected 8 or 16 bits a "
                "channel, which PNG can hold)"
            )
        channels, sample_bytes = _KEPT[mode], 1

    def rows(start: int, stop: int) -> Pixels:
        part = picture.crop((0, start, picture.width, stop))
        found: Pixels = np.asarray(part if palette else _in_mode(part, mode))
        return found

    return write_png(
        picture.height,
        picture.width,
        channels,
        rows,
        sample_bytes=sample_bytes,
        palette=palette,
    )


def _in_mode(picture: Image.Image, mode: str) -> Image.Image:
    return picture if picture.mode == mode else picture.convert(mode)


def _palette(picture: Image.Image) -> Palette:
    """Returns the colours of a palette, up to the highest one that a pixel has."""
    highest = picture.getextrema()[1]
    num_colours = 1 + int(highest)  # type: ignore[arg-type]
    colours = bytes(picture.getpalette("RGB") or ())[: 3 * num_colours]
    transparent = picture.info.get("transparency", b"")
    if isinstance(transparent, int):
        transparent = b"\xff" * transparent + b"\0"
    return Palette(colours.ljust(3 * num_colours, b"\0"), transparent[:num_colours])
