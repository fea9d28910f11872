"""Moves boxes and points of objects with the pixels of their image.

Boxes are ymin, xmin, ymax, xmax as fractions of the image's height and width. Points are
x, y in pixels. For an outline, 0.0 is the edge of the first pixel; a keypoint is the
index of a pixel, whose centre is at 0.5. A `Placement` for each image defines the moves,
and all objects of a batch move together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import I64, offsets_of

Floats = npt.NDArray[np.float64]
Sides = tuple[int, int]  # height and width

# Columns of objects: a list for each image, all of one length.
OBJECTS = "objects/"
BOX, OBJECT_LABEL, AREA, KEYPOINTS, OUTLINE, MASK = (
    f"objects/{name}"
    for name in ("bbox", "label", "area", "keypoints", "segmentation", "mask")
)
BOXES = pa.list_(pa.float32(), 4)

# EXIF orientations: viewers turn images upright, TensorFlow's decoders do not.
#     1  unchanged       2  mirrored           3  upside down     4  both
#     5  6  7  8         flipped, then rows and columns are exchanged
UPRIGHT, FIRST_EXCHANGED = 1, 5
TURNED_BACK = (1, 1, 2, 3, 4, 5, 8, 7, 6)  # the inverse of each orientation
FLIPS_X, FLIPS_Y = (2, 3, 7, 8), (3, 4, 6, 7)


class Placement(NamedTuple):
    """The position of an image in its result: turned, scaled, then cropped or padded."""

    orientation: int  # the EXIF orientation by which it is turned
    turned_size: Sides  # its size after turning
    scaled_size: Sides  # its size after scaling
    corner: Sides  # its top and left in the result; negative if it is cropped
    size: Sides  # of the result

    @classmethod
    def turned_only(cls, size: Sides, orientation: int = UPRIGHT) -> Self:
        """Returns the placement of an image of this size that is only turned."""
        turned = size[::-1] if orientation >= FIRST_EXCHANGED else size
        return cls(orientation, turned, turned, (0, 0), turned)

    @property
    def has_moved(self) -> bool:
        """Returns True if a box has another position in the result."""
        return self != Placement.turned_only(self.size)

    def for_turned_objects(self, orientation: int) -> Placement:
        """Returns the placement of objects whose coordinates refer to the turned image.

        `orientation` is the EXIF orientation of the image. If the result is not turned,
        the objects are turned back.
        """
        is_turned = self.orientation == orientation
        turn = UPRIGHT if is_turned else TURNED_BACK[orientation]
        return self._replace(orientation=turn)


@dataclass(frozen=True, slots=True)
class Moves:
    """The placements of objects, one per row."""

    orientations: I64
    turned: I64  # two columns, as in all fields below
    scaled: I64
    corners: I64
    sizes: I64

    @classmethod
    def from_placements(cls, placements: Sequence[Placement], counts: Any) -> Self:
        """Returns the moves of objects from their images' placements.

        `counts` has the number of objects in each image.
        """
        columns = zip(*placements, strict=True)
        return cls(*(np.repeat(np.array(column), counts, 0) for column in columns))

    @property
    def image_sizes(self) -> I64:
        """Returns the size of each object's image before turning."""
        exchanged = self.orientations >= FIRST_EXCHANGED
        return np.where(exchanged[:, None], self.turned[:, ::-1], self.turned)

    @property
    def area_factor(self) -> Floats:
        """Returns the factor by which areas in pixels grow."""
        return np.asarray((self.scaled / self.turned).prod(axis=1))

    def move_boxes(self, boxes: npt.NDArray[Any]) -> Floats:
        """Returns boxes as fractions of the result, which they may exceed.

        If an image is turned by orientation 6, a box of its upper left quarter is moved
        to the upper right quarter: (0, 0, .5, .5) becomes (0, .5, .5, 1).
        """
        boxes = boxes.astype(np.float64)
        of_y, of_x = boxes[:, 0::2], boxes[:, 1::2]
        flips_y, flips_x = (
            np.isin(self.orientations, flips)[:, None] for flips in (FLIPS_Y, FLIPS_X)
        )
        of_y = np.where(flips_y, 1 - of_y[:, ::-1], of_y)
        of_x = np.where(flips_x, 1 - of_x[:, ::-1], of_x)
        exchanged = (self.orientations >= FIRST_EXCHANGED)[:, None]
        both = np.stack(
            [np.where(exchanged, of_x, of_y), np.where(exchanged, of_y, of_x)], axis=2
        )
        scale, shift = self.scaled / self.sizes, self.corners / self.sizes
        both = both * scale[:, None] + shift[:, None]
        return both.reshape(-1, 4)

    def clip_boxes(self, boxes: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Returns moved boxes, clipped to cropped images, and a mask of remaining boxes.

        Along a side that is not cropped, boxes are not clipped: a box that exceeded its
        image before still exceeds it.
        """
        cropped = np.tile(self.scaled > self.sizes, 2)
        within = np.where(cropped, boxes.clip(0, 1), boxes)
        near = boxes.round(6)  # an edge of float32 at 0 or 1 may be a little off
        outside = (near[:, 2:] <= 0) | (near[:, :2] >= 1)
        return within, np.logical_not((outside & cropped[:, :2]).any(axis=1))

    def move_points(self, points: npt.NDArray[Any]) -> Floats:
        """Returns points (x, y), one per row, in pixels of the result."""
        parts = points[:, ::-1] / self.image_sizes
        return self.move_boxes(np.tile(parts, 2))[:, 1::-1] * self.sizes[:, ::-1]

    def move_keypoints(self, keypoints: npt.NDArray[Any]) -> Floats:
        """Returns keypoints (x, y, visibility), one per row, in pixels of the result.

        A keypoint that is not labelled, or is cropped away, becomes 0, 0, 0.
        """
        points = self.move_points(keypoints[:, :2] + 0.5)
        cropped = (self.scaled > self.sizes)[:, ::-1]
        near = points.round(6)  # as in `clipped`
        outside = (near < 0) | (near >= self.sizes[:, ::-1])
        is_removed = (keypoints[:, 2] == 0) | (outside & cropped).any(axis=1)
        moved = np.column_stack([points - 0.5, keypoints[:, 2]])
        return np.where(is_removed[:, None], 0, moved)


def move_objects(
    columns: Mapping[str, pa.Array], placements: Sequence[Placement]
) -> tuple[dict[str, pa.Array], I64]:
    """Returns columns with moved objects, and the number of objects removed per image.

    An object is removed if its part of the image is cropped away. Outlines are moved one
    by one (see transforms/images/outlines.py); this function only removes them.
    """
    if not any(placement.has_moved for placement in placements):
        return {**columns}, np.zeros(len(placements), np.int64)
    counts = pc.list_value_length(columns[BOX]).to_numpy()
    values = {
        n: column.flatten() for n, column in columns.items() if n.startswith(OBJECTS)
    }
    moves = Moves.from_placements(placements, counts)
    moved = moves.move_boxes(numbers_in(values[BOX]).reshape(-1, 4))
    boxes, kept_mask = moves.clip_boxes(moved)
    values[BOX] = with_numbers(BOXES, boxes.ravel())
    if AREA in values:
        whole, part = _areas(moved), _areas(boxes)
        shares = np.divide(part, whole, out=np.ones(len(whole)), where=whole > 0)
        areas = numbers_in(values[AREA]) * moves.area_factor * shares
        values[AREA] = pa.array(areas).cast(values[AREA].type, safe=False)
    if KEYPOINTS in values:
        points = numbers_in(values[KEYPOINTS]).reshape(-1, 3)
        points_per_object = len(points) // max(1, len(boxes))
        moved_points = Moves.from_placements(
            placements, counts * points_per_object
        ).move_keypoints(points)
        values[KEYPOINTS] = with_numbers(values[KEYPOINTS].type, moved_points.ravel())
    starts = offsets_of(counts)
    kept_counts = np.diff(offsets_of(kept_mask.astype(np.int64))[starts])
    mask, offsets = pa.array(kept_mask), pa.array(offsets_of(kept_counts), pa.int32())
    lists = {
        name: pa.ListArray.from_arrays(offsets, flat_column.filter(mask))
        for name, flat_column in values.items()
    }
    return {**columns, **lists}, counts - kept_counts


def numbers_in(values: pa.Array) -> npt.NDArray[Any]:
    """Returns the numbers in fixed-size lists of any depth."""
    while pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    return np.asarray(values.to_numpy(zero_copy_only=False))


def with_numbers(kind: pa.DataType, numbers: npt.NDArray[Any]) -> pa.Array:
    """Returns numbers as an array of a type, which may be fixed-size lists."""
    if not pa.types.is_fixed_size_list(kind):
        return pa.array(numbers, kind)
    inner = with_numbers(kind.value_type, numbers)
    return pa.FixedSizeListArray.from_arrays(inner, kind.list_size)


def _areas(boxes: Floats) -> Floats:
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(axis=1))
