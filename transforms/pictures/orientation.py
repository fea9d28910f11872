"""Reads how a picture is to be turned, by its EXIF data, and turns it.

    1  as it is        2  mirrored           3  upside down     4  mirrored, upside down
    5  6  7  8         the same, with rows and columns exchanged

Cameras store what the sensor saw and say in EXIF how the camera was held. Viewers turn
the picture; decoders of TensorFlow, and those of most training code, do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

UPRIGHT = 1
_TAG = 0x112

Size = tuple[int, int]
Box = tuple[float, float, float, float]


def orientation_of(picture: Image.Image) -> int:
    """Returns the orientation of a picture, 1 to 8; 1 where its EXIF data are damaged."""
    try:
        found = picture.getexif().get(_TAG, UPRIGHT)
    except Exception:
        return UPRIGHT
    return found if isinstance(found, int) and 1 <= found <= 8 else UPRIGHT


def swaps_sides(orientation: int) -> bool:
    """Tells whether height and width are exchanged by turning."""
    return orientation >= 5


def turned(picture: Image.Image, orientation: int) -> Image.Image:
    """Returns a picture as its orientation says that it is to be seen."""
    from PIL.Image import Transpose

    step = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return picture if step is None else picture.transpose(step)


def turned_back(picture: Image.Image, orientation: int) -> Image.Image:
    """Returns a picture as it was before it was turned."""
    return turned(picture, {6: 8, 8: 6}.get(orientation, orientation))


def turned_box(box: Box, size: Size, orientation: int) -> Box:
    """Returns where a box of a picture lies once the picture is turned.

    >>> turned_box((0, 0, 3, 2), (4, 2), 2)
    (1, 0, 4, 2)

    Args:
      box: left, upper, right and lower edge.
      size: width and height of the picture before it is turned.
      orientation: of the picture.
    """
    width, height = size
    left, upper, right, lower = box
    if orientation in (2, 3, 7, 8):
        left, right = width - right, width - left
    if orientation in (3, 4, 6, 7):
        upper, lower = height - lower, height - upper
    if swaps_sides(orientation):
        return upper, left, lower, right
    return left, upper, right, lower
