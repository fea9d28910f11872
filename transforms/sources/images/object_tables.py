"""Defines the objects in images, and makes a table of them with a row for each image.

Files of any format become such a table. Its rows are joined with the images as those of
other tables are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputWarning
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.images.objects import BOX
from recordmill.transforms.sources.images.annotations import PROBLEM, STATED
from recordmill.transforms.sources.images.tables import (
    FEATURE,
    LABEL,
    SPLIT,
    LabelTable,
)

F64 = npt.NDArray[np.float64]

OTHERWISE = "or use `annotations=none` for images without boxes"


NO_OUTLINE = "[]"  # of an object where others have one


class ObjectFiles(NamedTuple):
    """The objects of images, and the files that have them."""

    tables: tuple[LabelTable, ...]  # a row for each image
    classes: tuple[str, ...]  # in their order; () for that of their names
    facts: tuple[tuple[str, str], ...]
    used: frozenset[str]  # the paths of all files that were read
    # (split, file) of lists of the images of a split
    lists: tuple[tuple[str, InputFile], ...] = ()
    warnings: tuple[InputWarning, ...] = ()


NO_OBJECTS = ObjectFiles((), (), (), frozenset())


def side_of(value: str | None) -> float:
    """Returns a side of an image that a file states; NaN if it states none.

    Raises:
      ValueError, TypeError: it is not a number.
    """
    side = float(value or "nan")
    return side if side.is_integer() and 0 < side < 1 << 31 else np.nan


class Objects(NamedTuple):
    """Objects in the order of their images."""

    paths: list[str]  # of the images
    sizes: F64  # height and width of each, as they are stated, or NaN
    problems: dict[int, str]  # why an image is a reject, by its index
    images: I64  # the index of each object's image, rising
    boxes: F64  # ymin, xmin, ymax, xmax of each, over the size
    labels: pa.StringArray  # the name of each one's class
    more: dict[str, pa.Array]  # other values of each, by name


# The boxes of YOLO have six digits: what is this little outside was rounded.
_ROUNDING = 2e-6


_LEAST = 10  # boxes that tell something


def _require_likely(
    found: Objects, clipped: F64, is_empty: npt.NDArray[np.bool_]
) -> None:
    """Refuses boxes most of which are not where objects can be.

    These have no area in their image, or most of it outside, or are within a pixel.

    Raises:
      InputError: they may be in other units, or their sides mean something else.
    """
    boxes = found.boxes
    before, after = (
        (each[:, 2:] - each[:, :2]).prod(axis=1) for each in (boxes, clipped)
    )
    pixels = found.sizes[found.images].prod(axis=1)  # NaN where none is stated
    odd = is_empty | (2 * after < before) | (after * pixels <= 1)
    if len(boxes) >= _LEAST and 2 * np.count_nonzero(odd) > len(boxes):
        at = int(np.flatnonzero(odd)[0])
        box = ", ".join(f"{side:g}" for side in boxes[at])
        raise InputError(
            f"{np.count_nonzero(odd):,} of {count(len(boxes), 'box')} lie outside of their "
            f"images, or have no area there, such as that of a {shown(found.labels[at].as_py())} "
            f"in {found.paths[found.images[at]]}: ymin, xmin, ymax, xmax are {box} of its "
            "size. Expected are x, y, width and height in pixels in COCO, and the middle, "
            "width and height as parts of the sides in YOLO. Correct them, or use "
            "`boxes_outside=keep` to take them as they are, or `boxes_outside=reject`"
        )


def table_of(
    found: Objects, splits: Sequence[str], rule: str, outside: Counter[str]
) -> pa.Table:
    """Returns a row for each image, with its objects as lists.

    `outside` counts boxes that are not inside the image, and those without an area.
    """
    boxes, problems = found.boxes, dict(found.problems)
    clipped = boxes.clip(0, 1)
    is_outside = np.any((boxes < -_ROUNDING) | (boxes > 1 + _ROUNDING), axis=1)
    is_empty = np.any(clipped[:, :2] >= clipped[:, 2:], axis=1)
    outside["outside"] += int(np.count_nonzero(is_outside & ~is_empty))
    outside["empty"] += int(np.count_nonzero(is_empty))
    kept: npt.NDArray[np.bool_] = np.ones(len(boxes), np.bool_)
    if rule == "clip":
        _require_likely(found, clipped, is_empty)
        boxes, kept = clipped, ~is_empty
    for at in np.flatnonzero(is_outside | is_empty) if rule == "reject" else ():
        box = ", ".join(f"{side:g}" for side in boxes[at])
        what = "has no area in it" if is_empty[at] else "is not inside it"
        problems.setdefault(
            int(found.images[at]),
            f"the box of a {shown(found.labels[at].as_py())} {what}: ymin, xmin, ymax, xmax are "
            f"{box} of its size, expected 0 to 1. Correct it, or use `boxes_outside=clip`",
        )
    with np.errstate(over="ignore"):
        narrow = boxes.astype(np.float32)
    for at in np.flatnonzero(~np.isfinite(narrow).all(axis=1)):
        what = f"the box of a {shown(found.labels[at].as_py())} is too large for float32. Correct it"
        problems.setdefault(int(found.images[at]), what)
    size = len(found.paths)
    offsets = offsets_of(np.bincount(found.images[kept], minlength=size))
    order = pa.array(np.flatnonzero(kept))
    flat = pa.array(narrow.ravel())
    columns = {
        LABEL: found.labels,
        FEATURE + BOX: pa.FixedSizeListArray.from_arrays(flat, 4),
        **{
            f"{FEATURE}objects/{name}": each
            for name, each in found.more.items()
            if name != "segmentation" or pc.any(pc.not_equal(each, NO_OUTLINE)).as_py()
        },
    }
    lists = {
        name: pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), column if kept.all() else column.take(order)
        )
        for name, column in columns.items()
    }
    reasons = [problems.get(at) for at in range(size)] if problems else [None] * size
    return pa.table(
        {
            "path": pa.array(found.paths, pa.string()),
            **({SPLIT: pa.array(splits, pa.string())} if splits else {}),
            PROBLEM: pa.array(reasons, pa.string()),
            **{
                name: pa.array(side, pa.float64(), from_pandas=True).cast(pa.int64())
                for name, side in zip(STATED, found.sizes.T, strict=True)
            },
            **lists,
        }
    )


def outside_facts(outside: Counter[str], rule: str) -> list[tuple[str, str]]:
    """Returns what was done with boxes that are not inside their images."""
    done = {
        "clip": ("clipped", "left out"),
        "keep": ("kept", "kept"),
        "reject": ("their images rejected", "their images rejected"),
    }[rule]
    told = [
        f"{count(outside[name], 'object')} {what}: {way}"
        for name, what, way in zip(
            ("outside", "empty"),
            ("beyond the image", "without an area in it"),
            done,
            strict=True,
        )
        if outside[name]
    ]
    return [("boxes outside", "; ".join(told))] if told else []
