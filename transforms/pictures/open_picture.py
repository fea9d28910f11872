"""Opens pictures for decoding, within limits of memory."""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.pictures.structure import check_pixels
from recordmill.transforms.pictures.tiff_header import tag_bytes

if TYPE_CHECKING:
    from PIL import Image

# The decoder of a format may not be another one's, whatever the bytes look like to it.
_DECODERS = {
    "jpeg": ("JPEG",),  # and MPO, by the same decoder
    "png": ("PNG",),
    "gif": ("GIF",),
    "bmp": ("BMP",),
    "webp": ("WEBP",),
    "tiff": ("TIFF",),
}
_SHARED_TAGS = 2  # tags may point to the same bytes, but not each to the whole file
_SMALL_TAG_BYTES = 1 << 20


@contextmanager
def open_picture(
    data: bytes, header: ImageHeader, max_pixels: int
) -> Iterator[Image.Image]:
    """Opens a picture with Pillow; its pixels are not decoded yet.

    Args:
      data: the whole file.
      header: its header.
      max_pixels: height x width may not be above, as Pillow sees them either: it makes
        the whole screen of a GIF, however small the frames are.

    Raises:
      ImageHeaderError: it cannot be opened, or what is done with it fails: damaged bytes
        raise whatever the decoder meets.
    """
    from PIL import Image, UnidentifiedImageError  # 50 ms, for those who decode

    # Pillow's own limit cannot be set for each picture.
    Image.MAX_IMAGE_PIXELS = None
    try:
        with warnings.catch_warnings():
            # The size is checked here; other warnings are no reason to refuse it.
            warnings.simplefilter("ignore")
            if header.format == "tiff":
                check_tags(data)
            formats = _DECODERS[header.format]
            with Image.open(io.BytesIO(data), formats=formats) as picture:
                check_size(picture, header, max_pixels)
                yield picture
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


def check_size(picture: Image.Image, header: ImageHeader, max_pixels: int) -> None:
    """Checks the size of the frame at which an open picture stands.

    Raises:
      ImageHeaderError: it has too many pixels.
    """
    width, height = picture.size
    check_pixels(ImageHeader(header.format, height, width, header.depth), max_pixels)


def check_tags(data: bytes, max_pages: int = 1) -> int:
    """Refuses a TIFF whose tags take much more memory than the file, as Pillow copies them.

    Args:
      data: the whole file.
      max_pages: that are looked at; Pillow holds the tags of one at a time.

    Returns:
      How many pages were looked at.

    Raises:
      ImageHeaderError: says how much.
    """
    try:
        found = tag_bytes(data, max_pages)
    except (struct.error, OverflowError):
        raise ImageHeaderError("TIFF is damaged: its tags end after the file") from None
    limit = _SHARED_TAGS * len(data) + _SMALL_TAG_BYTES
    if found and max(found) > limit:
        raise ImageHeaderError(
            f"TIFF has tags of {max(found):,} bytes in a file of {len(data):,} (expected "
            f"{limit:,} or fewer)"
        )
    return len(found)
