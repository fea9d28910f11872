"""Defines the objects in images, and converts them to a table with a row for each image.

Annotation files of every format become such a table. Its rows are joined with the images
in the same way as the rows of other tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.images.objects import BOX, BOXES, OBJECTS, with_numbers
from recordmill.transforms.sources.images.annotation_draft import PROBLEM, STATED_SIZES
from recordmill.transforms.sources.images.tables import (
    FEATURE,
    LABEL,
    SPLIT,
    LabelTable,
    Raw,
    no_raw,
)

F64 = npt.NDArray[np.float64]

WITHOUT_BOXES_HINT = (
    "or use `annotations=none` for images without boxes, and `label_from=none` if they "
    "have no classes"
)
_OUTLINE, NO_OUTLINE = "segmentation", "[]"  # column; cell of an object without outline
# Boxes of YOLO have six digits: a box may exceed the image by this much due to rounding.
_ROUNDING_ERROR = 2e-6
_MIN_BOXES = 10  # boxes, for a check of their units
_BEYOND, _EMPTY = "beyond the image", "without an area in it"


def parse_side(stated_side: str | None) -> float:
    """Returns the image height or width that a file states; NaN if it states none.

    Raises:
      ValueError: the text is not a number.
      TypeError: the JSON value is neither a text nor a number.
    """
    side = float(stated_side or "nan")
    return side if side.is_integer() and 0 < side < 1 << 31 else np.nan


class ImageObjects(NamedTuple):
    """The objects in the images of one or several annotation files, sorted by image."""

    file: InputFile  # the annotation file, or the first of several
    paths: list[str]  # of the images
    sizes: F64  # the stated height and width of each image, or NaN
    problems: Mapping[int, str]  # why an image is a reject, by its index
    image_indices: I64  # the index of each object's image, ascending
    boxes: F64  # ymin, xmin, ymax, xmax of each object, as fractions of the image size
    labels: pa.StringArray  # the class name of each object
    more_columns: dict[
        str, pa.Array
    ]  # further columns with a cell for each object, by name
    splits: Sequence[str] = ()  # the splits of the images, if known
    # as in LabelTable
    raw: Raw = no_raw
    checksums: tuple[FileChecksum, ...] = ()
    rejects: tuple[Reject, ...] = ()

    def describe_box(self, at: Any) -> tuple[str, str]:
        """Returns the class and the box of an object as text, given its index."""
        box = ", ".join(f"{side:g}" for side in self.boxes[at])
        return shorten(self.labels[at].as_py()), box


def build_tables(
    objects_of_files: Sequence[ImageObjects], rule: str
) -> tuple[tuple[LabelTable, ...], list[tuple[str, str]]]:
    """Returns tables with a row of lists of objects for each image, and facts.

    Every table has the columns of all files. If a file lacks a column, its cells are 0,
    or NO_OUTLINE.

    Args:
      objects_of_files: the objects of each file.
      rule: `boxes_outside` of the job.
    """
    kinds = dict[str, tuple[pa.DataType, str]]()
    for objects in objects_of_files:
        for name, column in objects.more_columns.items():
            kind, other = kinds.setdefault(name, (column.type, objects.file.uri))
            if kind != column.type:
                raise InputError(
                    f"{objects.file.uri}: {OBJECTS}{name} is {column.type}, but {kind} in "
                    f"{other}; expected the same number in all files: convert them one "
                    "by one"
                )
    outlines = [
        objects.more_columns[_OUTLINE]
        for objects in objects_of_files
        if _OUTLINE in objects.more_columns
    ]
    if not any(
        pc.any(pc.not_equal(outline_column, NO_OUTLINE)).as_py()
        for outline_column in outlines
    ):
        kinds.pop(_OUTLINE, None)
    outside = Counter[str]()
    tables = []
    for objects in objects_of_files:
        more_columns = {
            name: objects.more_columns[name]
            if name in objects.more_columns
            else pa.array([_default_cell(kind)] * len(objects.boxes), kind)
            for name, (kind, _) in kinds.items()
        }
        rows = _build_rows(objects._replace(more_columns=more_columns), rule, outside)
        checksums_and_rejects = objects.checksums, objects.rejects
        tables.append(
            LabelTable(objects.file, "", rows, objects.raw, *checksums_and_rejects)
        )
    action = {"keep": "kept", "reject": "their images rejected"}.get(rule)
    box_counts = [
        f"{format_count(outside[problem], 'object')} {problem}: {action or way}"
        for problem, way in ((_BEYOND, "clipped"), (_EMPTY, "left out"))
        if outside[problem]
    ]
    return tuple(tables), [
        ("boxes outside", "; ".join(box_counts))
    ] if box_counts else []


def _default_cell(kind: pa.DataType) -> Any:
    if pa.types.is_fixed_size_list(kind):
        return [_default_cell(kind.value_type)] * kind.list_size
    return NO_OUTLINE if pa.types.is_string(kind) else 0


def _require_plausible_boxes(
    objects: ImageObjects, clipped: F64, is_empty: npt.NDArray[np.bool_]
) -> None:
    """Checks that most boxes are in their images.

    A box is implausible if it has no area in its image, has most of its area outside, or
    is no larger than a pixel.

    Raises:
      InputError: most boxes are implausible. They may have other units, or another order
        of their sides.
    """
    boxes = objects.boxes
    areas, clipped_areas = (
        (corners[:, 2:] - corners[:, :2]).prod(axis=1) for corners in (boxes, clipped)
    )
    pixels = objects.sizes[objects.image_indices].prod(
        axis=1
    )  # NaN where none is stated
    is_odd = is_empty | (2 * clipped_areas < areas) | (clipped_areas * pixels <= 1)
    if len(boxes) >= _MIN_BOXES and 2 * np.count_nonzero(is_odd) > len(boxes):
        at = int(np.flatnonzero(is_odd)[0])
        label, box = objects.describe_box(at)
        raise InputError(
            f"{np.count_nonzero(is_odd):,} of {format_count(len(boxes), 'box')} are outside "
            f"their images or have no area there, such as the box of a {label} in "
            f"{objects.paths[objects.image_indices[at]]}: ymin, xmin, ymax, xmax are {box} of its "
            "size. Expected x, y, width and height in pixels (COCO), or center, width "
            "and height as fractions of the image (YOLO). Correct them, or use "
            "`boxes_outside=keep` to keep them unchanged, or `boxes_outside=reject`"
        )


def _build_rows(objects: ImageObjects, rule: str, outside: Counter[str]) -> pa.Table:
    """Returns a table with a row for each image; counts boxes outside of their image.

    Args:
      objects: of a file.
      rule: `boxes_outside` of the job.
      outside: the counts by problem, which are increased.
    """
    boxes, problems = objects.boxes, dict(objects.problems)
    clipped = boxes.clip(0, 1)
    is_outside = np.any(
        (boxes < -_ROUNDING_ERROR) | (boxes > 1 + _ROUNDING_ERROR), axis=1
    )
    is_empty = np.any(clipped[:, :2] >= clipped[:, 2:], axis=1)
    outside[_BEYOND] += int(np.count_nonzero(is_outside & ~is_empty))
    outside[_EMPTY] += int(np.count_nonzero(is_empty))
    is_kept: npt.NDArray[np.bool_] = np.ones(len(boxes), np.bool_)
    if rule == "clip":
        _require_plausible_boxes(objects, clipped, is_empty)
        boxes, is_kept = clipped, ~is_empty
    for at in np.flatnonzero(is_outside | is_empty) if rule == "reject" else ():
        label, box = objects.describe_box(at)
        problem = "has no area in it" if is_empty[at] else "is not inside it"
        problems.setdefault(
            int(objects.image_indices[at]),
            f"the box of a {label} {problem}: ymin, xmin, ymax, xmax are "
            f"{box} of its size, expected 0 to 1. Correct it, or use `boxes_outside=clip`",
        )
    with np.errstate(over="ignore"):
        narrow = boxes.astype(np.float32)
    for at in np.flatnonzero(~np.isfinite(narrow).all(axis=1)):
        label, _ = objects.describe_box(at)
        problem = f"the box of a {label} is too large for float32. Correct it"
        problems.setdefault(int(objects.image_indices[at]), problem)
    size = len(objects.paths)
    starts = offsets_of(np.bincount(objects.image_indices[is_kept], minlength=size))
    offsets, mask = pa.array(starts, pa.int32()), pa.array(is_kept)
    of_objects = {
        LABEL: objects.labels,
        FEATURE + BOX: with_numbers(BOXES, narrow.ravel()),
        **{
            f"{FEATURE}{OBJECTS}{name}": cells
            for name, cells in objects.more_columns.items()
        },
    }
    columns = {"path": pa.array(objects.paths, pa.string())}
    if len(objects.splits):
        columns[SPLIT] = pa.array(objects.splits, pa.string())
    reasons = [problems.get(at) for at in range(size)] if problems else [None] * size
    columns[PROBLEM] = pa.array(reasons, pa.string())
    for name, sides in zip(STATED_SIZES, objects.sizes.T, strict=True):
        columns[name] = pa.array(sides, from_pandas=True).cast(pa.int64())
    for name, column in of_objects.items():
        kept_cells = column if is_kept.all() else column.filter(mask)
        columns[name] = pa.ListArray.from_arrays(offsets, kept_cells)
    return pa.table(columns)
