"""Decodes a picture to an array of its pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import OutputError
from recordmill.transforms.pictures.header import read_header
from recordmill.transforms.pictures.image_header import ImageHeaderError
from recordmill.transforms.pictures.open_picture import open_picture

# Pillow's modes and what they become; others are kept as they are, 16 bits as uint16.
_MODES = {"1": "L", "P": "RGB", "CMYK": "RGB", "YCbCr": "RGB", "PA": "RGBA"}
_ANY_SIZE = 1 << 62  # sizes were checked when the dataset was written


def pixels_of(picture: bytes) -> npt.NDArray[Any]:
    """Returns the pixels of a picture's first frame, of shape (height, width, channels).

    Pillow decodes it. Gray has one channel, colours three, transparency is one more; a
    palette becomes its colours, CMYK red, green and blue. 16 bits of gray are uint16.

    Raises:
      OutputError: the picture cannot be decoded.
    """
    try:
        with open_picture(picture, read_header(picture), _ANY_SIZE) as image:
            mode = _MODES.get(image.mode, image.mode)
            if image.mode == "P" and "transparency" in image.info:
                mode = "RGBA"
            decoded = image if image.mode == mode else image.convert(mode)
            pixels = np.array(decoded)  # a copy: PyTorch warns of what is read-only
    except ImageHeaderError as error:
        raise OutputError(
            f"a picture of {len(picture)} bytes: {error}; run `recordmill verify --deep` "
            "to find all such"
        ) from error
    return pixels[:, :, None] if pixels.ndim == 2 else pixels
