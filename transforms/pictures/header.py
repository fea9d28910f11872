"""Reads height, width and depth of a picture from its first bytes, without decoding it.

The format is recognized by content, never by file name. The numbers are those of
`tf.io.decode_image(data, channels=0)` in TensorFlow 2.21, surprising ones included
(checked by experiment: see tests/helpers/pixel_zoo.py). Each format has a file of its
own here.

TensorFlow cannot decode TIFF, nor a BMP of 1, 4 or 16 bits or with the 12-byte info
header of OS/2. Their depth is the number of samples per pixel, a palette counting as
RGB.

Pillow is not used: it sees 3 channels in a 32-bit BMP and the screen of a GIF, and
opening a TIFF copies all its tags, each of which may span the whole file.
"""

from __future__ import annotations

from recordmill.transforms.pictures.bmp_header import read_bmp
from recordmill.transforms.pictures.gif_header import read_gif
from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.pictures.jpeg_header import read_jpeg
from recordmill.transforms.pictures.png_header import read_png
from recordmill.transforms.pictures.signature import picture_format
from recordmill.transforms.pictures.tiff_header import read_tiff
from recordmill.transforms.pictures.webp_header import read_webp

__all__ = ["ImageHeader", "ImageHeaderError", "read_header"]

_READERS = {
    "jpeg": read_jpeg,
    "png": read_png,
    "gif": read_gif,
    "bmp": read_bmp,
    "webp": read_webp,
    "tiff": read_tiff,
}


def read_header(data: bytes) -> ImageHeader:
    """Returns the header of a picture, given the whole file.

    Raises:
      ImageHeaderError: the bytes are not a picture, or its header is damaged.
    """
    read = _READERS.get(picture_format(data))
    if read is None:
        found = f"starts with {data[:9]!r}" if data else "has no bytes"
        raise ImageHeaderError(
            f"not a picture: {found} (expected JPEG, PNG, GIF, BMP, WebP or TIFF)"
        )
    header = read(data)
    if header.height < 1 or header.width < 1 or header.depth < 1:
        raise ImageHeaderError(
            f"{header.format} of height {header.height}, width {header.width} and "
            f"depth {header.depth} (expected 1 or more of each)"
        )
    return header
