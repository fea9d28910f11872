"""Damaged images whose pixels are made anew: an image as told, or a reason."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from example_counts import FUZZ
from mutations import damaged
from PIL import Image
from pixel_zoo import IMAGES, encode

from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeaderError, read_header
from recordmill.transforms.images.pixel_rules import Form, PixelRules, Resize
from recordmill.transforms.images.transform import transform_image

pytestmark = pytest.mark.fuzz

FORMS: tuple[Form, ...] = ("own", "raw", "jpeg", "webp", "png")
RULES = [
    PixelRules(turns=True, resize=Resize(shorter=9), crop=(9, 8), transforms_all=True),
    PixelRules(turns=True, resize=Resize(longer=6), pad=(6, 7), transforms_all=True),
    PixelRules(turns=True, rejects_frames=True),
    PixelRules(encoding="raw", channels=4, transforms_all=True),
    PixelRules(resize=Resize(shorter=5), transforms_all=True),
    PixelRules(encoding="png", keeps_samples=True, transforms_all=True),
    *(PixelRules(encoding=form, channels=3, transforms_all=True) for form in FORMS),
]


def originals() -> list[bytes]:
    """The zoo, and images with EXIF data and colour profiles that can be damaged."""
    exif = Image.Exif()
    exif[0x112] = 6
    exif[0x10F] = "maker" * 9
    more = [
        encode("RGB", form, (40, 30), exif=exif, icc_profile=b"profile" * 30)
        for form in ("JPEG", "PNG", "WEBP", "TIFF")
    ]
    return [data for data, _ in IMAGES.values()] + more * 5


def test_damaged_images() -> None:
    images = originals()
    made: Counter[bool] = Counter()
    reasons = []
    for number in range(FUZZ):
        data = damaged(images[number % len(images)], number)
        rules = RULES[number // len(images) % len(RULES)]
        try:
            # As in a run, where this check comes first.
            header = check_image(data, level="structure", max_pixels=1 << 20)
            found = transform_image(data, header, rules, 1 << 20)
        except ImageHeaderError as error:
            reasons.append(str(error))
            made[False] += 1
            continue
        made[True] += 1
        if found is None:
            assert not rules.transforms_all
            continue
        head, shape = found.header, rules.shape
        assert shape[:2] in ((None, None), (head.height, head.width)), number
        if head.format == "raw":
            assert len(found.data) == head.height * head.width * head.depth, number
            continue
        assert read_header(found.data) == head, number
        with Image.open(io.BytesIO(found.data)) as image:
            image.load()
    # No addresses in memory: the same reason in each run.
    assert [reason for reason in reasons if "0x" in reason] == []
    assert made[True] > 0
    assert made[False] > 0
