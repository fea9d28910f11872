"""Makes small pictures that a page can hold, from picture files and from pixels."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from recordmill.transforms.pictures.eight_bits import in_eight_bits
from recordmill.transforms.pictures.header import read_header
from recordmill.transforms.pictures.image_header import ImageHeaderError
from recordmill.transforms.pictures.open_picture import open_picture

if TYPE_CHECKING:
    from PIL import Image

SIDE = 112  # pixels of the longer side, at most
MAX_PIXELS = 1 << 26  # of a picture that is decoded: 200 MB as RGB
_QUALITY = 78
_EXACT_PIXELS = 48 * 48  # below, PNG is as small and keeps every pixel
_MAX_BYTES = 48_000


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small picture.

    Attributes:
      mime: type of its bytes; "" if the picture cannot be shown.
      data: an encoded picture.
      width, height: of the original.
      problem: why it cannot be shown.
    """

    mime: str
    data: bytes
    width: int = 0
    height: int = 0
    problem: str = ""


def thumbnail_of_file(data: bytes) -> Thumbnail:
    """Returns the thumbnail of a picture file's first frame, as it is stored."""
    try:
        header = read_header(data)
        with open_picture(data, header, MAX_PIXELS) as picture:
            width, height = picture.size
            picture.draft("RGB", (SIDE, SIDE))  # JPEG decodes at a smaller size
            small = in_eight_bits(picture)
            if small.mode == "LA":
                small = small.convert("RGBA")
            return _encoded(small, width, height)
    except ImageHeaderError as error:
        return Thumbnail("", b"", problem=str(error))


def thumbnail_of_pixels(pixels: npt.NDArray[np.uint8]) -> Thumbnail:
    """Returns the thumbnail of pixels of shape (height, width, 1, 3 or 4)."""
    from PIL import Image

    height, width, channels = pixels.shape
    flat = pixels[:, :, 0] if channels == 1 else pixels
    return _encoded(Image.fromarray(np.ascontiguousarray(flat)), width, height)


def _encoded(picture: Image.Image, width: int, height: int) -> Thumbnail:
    from PIL import features

    small = picture.copy()
    small.thumbnail((SIDE, SIDE))
    exact = small.width * small.height <= _EXACT_PIXELS
    for form in ("PNG",) if exact else ("WEBP", "JPEG", "PNG"):
        if form == "WEBP" and not features.check("webp"):
            continue
        if form == "JPEG" and small.mode == "RGBA":
            continue
        file = io.BytesIO()
        small.save(file, form, **({} if form == "PNG" else {"quality": _QUALITY}))
        if len(file.getvalue()) <= _MAX_BYTES:
            return Thumbnail(f"image/{form.lower()}", file.getvalue(), width, height)
    return Thumbnail("", b"", width, height, "too large for this page")
