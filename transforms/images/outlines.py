"""Moves the outlines of objects, and draws them as masks, with COCO's tools.

An outline is JSON text: a list of polygons, each x, y, x, y, ... in pixels, or the run
lengths of a mask (RLE): {"size": [height, width], "counts": ...}, as numbers or as text
in the packed form of COCO's tools.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from PIL import Image

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_text import as_input_error, describe_failure, parse_json
from recordmill.transforms.images.header import ImageHeaderError
from recordmill.transforms.images.objects import Moves, Placement
from recordmill.transforms.images.transform import place_mask, write_png

_DIGITS = 2  # decimals of a pixel, as in COCO's files


def place_outline(
    text: str, placement: Placement, *, in_parts: bool, draws: bool
) -> tuple[str, bytes]:
    """Returns an outline moved to the result, which polygons may exceed, and its mask.

    Args:
      text: the outline.
      placement: the position of the image in the result.
      in_parts: the coordinates are fractions of the sides, as in YOLO; the result has
        pixels.
      draws: draw the mask, a PNG with 1 inside and 0 outside; otherwise it is b"".

    Raises:
      ImageHeaderError: the text is not an outline, or is for an image of another size.
    """
    outline, moved = _parse_outline(text, placement, in_parts=in_parts), list[Any]()
    reads_mask = isinstance(outline, dict) and placement.has_moved
    mask = _draw_mask(outline, placement) if draws or reads_mask else None
    if reads_mask:
        run_lengths = _coco().encode(np.asfortranarray(mask))
        runs = {"size": run_lengths["size"], "counts": run_lengths["counts"].decode()}
        text = json.dumps(runs, separators=(",", ":"))
    elif placement.has_moved or in_parts:
        for ring in outline:
            points = np.array(ring, np.float64).reshape(-1, 2)
            moves = Moves.from_placements([placement], [len(points)])
            moved.append(moves.move_points(points).round(_DIGITS).ravel().tolist())
        text = json.dumps(moved, separators=(",", ":"))
    return text, b"" if mask is None or not draws else write_png(mask)


def _parse_outline(
    text: str, placement: Placement, *, in_parts: bool
) -> dict[str, Any] | list[Sequence[float]]:
    with suppress(InputError), as_input_error("segmentation", "an outline"):
        outline = parse_json(text, "segmentation")
        if isinstance(outline, dict):
            (height, width), counts = outline["size"], outline["counts"]
            packed = counts.encode() if isinstance(counts, str) else counts
            return {"size": [int(height), int(width)], "counts": packed}
        # Four numbers would be a box.
        if all(len(ring) >= 6 and not len(ring) % 2 for ring in outline):
            ((height, width),) = Moves.from_placements(
                [placement], [1]
            ).image_sizes.tolist()
            scale = (width, height) if in_parts else (1, 1)
            rings = (np.array(ring, np.float64).reshape(-1, 2) for ring in outline)
            return [(ring * scale).ravel().tolist() for ring in rings]
    raise ImageHeaderError(
        f"has an outline {text[:60]!r} (expected polygons of three points or more, or run "
        "lengths with their size); correct it in its annotations"
    )


def _draw_mask(outline: Any, placement: Placement) -> Image.Image:
    coco = _coco()
    (frame,) = Moves.from_placements([placement], [1]).image_sizes.tolist()
    try:
        if isinstance(outline, dict):
            if outline["size"] != frame:
                raise ValueError(f"it is of {outline['size']} pixels")
            if isinstance(outline["counts"], list):
                outline = coco.frPyObjects(outline, *frame)
        else:
            outline = coco.merge(coco.frPyObjects(outline, *frame)) if outline else None
        empty = np.zeros(frame, np.uint8)
        mask = empty if outline is None else np.ascontiguousarray(coco.decode(outline))
    except Exception as error:  # pycocotools raises errors of any type for invalid text
        raise ImageHeaderError(
            f"has an outline that cannot be drawn on {frame[0]:,} x {frame[1]:,} pixels: "
            f"{describe_failure(error)}; correct it in its annotations"
        ) from error
    return place_mask(Image.fromarray(mask), placement, 0)


def _coco() -> Any:
    try:
        from pycocotools import mask
    except ImportError as error:
        raise UsageError(
            "`masks=png`, and run lengths on images that are transformed, need the package "
            f"pycocotools, which is not installed ({error}): pip install pycocotools, or pip "
            "install '.[coco]' in the folder of recordmill's source"
        ) from error
    return mask
