"""Outlines in pixels and in parts of the sides are the same once they lie on an image."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from PIL import Image

from recordmill.transforms.images.objects import Placement
from recordmill.transforms.images.outlines import place_outline


@pytest.mark.parametrize("orientation", [1, 6, 7])
def test_parts_become_pixels(orientation: int) -> None:
    placement = Placement.turned_only((20, 40), orientation)
    pixels = [[4, 5, 20, 5, 20, 15, 4, 15]]
    parts = [[0.1, 0.25, 0.5, 0.25, 0.5, 0.75, 0.1, 0.75]]
    one, other = (json.dumps(each) for each in (pixels, parts))
    (wanted, mask), (found, other_mask) = (
        place_outline(each, placement, in_parts=each is other, draws=True)
        for each in (one, other)
    )
    assert json.loads(found) == json.loads(wanted)
    masks = (mask, other_mask)
    drawn, same = (np.asarray(Image.open(io.BytesIO(each))) for each in masks)
    assert drawn.sum() == 16 * 10
    assert np.array_equal(drawn, same)
