"""Makes small pictures of pictures, and of arrays that are pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.transforms.arrow import U8
from recordmill.transforms.pictures.eight_bits import blended, in_eight_bits
from recordmill.transforms.pictures.header import read_header
from recordmill.transforms.pictures.open_picture import open_picture

if TYPE_CHECKING:
    from PIL import Image

_MAX_PIXELS = 1 << 27  # 400 MB as red, green and blue
_GRAY = (128, 128, 128)  # behind transparency: neither black nor white drawings vanish


def holds_pictures(feature: FeatureSpec) -> bool:
    """Tests whether a feature's values are pictures, or arrays that can be drawn."""
    if feature.content is Content.PICTURE:
        return True
    rank, last = len(feature.shape), feature.shape[-1:]
    colours = rank == 2 or (rank == 3 and last[0] in (1, 3, 4))
    return feature.content is Content.ARRAY and feature.dtype == "uint8" and colours


def thumbnail_of(value: bytes, feature: FeatureSpec, width: int, height: int) -> U8:
    """Returns a value as red, green and blue, of shape (height, width, 3).

    Args:
      value: of a feature for which `holds_pictures` is true.
      feature: that it belongs to.
      width: the largest width; what is smaller is not enlarged.
      height: the largest height.

    Raises:
      ImageHeaderError: the picture cannot be decoded.
      ValueError: the array is not of the feature's shape.
    """
    from PIL import Image

    if feature.content is Content.PICTURE:
        with open_picture(value, read_header(value), _MAX_PIXELS) as picture:
            picture.draft("RGB", (width, height))  # JPEG: decoded small
            return _shrunk(_viewable(picture), width, height)
    sides: Sequence[int] = [-1 if side is None else side for side in feature.shape]
    pixels = np.frombuffer(value, np.uint8).reshape(sides)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    return _shrunk(_viewable(Image.fromarray(pixels)), width, height)


def _viewable(picture: Image.Image) -> Image.Image:
    """Returns a picture in red, green and blue."""
    return blended(in_eight_bits(picture), _GRAY).convert("RGB")


def _shrunk(picture: Image.Image, width: int, height: int) -> U8:
    picture.thumbnail((width, height))
    return np.asarray(picture)
