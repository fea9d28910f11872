"""Checks a picture as closely as asked: its header, its structure, or all its pixels."""

from __future__ import annotations

from typing import Literal

from recordmill.transforms import native
from recordmill.transforms.pictures.bmp_header import with_trailing_bytes
from recordmill.transforms.pictures.header import (
    ImageHeader,
    read_header,
)
from recordmill.transforms.pictures.open_picture import open_picture
from recordmill.transforms.pictures.structure import (
    MAX_PIXELS,
    check_pixels,
    check_structure,
)

CheckLevel = Literal["header", "structure", "decode"]


def check_picture(
    data: bytes, *, level: CheckLevel = "structure", max_pixels: int = MAX_PIXELS
) -> ImageHeader:
    """Checks a picture and returns its header.

    Args:
      data: the whole file.
      level: header reads the size alone; structure also finds pictures that are cut or
        damaged, without decoding; decode decodes every pixel.
      max_pixels: height x width may not be above, whatever the level.

    Raises:
      ImageHeaderError: it is not a picture, or not a whole one; says what was found.
    """
    # Nearly all pictures are JPEGs, and whole: the header and structure of one take 8 us.
    whole = native.loops.jpeg(data)
    header = read_header(data) if whole is None else ImageHeader("jpeg", *whole)
    check_pixels(header, max_pixels)
    if header.format == "bmp":
        header = with_trailing_bytes(data, header)
    if level != "header" and whole is None:
        check_structure(data, header)
    if level == "decode":
        _decode(data, header, max_pixels)
    return header


def _decode(data: bytes, header: ImageHeader, max_pixels: int) -> None:
    with open_picture(data, header, max_pixels) as picture:
        picture.load()
