"""Opens, checks and decodes images, within limits of memory.

Decoded images have 8 bits per channel, gray or colours, each with or without alpha.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import OutputError
from recordmill.transforms import native
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    CheckLevel,
    ImageHeader,
    ImageHeaderError,
    check_pixels,
    check_structure,
    check_tags,
    read_header,
)

if TYPE_CHECKING:
    from PIL import Image

GRAY_16 = frozenset({"I;16", "I;16L", "I;16B"})  # Pillow's modes of 16 bits of gray
# Conversions of Pillow's other modes; modes of 32 bits or floats have no fixed white.
_TO_8_BITS = dict.fromkeys(("P", "CMYK", "YCbCr", "RGBX", "LAB", "HSV"), "RGB")
_TO_8_BITS |= {"1": "L", "La": "LA", "PA": "RGBA", "RGBa": "RGBA"}

_ANY_SIZE = 1 << 62  # sizes were checked when the dataset was written


def check_image(
    data: bytes, *, level: CheckLevel = "structure", max_pixels: int = MAX_PIXELS
) -> ImageHeader:
    """Checks an image and returns its header.

    Args:
      data: the whole file.
      level: header reads the size alone; structure also finds truncated or damaged
        images, without decoding; decode decodes every pixel.
      max_pixels: maximum of height x width, at every level.

    Raises:
      ImageHeaderError: the bytes are not an image, or not a whole one.
    """
    # Nearly all images are whole JPEGs, whose header and structure take 8 us.
    whole = native.loops.read_jpeg_size(data)
    header = read_header(data) if whole is None else ImageHeader("jpeg", *whole)
    check_pixels(header, max_pixels)
    if level != "header" and whole is None:
        check_structure(data, header)
    if level == "decode":
        with open_image(data, header, max_pixels) as image:
            image.load()
    return header


@contextmanager
def open_image(
    data: bytes, header: ImageHeader, max_pixels: int
) -> Iterator[Image.Image]:
    """Opens an image with Pillow; its pixels are not decoded yet.

    `max_pixels` also limits Pillow's height x width: it allocates the whole screen of a
    GIF, even if the frames are small.

    Raises:
      ImageHeaderError: the image cannot be opened, or the code in the block raises an
        error: damaged bytes raise errors of any type in a decoder.
    """
    from PIL import Image, UnidentifiedImageError  # 50 ms, only if images are decoded

    # Pillow's own limit cannot be set for each image.
    Image.MAX_IMAGE_PIXELS = None
    try:
        with warnings.catch_warnings():
            # The size is checked below; other warnings are no reason to reject an image.
            warnings.simplefilter("ignore")
            if header.format == "tiff":
                check_tags(data)
            # Only the decoder of the header's format may be used, even if Pillow detects
            # another format. The decoder of JPEG also decodes MPO.
            formats = (header.format.upper(),)
            with Image.open(io.BytesIO(data), formats=formats) as image:
                width, height = image.size
                size = ImageHeader(header.format, height, width, header.depth)
                check_pixels(size, max_pixels)
                yield image
    except ImageHeaderError:
        raise
    except UnidentifiedImageError as error:
        # Its text has an address in memory, but reasons must be equal in every run.
        raise ImageHeaderError(
            f"{header.format} cannot be decoded: Pillow does not support this {header.format}"
        ) from error
    except Exception as error:
        raise ImageHeaderError(
            f"{header.format} cannot be decoded: {type(error).__name__}: {error}"
        ) from error


def pixels_of(data: bytes) -> npt.NDArray[Any]:
    """Returns the pixels of an image's first frame, of shape (height, width, channels).

    Gray has one channel, colours three, and transparency is another channel. A palette is
    converted to its colours, CMYK to RGB. 16 bits of gray are uint16.

    Raises:
      OutputError: the image cannot be decoded.
    """
    try:
        with open_image(data, read_header(data), _ANY_SIZE) as image:
            mode = _TO_8_BITS.get(image.mode, image.mode)
            if image.mode == "P" and "transparency" in image.info:
                mode = "RGBA"
            decoded = image if image.mode == mode else image.convert(mode)
            pixels = np.array(decoded)  # a copy: PyTorch warns about read-only arrays
    except ImageHeaderError as error:
        raise OutputError(
            f"an image of {len(data)} bytes: {error}; run `recordmill verify --deep` "
            "to list all such images"
        ) from error
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def to_8_bits(image: Image.Image) -> Image.Image:
    """Returns an image in one of the modes L, LA, RGB and RGBA.

    A palette is converted to its colours, CMYK to RGB, a transparent colour to alpha. For
    16 bits of gray, the upper 8 are used. Gray of 32 bits or of floats has no fixed
    white: it is scaled to its own range, which is suitable for display only.
    """
    from PIL import Image

    if image.mode in GRAY_16:
        deep: npt.NDArray[Any] = np.asarray(image)
        return Image.fromarray((deep >> 8).astype(np.uint8))
    if image.mode[:1] in "IF":
        values: npt.NDArray[Any] = np.nan_to_num(np.asarray(image, np.float64))
        low, high = values.min(), values.max()
        scaled = (values - low) * (255 / (high - low) if high > low else 0)
        return Image.fromarray(scaled.astype(np.uint8))
    mode = _TO_8_BITS.get(image.mode, image.mode)
    if image.has_transparency_data:
        mode = "LA" if mode in ("L", "LA") else "RGBA"
    return image if image.mode == mode else image.convert(mode)
