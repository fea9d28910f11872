"""Encodes pixels as JPEG, PNG or WebP, or gives them as they are."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.pictures.pixel_rules import Form
from recordmill.transforms.pictures.write_png import Pixels, write_png

if TYPE_CHECKING:
    from PIL import Image

_NAMES = {"jpeg": "JPEG", "webp": "WebP"}


def encode_picture(
    picture: Image.Image, form: Form, quality: int, lossless: bool
) -> tuple[bytes, ImageHeader]:
    """Returns the bytes of a picture and their header.

    EXIF data, comments and colour profiles do not come with it. PNGs are written by
    `write_png`, the others by the libraries that Pillow has.

    Args:
      picture: of 8 bits a channel.
      form: jpeg, png or webp; raw: the samples, row by row.
      quality: of JPEG or WebP, 1 to 100.
      lossless: whether WebP keeps each pixel.

    Raises:
      ImageHeaderError: the format cannot hold it.
    """
    channels = len(picture.getbands())
    header = ImageHeader(form, picture.height, picture.width, channels)
    if form == "raw":
        return picture.tobytes(), header
    if form == "png":

        def rows(start: int, stop: int) -> Pixels:
            found: Pixels = np.asarray(picture.crop((0, start, picture.width, stop)))
            return found

        return write_png(picture.height, picture.width, channels, rows), header
    buffer = io.BytesIO()
    picture.info = {}  # Pillow writes some of it: comments, resolution
    options = {"lossless": lossless} if form == "webp" else {}
    try:
        picture.save(buffer, form.upper(), quality=quality, **options)
    except (OSError, ValueError) as error:
        raise ImageHeaderError(
            f"has {picture.height:,} x {picture.width:,} pixels, which cannot be encoded "
            f"as {_NAMES[form]}: {error}"
        ) from error
    return buffer.getvalue(), header
