"""Defines the transformations of images: their size, channels and encoding."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Form = Literal["own", "jpeg", "png", "webp", "raw"]
Sides = tuple[int, int]  # height and width

MAX_SIDE = 65_535  # of a JPEG
# Limit of the decoded image and of the result, like Pillow's own limit for images of
# three channels. One worker needs about three times as much.
MAX_PIXEL_BYTES = 256 << 20
QUALITY = 92
WEBP_QUALITY = 80

_SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")
_SIDE = re.compile(r"(shorter|longer)=([1-9]\d{0,4})")
_QUALITY = re.compile(r"quality=([1-9]\d?|100)")
_PAD_VALUE = re.compile(r"\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5]")


@dataclass(frozen=True, slots=True)
class Resize:
    """The size to which images are scaled: both sides, or one side in proportion."""

    sides: Sides | None = None
    shorter: int = 0
    longer: int = 0
    # a JPEG is decoded at this multiple of the size, or larger
    min_decoded_factor: int = 2

    def size_of(self, width: int, height: int) -> tuple[int, int]:
        """Returns the width and height of an image of this size after scaling.

        A proportional side is rounded (halves up), and at least 1.

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
    """The transformations of images, in this order."""

    # reject an image of several frames; otherwise its first frame is used
    rejects_frames: bool = False
    turns: bool = False  # turn images by their EXIF orientation
    resize: Resize | None = None  # the size after scaling, or None
    crop: Sides | None = None  # height and width of the kept centre, or None
    # height and width of the padded result, with the image in its centre, or None
    pad: Sides | None = None
    pad_value: int = 0  # of all samples in the padding of images
    mask_pad: int = 255  # of all samples in the padding of masks
    # 1 gray, 3 colours, 4 colours and alpha; None for the image's own channels
    channels: int | None = None
    # the encoding. own: JPEG as JPEG, all others as PNG; raw: samples without encoding.
    encoding: Form = "own"
    quality: int = QUALITY  # of JPEG or WebP
    is_lossless: bool = False  # WebP is lossless
    # decode and encode every image; otherwise only images that are turned
    transforms_all: bool = False
    # PNGs keep the palette and the 16 bits of gray of the image
    keeps_samples: bool = False

    @property
    def shape(self) -> tuple[int | None, int | None, int | None]:
        """Returns height, width and channels of the result; None if one varies."""
        if not self.transforms_all:
            return None, None, None
        sides = self.pad or self.crop or (self.resize.sides if self.resize else None)
        height, width = sides or (None, None)
        return height, width, self.channels

    def encoding_of(self, file_format: str) -> Form:
        """Returns the encoding of an image of a format."""
        if self.encoding != "own":
            return self.encoding
        return "jpeg" if file_format == "jpeg" and self.channels != 4 else "png"


UNCHANGED_PIXELS = PixelRules()


def parse_sides(text: str) -> Sides:
    """Parses the height and width in a text like 224x224."""
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
    """Parses a size like 224x224, shorter=256 or longer=512:scaled."""
    size = text.removesuffix(":scaled")
    draft = 2 if size == text else 1
    if _SIZE.fullmatch(size):
        return Resize(sides=parse_sides(size), min_decoded_factor=draft)
    match = _SIDE.fullmatch(size)
    if match is None:
        raise ValueError(
            "expected height x width in pixels, such as 224x224, or shorter=N or "
            f"longer=N, optionally followed by :scaled, found {text!r}"
        )
    side = int(match[2])
    _check_sides(side, 1, text)
    if match[1] == "shorter":
        return Resize(shorter=side, min_decoded_factor=draft)
    return Resize(longer=side, min_decoded_factor=draft)


def parse_pad(text: str) -> tuple[Sides, int]:
    """Parses sides and padding value of a text like 224x224 or 224x224:255."""
    size, _, value_text = text.partition(":")
    if value_text and not _PAD_VALUE.fullmatch(value_text):
        raise ValueError(
            "expected a value from 0 to 255 after the size, such as 224x224:255, found "
            f"{value_text!r}"
        )
    return parse_sides(size), int(value_text or 0)


def parse_reencode(text: str) -> tuple[Form, int, bool]:
    """Parses (form, quality, is lossless) from a text like jpeg:quality=92."""
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
