"""Says what is to become of the pixels of pictures: their size, channels and encoding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["own", "jpeg", "png", "webp", "raw"]
Colour = tuple[int, int, int]
Sides = tuple[int, int]  # height and width

MAX_SIDE = 65_535  # of a JPEG
# As Pillow's own limit for pictures of three channels: of what is decoded, and of what
# is made. One worker needs some three times as much.
MAX_PIXEL_BYTES = 256 << 20
QUALITY = 92
WEBP_QUALITY = 80

_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")
_SIDE = re.compile(r"(shorter|longer)=([1-9]\d{0,4})")
_QUALITY = re.compile(r"quality=([1-9]\d?|100)")
_HEX_COLOUR = re.compile(r"#([0-9a-fA-F]{2})([0-9a-fA-F]{2})([0-9a-fA-F]{2})")
_COLOURS: dict[str, Colour] = {
    "black": (0, 0, 0),
    "gray": (128, 128, 128),
    "white": (255, 255, 255),
}


@dataclass(frozen=True, slots=True)
class Resize:
    """The size that pictures are scaled to.

    Attributes:
      sides: height and width, whatever the picture's were; or None.
      shorter: length of the shorter side, the other one in proportion; or 0.
      longer: the same of the longer side.
    """

    sides: Sides | None = None
    shorter: int = 0
    longer: int = 0

    def size_of(self, width: int, height: int) -> tuple[int, int]:
        """Returns width and height of a picture of this size once it is scaled.

        A side in proportion is rounded, one half up, and at least 1.

        >>> Resize(shorter=224).size_of(500, 375)
        (299, 224)
        """
        if self.sides is not None:
            return self.sides[1], self.sides[0]
        side = self.shorter or self.longer
        whole = min(width, height) if self.shorter else max(width, height)

        def scaled(length: int) -> int:
            return max(1, (2 * length * side + whole) // (2 * whole))

        return scaled(width), scaled(height)


@dataclass(frozen=True, slots=True)
class PixelRules:
    """What is to become of the pixels of pictures, in this order.

    Attributes:
      rejects_frames: whether a picture of several frames is a reject.
      max_frames: how many frames of a picture are taken; a picture of more is a reject.
        0: only the first one is taken.
      turns: whether a picture is turned as its EXIF data say.
      resize: the size that it is scaled to, or None.
      crop: height and width of what is kept of its middle, or None.
      pad: height and width of what it is put into the middle of, or None.
      colour: red, green and blue of what is around it then.
      channels: 1 gray, 3 colours, 4 colours and alpha; None as the picture has.
      form: how it is encoded. own: JPEG as JPEG, all others as PNG; raw: not at all.
      quality: of JPEG or WebP.
      lossless: whether WebP keeps each pixel.
      makes_all: whether every picture is made anew; if not, only those that are turned.
    """

    rejects_frames: bool = False
    max_frames: int = 0
    turns: bool = False
    resize: Resize | None = None
    crop: Sides | None = None
    pad: Sides | None = None
    colour: Colour = (0, 0, 0)
    channels: int | None = None
    form: Form = "own"
    quality: int = QUALITY
    lossless: bool = False
    makes_all: bool = False

    @property
    def shape(self) -> tuple[int | None, int | None, int | None]:
        """Returns height, width and channels of what is made; None where they vary."""
        if not self.makes_all:
            return None, None, None
        sides = self.pad or self.crop or (self.resize.sides if self.resize else None)
        height, width = sides or (None, None)
        return height, width, self.channels

    def form_of(self, file_format: str) -> Form:
        """Returns how a picture of a format is encoded."""
        if self.form != "own":
            return self.form
        return "jpeg" if file_format == "jpeg" and self.channels != 4 else "png"


AS_THEY_ARE = PixelRules()


def parse_sides(text: str) -> Sides:
    """Returns the height and width that a text like 224x224 says.

    Raises:
      ValueError: it says neither, or too many pixels.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(
            f"expected height x width in pixels, such as 224x224, found {text!r}"
        )
    height, width = int(match[1]), int(match[2])
    _check_sides(height, width, text)
    return height, width


def _check_sides(height: int, width: int, text: str) -> None:
    if max(height, width) > MAX_SIDE or 4 * height * width > MAX_PIXEL_BYTES:
        raise ValueError(
            f"expected sides of at most {MAX_SIDE:,} pixels and "
            f"{MAX_PIXEL_BYTES // 4:,} pixels together, found {text!r}"
        )


def parse_resize(text: str) -> Resize:
    """Returns the size that a text like 224x224, shorter=256 or longer=512 says.

    Raises:
      ValueError: it says none.
    """
    if _SIZE.fullmatch(text):
        return Resize(sides=parse_sides(text))
    match = _SIDE.fullmatch(text)
    if match is None:
        raise ValueError(
            "expected height x width in pixels, such as 224x224, or shorter=N or "
            f"longer=N, found {text!r}"
        )
    side = int(match[2])
    _check_sides(side, 1, text)
    return Resize(shorter=side) if match[1] == "shorter" else Resize(longer=side)


def parse_pad(text: str) -> tuple[Sides, Colour]:
    """Returns sides and colour of a text like 224x224 or 224x224:white.

    Raises:
      ValueError: it says none.
    """
    size, _, name = text.partition(":")
    colour = _COLOURS.get(name or "black")
    match = _HEX_COLOUR.fullmatch(name)
    if match:
        colour = (int(match[1], 16), int(match[2], 16), int(match[3], 16))
    if colour is None:
        raise ValueError(
            f"expected a colour of {', '.join(_COLOURS)} or #rrggbb after the size, "
            f"found {name!r}"
        )
    return parse_sides(size), colour


def parse_reencode(text: str) -> tuple[Form, int, bool]:
    """Returns form, quality and whether it is lossless, of a text like jpeg:quality=92.

    Raises:
      ValueError: it says none.
    """
    form, _, how = text.partition(":")
    match = _QUALITY.fullmatch(how)
    if form == "jpeg" and (match or not how):
        return "jpeg", int(match[1]) if match else QUALITY, False
    if form == "png" and text == form:
        return "png", QUALITY, True
    if form == "webp" and (match or how in ("", "lossless")):
        return "webp", int(match[1]) if match else WEBP_QUALITY, how == "lossless"
    raise ValueError(
        "expected jpeg, jpeg:quality=N, png, webp, webp:quality=N (N from 1 to 100) or "
        f"webp:lossless, found {text!r}"
    )
