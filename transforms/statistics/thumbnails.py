"""Creates displayable images (PNG files, thumbnails) from image files and arrays."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.transforms.images.decode import GRAY_16, open_image, to_8_bits
from recordmill.transforms.images.header import ImageHeaderError, read_header

if TYPE_CHECKING:
    from PIL import Image


SIDE = 112  # maximum length of the longer side in pixels
MAX_PIXELS = 1 << 26  # of an image that is decoded: 200 MB as RGB
_QUALITY = 78
_MAX_STRETCHED_SAMPLE = 64  # if all samples are below, they are stretched
_EXACT_PIXELS = 48 * 48  # below this size, PNG is as small and keeps every pixel


class Box(NamedTuple):
    """An object in an image: its class, and its box as fractions of the sides."""

    name: str
    ymin: float
    xmin: float
    ymax: float
    xmax: float


class Thumbnail(NamedTuple):
    """A small image."""

    mime: str  # MIME type of its bytes; "" if the image cannot be shown
    data: bytes  # an encoded image
    width: int = 0  # of the original
    height: int = 0
    problem: str = ""  # the reason why it cannot be shown
    boxes: tuple[Box, ...] = ()  # of the objects in it


def holds_images(feature: FeatureSpec) -> bool:
    """Checks whether a feature's values are image files, or arrays of pixels."""
    if feature.content is Content.IMAGE:
        return True
    rank, last = len(feature.shape), feature.shape[-1:]
    colours = rank == 2 or (rank == 3 and last[0] in (1, 3, 4))
    return feature.content is Content.ARRAY and feature.dtype == "uint8" and colours


@contextmanager
def _open_value(value: bytes, feature: FeatureSpec) -> Iterator[Image.Image]:
    """Opens a value of a feature for which `holds_images` is true.

    Raises:
      ImageHeaderError: the image cannot be decoded.
      ValueError: the array is not of the feature's shape.
    """
    from PIL import Image

    if feature.content is Content.IMAGE:
        with open_image(value, read_header(value), MAX_PIXELS) as opened:
            yield opened
        return
    sides = [-1 if side is None else side for side in feature.shape]
    pixels = np.frombuffer(value, np.uint8).reshape(sides)
    yield Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels)


def png_of(value: bytes, feature: FeatureSpec) -> tuple[bytes, int, int]:
    """Returns a PNG file with 8 bits per channel, its width and its height.

    For value, feature and errors see `_open_value`.
    """
    with _open_value(value, feature) as opened:
        image, file = to_8_bits(opened), io.BytesIO()
        image.save(file, "PNG")
        return file.getvalue(), image.width, image.height


def thumbnail_of(value: bytes, feature: FeatureSpec) -> Thumbnail:
    """Returns the thumbnail of an image, or of the first of several frames."""
    try:
        with _open_value(value, feature) as opened:
            width, height = opened.size
            opened.draft("RGB", (SIDE, SIDE))  # JPEG decodes at a smaller size
            image = opened
            if feature.shape[2:] == (1,) and opened.mode in ("L", *GRAY_16):
                # A mask with small numbers would look black.
                few = _MAX_STRETCHED_SAMPLE << (0 if opened.mode == "L" else 8)
                if int(opened.getextrema()[1]) < few:  # type: ignore[arg-type]
                    image = opened.convert("I")
            small, file = to_8_bits(image), io.BytesIO()
            small.thumbnail((SIDE, SIDE))
            is_exact = small.width * small.height <= _EXACT_PIXELS
            form = "PNG" if is_exact else "WEBP"
            small.save(file, form, **({} if is_exact else {"quality": _QUALITY}))
    except (ImageHeaderError, ValueError) as error:
        return Thumbnail("", b"", problem=str(error))
    return Thumbnail(f"image/{form.lower()}", file.getvalue(), width, height)


MAX_IMAGES = 480  # of a dataset
MAX_OF_CLASS = 10
MAX_CLASSES = 160  # classes with images on a sheet
NO_CLASS = -1  # instead of a class, if the feature has no label


class ContactSheet:
    """The first images of each class, or of all rows."""

    def __init__(
        self, feature: str, label: str, num_classes: int, max_images: int
    ) -> None:
        """Initializes without images; `label` is "" if there is no class label."""
        self.feature, self.label = feature, label
        # number of all classes, including classes without images here
        self.num_classes = num_classes if label else 0
        num_rows = min(max(1, self.num_classes), MAX_CLASSES)
        self._images_per_class = max(1, min(MAX_OF_CLASS, max_images // num_rows))
        if not label:
            self._images_per_class = min(max_images, 2 * MAX_OF_CLASS)
        classes = range(num_rows) if label else (NO_CLASS,)
        self._rows: dict[int, list[Thumbnail]] = {label: [] for label in classes}

    def add(
        self, labels: Iterable[int | None], make: Callable[[int], Thumbnail]
    ) -> None:
        """Adds thumbnails of images whose classes still lack some.

        `labels` are the classes of the images, ALL without a label; `make` returns the
        thumbnail of an image, by its index.
        """
        # A loop over all rows: 0.1 us per row, less than reading its image.
        for index, label in enumerate(labels):
            row = None if label is None else self._rows.get(label)
            if row is not None and len(row) < self._images_per_class:
                row.append(make(index))

    @property
    def rows(self) -> list[tuple[int, list[Thumbnail]]]:
        """Returns (class, thumbnails) pairs by class; the class ALL without a label."""
        return sorted(self._rows.items())
