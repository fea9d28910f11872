"""Outlines in pixels and in parts of the sides are the same once they lie on an image."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.objects import Placement
from recordmill.transforms.images.outlines import mask_of, move_outline


@pytest.mark.parametrize("orientation", [1, 6, 7])
def test_parts_become_pixels(orientation: int) -> None:
    placement = Placement.of((20, 40), orientation)
    pixels = [[4, 5, 20, 5, 20, 15, 4, 15]]
    parts = [[0.1, 0.25, 0.5, 0.25, 0.5, 0.75, 0.1, 0.75]]
    one, other = (json.dumps(each) for each in (pixels, parts))
    wanted = move_outline(one, placement, in_parts=False)
    assert json.loads(move_outline(other, placement, in_parts=True)) == json.loads(
        wanted
    )
    masks = (
        mask_of(one, placement, in_parts=False),
        mask_of(other, placement, in_parts=True),
    )
    drawn, same = (np.asarray(Image.open(io.BytesIO(each))) for each in masks)
    assert drawn.sum() == 16 * 10
    assert np.array_equal(drawn, same)
