"""Boxes and keypoints move as the pixels they lie on do, in Pillow's hands."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from recordmill.transforms.images.header import (
    MAX_PIXELS,
    ImageHeaderError,
    may_have_exif,
    read_header,
)
from recordmill.transforms.images.objects import Moves, Placement
from recordmill.transforms.images.pixel_rules import PixelRules, Resize
from recordmill.transforms.images.transform import place_objects, transform_image

AS_PNG = PixelRules(encoding="png", transforms_all=True)


def stored(shown: Image.Image, orientation: int) -> tuple[bytes, Image.Image]:
    """Returns a PNG that viewers turn into this image, and the image as it is stored."""
    exif = Image.Exif()
    exif[0x112] = {6: 8, 8: 6}.get(orientation, orientation)  # the way back
    buffer = io.BytesIO()
    shown.save(buffer, "PNG", exif=exif)
    as_stored = ImageOps.exif_transpose(Image.open(buffer))
    exif[0x112] = orientation
    buffer = io.BytesIO()
    as_stored.save(buffer, "PNG", exif=exif)
    return buffer.getvalue(), as_stored


def drawn(size: tuple[int, int], box: tuple[int, int, int, int]) -> Image.Image:
    """Returns a black image of this height and width with a white box."""
    image = Image.new("L", size[::-1])
    image.paste(255, (box[1], box[0], box[3], box[2]))
    return image


def found(image: Image.Image) -> list[int] | None:
    """Returns where an image is white: ymin, xmin, ymax, xmax."""
    box = image.getbbox()
    return box and [box[1], box[0], box[3], box[2]]


def in_pillow(image: Image.Image, rules: PixelRules) -> Image.Image:
    if rules.resize is not None and rules.resize.sides is not None:
        image = image.resize(rules.resize.sides[::-1], Image.Resampling.NEAREST)
    if rules.crop is not None:
        height, width = rules.crop
        left, top = (image.width - width) // 2, (image.height - height) // 2
        image = image.crop((left, top, left + width, top + height))
    if rules.pad is not None:
        height, width = rules.pad
        left, top = (width - image.width) // 2, (height - image.height) // 2
        image = ImageOps.expand(
            image, (left, top, width - image.width - left, height - image.height - top)
        )
    return image


@given(data=st.data())
@examples(400)
def test_a_box_moves_as_its_pixels_do(data: st.DataObject) -> None:
    def number(low: int, high: int) -> int:
        return data.draw(st.integers(low, high))

    height, width = number(1, 12), number(1, 12)
    top, left = number(0, height - 1), number(0, width - 1)
    box = (top, left, number(top + 1, height), number(left + 1, width))
    orientation, turns = number(1, 8), data.draw(st.booleans())
    on_shown = data.draw(st.booleans())
    image = drawn((height, width), box)
    if on_shown:
        file, other = stored(image, orientation)
        result = image if turns else other
    else:
        exif = Image.Exif()
        exif[0x112] = orientation
        image.save(buffer := io.BytesIO(), "PNG", exif=exif)
        file = buffer.getvalue()
        result = ImageOps.exif_transpose(Image.open(buffer)) if turns else image
    # Swapped sides are those of what is shown; equal ones those of the file.
    header = read_header(file)
    stated: Any = (height, width)
    is_stored = stated == (header.height, header.width)
    if on_shown and is_stored:
        stated = None  # as YOLO's
    rules = replace(AS_PNG, turns=turns)
    down, across = number(1, 3), number(1, 3)
    size = result.height * down, result.width * across
    rules = replace(rules, resize=Resize(sides=size))
    how = data.draw(st.sampled_from(["", "crop", "pad"]))
    if how == "crop":
        rules = replace(rules, crop=(number(1, size[0]), number(1, size[1])))
    if how == "pad":
        rules = replace(rules, pad=(size[0] + number(0, 5), size[1] + number(0, 5)))
    made = transform_image(file, header, rules, MAX_PIXELS)
    assert made is not None
    placement = place_objects(file, header, stated, made, MAX_PIXELS)
    wanted = in_pillow(result, rules)
    assert (made.header.height, made.header.width) == placement.size
    assert placement.size == (wanted.height, wanted.width)
    moves = Moves.from_placements([placement], [1])
    assert moves.image_sizes.tolist() == [[height, width]]
    moved, kept = moves.clip_boxes(
        moves.move_boxes(np.array([box]) / np.tile((height, width), 2))
    )
    in_pixels = np.rint(moved[0] * np.tile(placement.size, 2)).astype(int).tolist()
    assert np.allclose(moved[0] * np.tile(placement.size, 2), in_pixels)
    assert (in_pixels if kept[0] else None) == found(wanted)
    # Its first pixel is a keypoint, its middle that of all pixels that it became.
    keypoint = moves.move_keypoints(np.array([[box[1], box[0], 2.0]]))[0]
    one = drawn((height, width), (top, left, top + 1, left + 1))
    if on_shown and not turns:
        one = stored(one, orientation)[1]
    elif not on_shown and turns:
        one = ImageOps.exif_transpose(with_exif(one, orientation))
    # Where a part of a pixel is cropped away, its middle may be, too.
    uncropped = replace(rules, crop=None)
    pixel = found(in_pillow(one, uncropped))
    assert pixel is not None
    middle = [(pixel[1] + pixel[3]) / 2 - 0.5, (pixel[0] + pixel[2]) / 2 - 0.5]
    if how == "crop" and rules.crop is not None:
        middle[0] -= (size[1] - rules.crop[1]) // 2
        middle[1] -= (size[0] - rules.crop[0]) // 2
        is_left = all(
            -0.5 <= at < side - 0.5
            for at, side in zip(middle, rules.crop[::-1], strict=True)
        )
        if not is_left:
            assert keypoint.tolist() == [0, 0, 0]
            return
    assert np.allclose(keypoint, [*middle, 2])


def with_exif(image: Image.Image, orientation: int) -> Image.Image:
    exif = Image.Exif()
    exif[0x112] = orientation
    image.save(buffer := io.BytesIO(), "PNG", exif=exif)
    return Image.open(buffer)


def test_what_is_not_labelled_stays_at_zero() -> None:
    placement = Placement.turned_only((10, 20), 6)
    moves = Moves.from_placements([placement], [2])
    moved = moves.move_keypoints(np.array([[0, 0, 0.0], [0, 0, 1]]))
    # Turned clockwise, the pixel at the upper left is at the upper right, of 10 x 20.
    assert moved.tolist() == [[0, 0, 0], [9, 0, 1]]


def test_boxes_of_several_images_move_at_once() -> None:
    placements = [
        Placement.turned_only((2, 4)),
        Placement.turned_only((2, 4), 3),
        Placement.turned_only((2, 4)),
    ]
    moves = Moves.from_placements(placements, [1, 2, 0])
    boxes = np.array([[0, 0, 0.5, 0.25]] * 3)
    assert moves.move_boxes(boxes).tolist() == [
        [0, 0, 0.5, 0.25],
        [0.5, 0.75, 1, 1],
        [0.5, 0.75, 1, 1],
    ]
    assert [each.has_moved for each in placements] == [False, True, False]


@pytest.mark.parametrize(
    ("stated", "orientation"), [((5, 4), 6), ((3, 4), 3), ((4, 3), 3)]
)
def test_sizes_that_disagree(stated: tuple[int, int], orientation: int) -> None:
    """The image has 3 x 4 pixels as it is stored: swapped only if EXIF exchanges sides."""
    with_exif(Image.new("L", (4, 3)), orientation).save(
        buffer := io.BytesIO(), "JPEG", exif=_exif(orientation)
    )
    file = buffer.getvalue()
    if stated == (3, 4):
        placement = place_objects(file, read_header(file), stated, None, MAX_PIXELS)
        assert not placement.has_moved
        return
    with pytest.raises(ImageHeaderError, match=r"has 3 x 4 pixels, but .* of [45] x"):
        place_objects(file, read_header(file), stated, None, MAX_PIXELS)


def _exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x112] = orientation
    return exif


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"])
def test_only_what_may_be_turned_is_opened(form: str) -> None:
    image = Image.new("RGB", (8, 8))
    can = form not in ("GIF", "BMP")
    for orientation in (None, 6):
        options = {"exif": _exif(orientation)} if orientation and can else {}
        image.save(buffer := io.BytesIO(), form, **options)
        needs = bool(options) or form in ("WEBP", "TIFF")
        kind = read_header(buffer.getvalue()).format
        assert may_have_exif(buffer.getvalue(), kind) == needs
