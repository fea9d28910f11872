"""Defines what is done with the pixels of images: their size, channels and encoding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["own", "jpeg", "png", "webp", "raw"]
Sides = tuple[int, int]  # height and width

MAX_SIDE = 65_535  # of a JPEG
# As Pillow's own limit for images of three channels: of what is decoded, and of the
# result. One worker needs some three times as much.
MAX_PIXEL_BYTES = 256 << 20
QUALITY = 92
WEBP_QUALITY = 80

_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")
_SIDE = re.compile(r"(shorter|longer)=([1-9]\d{0,4})")
_QUALITY = re.compile(r"quality=([1-9]\d?|100)")
_PAD_VALUE = re.compile(r"\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5]")


@dataclass(frozen=True, slots=True)
class Resize:
    """The size images are scaled to: both sides, or one and the other in proportion."""

    sides: Sides | None = None
    shorter: int = 0
    longer: int = 0
    draft: int = 2  # a JPEG is decoded at this many times that size, or more

    def size_of(self, width: int, height: int) -> tuple[int, int]:
        """Returns width and height of an image of this size once it is scaled.

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
    """What is done with the pixels of images, in this order."""

    # whether an image of several frames is a reject; else its first one is taken
    rejects_frames: bool = False
    turns: bool = False  # whether an image is turned as its EXIF data say
    resize: Resize | None = None  # the size that it is scaled to, or None
    crop: Sides | None = None  # height and width of what is kept of its middle, or None
    # height and width of what it is put into the middle of, or None
    pad: Sides | None = None
    pad_value: int = 0  # of all samples around it then
    mask_pad: int = 255  # of those around its masks
    # 1 gray, 3 colours, 4 colours and alpha; None as the image has
    channels: int | None = None
    # how it is encoded. own: JPEG as JPEG, all others as PNG; raw: not at all.
    form: Form = "own"
    quality: int = QUALITY  # of JPEG or WebP
    lossless: bool = False  # whether WebP keeps each pixel
    # whether every image is decoded and encoded; if not, only those that are turned
    transforms_all: bool = False
    # whether PNGs have palettes and 16 bits of gray as the image has
    keeps_samples: bool = False

    @property
    def shape(self) -> tuple[int | None, int | None, int | None]:
        """Returns height, width and channels of the result; None where they vary."""
        if not self.transforms_all:
            return None, None, None
        sides = self.pad or self.crop or (self.resize.sides if self.resize else None)
        height, width = sides or (None, None)
        return height, width, self.channels

    def form_of(self, file_format: str) -> Form:
        """Returns how an image of a format is encoded."""
        if self.form != "own":
            return self.form
        return "jpeg" if file_format == "jpeg" and self.channels != 4 else "png"


AS_THEY_ARE = PixelRules()


def parse_sides(text: str) -> Sides:
    """Returns the height and width that a text like 224x224 says."""
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
    """Returns the size that a text like 224x224, shorter=256 or longer=512:scaled says."""
    size = text.removesuffix(":scaled")
    draft = 2 if size == text else 1
    if _SIZE.fullmatch(size):
        return Resize(sides=parse_sides(size), draft=draft)
    match = _SIDE.fullmatch(size)
    if match is None:
        raise ValueError(
            "expected height x width in pixels, such as 224x224, or shorter=N or "
            f"longer=N, each alone or with :scaled behind it, found {text!r}"
        )
    side = int(match[2])
    _check_sides(side, 1, text)
    if match[1] == "shorter":
        return Resize(shorter=side, draft=draft)
    return Resize(longer=side, draft=draft)


def parse_pad(text: str) -> tuple[Sides, int]:
    """Returns sides and value of a text like 224x224 or 224x224:255."""
    size, _, value = text.partition(":")
    if value and not _PAD_VALUE.fullmatch(value):
        raise ValueError(
            "expected a value from 0 to 255 after the size, such as 224x224:255, found "
            f"{value!r}"
        )
    return parse_sides(size), int(value or 0)


def parse_reencode(text: str) -> tuple[Form, int, bool]:
    """Returns form, quality and whether it is lossless, of a text like jpeg:quality=92."""
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
