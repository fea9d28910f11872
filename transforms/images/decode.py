"""Opens, checks and decodes images, within limits of memory.

Decoded images have 8 bits a channel, gray or colours, each with alpha or without; they
can be turned as their EXIF data say.
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
# What Pillow's other modes become; those of 32 bits or decimals have no fixed white.
_TO_8_BITS = dict.fromkeys(("P", "CMYK", "YCbCr", "RGBX", "LAB", "HSV"), "RGB")
_TO_8_BITS |= {"1": "L", "La": "LA", "PA": "RGBA", "RGBa": "RGBA"}

_ANY_SIZE = 1 << 62  # sizes were checked when the dataset was written


def check_image(
    data: bytes, *, level: CheckLevel = "structure", max_pixels: int = MAX_PIXELS
) -> ImageHeader:
    """Checks an image and returns its header.

    Args:
      data: the whole file.
      level: header reads the size alone; structure also finds images that are cut or
        damaged, without decoding; decode decodes every pixel.
      max_pixels: height x width may not be above, whatever the level.

    Raises:
      ImageHeaderError: it is not an image, or not a whole one; says what was found.
    """
    # Nearly all images are JPEGs, and whole: the header and structure of one take 8 us.
    whole = native.loops.jpeg(data)
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

    Height x width may not be above `max_pixels` as Pillow sees them either: it makes the
    whole screen of a GIF, however small the frames are.

    Raises:
      ImageHeaderError: it cannot be opened, or what is done with it fails: damaged bytes
        raise whatever the decoder meets.
    """
    from PIL import Image, UnidentifiedImageError  # 50 ms, for those who decode

    # Pillow's own limit cannot be set for each image.
    Image.MAX_IMAGE_PIXELS = None
    try:
        with warnings.catch_warnings():
            # The size is checked here; other warnings are no reason to refuse it.
            warnings.simplefilter("ignore")
            if header.format == "tiff":
                check_tags(data)
            # The decoder of a format may not be another one's, whatever the bytes look
            # like to it; that of JPEG decodes MPO, too.
            formats = (header.format.upper(),)
            with Image.open(io.BytesIO(data), formats=formats) as image:
                width, height = image.size
                size = ImageHeader(header.format, height, width, header.depth)
                check_pixels(size, max_pixels)
                yield image
    except ImageHeaderError:
        raise
    except UnidentifiedImageError as error:
        # Its text has an address in memory, but a reason is the same in every run.
        raise ImageHeaderError(
            f"{header.format} cannot be decoded: Pillow knows no {header.format} like it"
        ) from error
    except Exception as error:
        raise ImageHeaderError(
            f"{header.format} cannot be decoded: {type(error).__name__}: {error}"
        ) from error


def pixels_of(data: bytes) -> npt.NDArray[Any]:
    """Returns the pixels of an image's first frame, of shape (height, width, channels).

    Gray has one channel, colours three, transparency is one more; a palette becomes its
    colours, CMYK red, green and blue. 16 bits of gray are uint16.

    Raises:
      OutputError: the image cannot be decoded.
    """
    try:
        with open_image(data, read_header(data), _ANY_SIZE) as image:
            mode = _TO_8_BITS.get(image.mode, image.mode)
            if image.mode == "P" and "transparency" in image.info:
                mode = "RGBA"
            decoded = image if image.mode == mode else image.convert(mode)
            pixels = np.array(decoded)  # a copy: PyTorch warns of what is read-only
    except ImageHeaderError as error:
        raise OutputError(
            f"an image of {len(data)} bytes: {error}; run `recordmill verify --deep` "
            "to find all such"
        ) from error
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def to_8_bits(image: Image.Image) -> Image.Image:
    """Returns an image in one of the modes L, LA, RGB and RGBA.

    A palette becomes its colours; four inks become red, green and blue; one colour that
    is declared transparent becomes alpha. Of 16 bits of gray the higher 8 are taken. Gray
    of 32 bits or of decimals has no fixed white: it is stretched to what is in it, which
    is for showing it only.
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
