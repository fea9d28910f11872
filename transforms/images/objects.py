"""Moves boxes and points of objects with the pixels of their image.

Boxes are ymin, xmin, ymax, xmax in parts of the image's height and width. Points are
x, y in pixels: 0.0 is the edge of the first one for an outline; a keypoint is the number
of a pixel, whose middle is at 0.5. What moves them is a `Placement`, one for each image,
and all of a batch move at once.
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

# How cameras store what viewers turn upright; decoders of TensorFlow do not turn it.
#     1  as it is        2  mirrored           3  upside down     4  both
#     5  6  7  8         rows and columns are exchanged, too, once it is flipped
UPRIGHT, FIRST_EXCHANGED = 1, 5
TURNED_BACK = (1, 1, 2, 3, 4, 5, 8, 7, 6)  # what undoes each orientation
FLIPS_X, FLIPS_Y = (2, 3, 7, 8), (3, 4, 6, 7)


class Placement(NamedTuple):
    """Where an image lies in what is made of it: turned, scaled, then cropped or padded."""

    orientation: int  # of EXIF, by which it is turned
    turned: Sides  # its size then
    scaled: Sides  # and once it is scaled
    corner: Sides  # its top and left in the result; below 0 where it is cropped
    size: Sides  # of the result

    @classmethod
    def of(cls, size: Sides, orientation: int = UPRIGHT) -> Self:
        """Returns that of an image of this size which is turned alone."""
        turned = size[::-1] if orientation >= FIRST_EXCHANGED else size
        return cls(orientation, turned, turned, (0, 0), turned)

    @property
    def moves(self) -> bool:
        """Tests whether a box has another place in the result."""
        return self != Placement.of(self.size)

    def from_turned(self, orientation: int) -> Placement:
        """Returns that of what lies on the image as EXIF turns it, by this orientation.

        Where the result is not turned, it is turned back.
        """
        is_turned = self.orientation == orientation
        turn = UPRIGHT if is_turned else TURNED_BACK[orientation]
        return self._replace(orientation=turn)


@dataclass(frozen=True, slots=True)
class Moves:
    """The placements of some objects, one a row."""

    orientations: I64
    turned: I64  # of two columns, as all below
    scaled: I64
    corners: I64
    sizes: I64

    @classmethod
    def of(cls, placements: Sequence[Placement], counts: Any) -> Self:
        """Returns those of the objects of images that have so many each."""
        columns = zip(*placements, strict=True)
        return cls(*(np.repeat(np.array(each), counts, 0) for each in columns))

    @property
    def frames(self) -> I64:
        """Returns the size of the image that objects are on, before it is turned."""
        exchanged = self.orientations >= FIRST_EXCHANGED
        return np.where(exchanged[:, None], self.turned[:, ::-1], self.turned)

    @property
    def growth(self) -> Floats:
        """Returns by which factor areas in pixels grow."""
        return np.asarray((self.scaled / self.turned).prod(axis=1))

    def moved(self, boxes: npt.NDArray[Any]) -> Floats:
        """Returns boxes in the frame of the result, from which they may reach out.

        A box of the upper left quarter of an image that is turned by 6 lies in the upper
        right quarter of the result: (0, 0, .5, .5) becomes (0, .5, .5, 1).
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

    def clipped(self, boxes: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Returns moved boxes, clipped where images are cropped, and which are left.

        A box that reached out of its image before does so along a side that is not cropped.
        """
        cropped = np.tile(self.scaled > self.sizes, 2)
        within = np.where(cropped, boxes.clip(0, 1), boxes)
        near = boxes.round(6)  # an edge of float32 at 0 or 1 may be a little off
        outside = (near[:, 2:] <= 0) | (near[:, :2] >= 1)
        return within, np.logical_not((outside & cropped[:, :2]).any(axis=1))

    def moved_points(self, points: npt.NDArray[Any]) -> Floats:
        """Returns points (x, y), one a row, in pixels of the result."""
        parts = points[:, ::-1] / self.frames
        return self.moved(np.tile(parts, 2))[:, 1::-1] * self.sizes[:, ::-1]

    def moved_keypoints(self, keypoints: npt.NDArray[Any]) -> Floats:
        """Returns keypoints (x, y, how it is seen), one a row, in pixels of the result.

        One that is not labelled, or is cropped away, becomes 0, 0, 0.
        """
        points = self.moved_points(keypoints[:, :2] + 0.5)
        cropped = (self.scaled > self.sizes)[:, ::-1]
        near = points.round(6)  # as above
        outside = (near < 0) | (near >= self.sizes[:, ::-1])
        gone = (keypoints[:, 2] == 0) | (outside & cropped).any(axis=1)
        moved = np.column_stack([points - 0.5, keypoints[:, 2]])
        return np.where(gone[:, None], 0, moved)


def move_objects(
    columns: Mapping[str, pa.Array], placements: Sequence[Placement]
) -> tuple[dict[str, pa.Array], I64]:
    """Returns columns of images with their objects moved, and how many fell out of each.

    An object falls out where the part of the image that it lies on is cropped away. Outlines
    move one by one (see transforms/images/outlines.py): here they are dropped alone.
    """
    if not any(each.moves for each in placements):
        return {**columns}, np.zeros(len(placements), np.int64)
    counts = pc.list_value_length(columns[BOX]).to_numpy()
    values = {n: each.flatten() for n, each in columns.items() if n.startswith(OBJECTS)}
    moves = Moves.of(placements, counts)
    moved = moves.moved(numbers_in(values[BOX]).reshape(-1, 4))
    boxes, kept = moves.clipped(moved)
    values[BOX] = with_numbers(BOXES, boxes.ravel())
    if AREA in values:
        whole, part = _areas(moved), _areas(boxes)
        shares = np.divide(part, whole, out=np.ones(len(whole)), where=whole > 0)
        areas = numbers_in(values[AREA]) * moves.growth * shares
        values[AREA] = pa.array(areas).cast(values[AREA].type, safe=False)
    if KEYPOINTS in values:
        points = numbers_in(values[KEYPOINTS]).reshape(-1, 3)
        each = len(points) // max(1, len(boxes))
        moved_points = Moves.of(placements, counts * each).moved_keypoints(points)
        values[KEYPOINTS] = with_numbers(values[KEYPOINTS].type, moved_points.ravel())
    starts = offsets_of(counts)
    left = np.diff(offsets_of(kept.astype(np.int64))[starts])
    mask, offsets = pa.array(kept), pa.array(offsets_of(left), pa.int32())
    lists = {
        name: pa.ListArray.from_arrays(offsets, each.filter(mask))
        for name, each in values.items()
    }
    return {**columns, **lists}, counts - left


def numbers_in(values: pa.Array) -> npt.NDArray[Any]:
    """Returns the numbers in fixed lists."""
    while pa.types.is_fixed_size_list(values.type):
        values = values.flatten()
    return np.asarray(values.to_numpy(zero_copy_only=False))


def with_numbers(kind: pa.DataType, numbers: npt.NDArray[Any]) -> pa.Array:
    """Returns numbers as values of a type: in fixed lists, if it is one of these."""
    if not pa.types.is_fixed_size_list(kind):
        return pa.array(numbers, kind)
    inner = with_numbers(kind.value_type, numbers)
    return pa.FixedSizeListArray.from_arrays(inner, kind.list_size)


def _areas(boxes: Floats) -> Floats:
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(axis=1))
