"""Masks beside images: the same samples, turned, scaled, cropped and padded by Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from PIL.Image import Resampling
from pixel_zoo import IMAGES

from recordmill.transforms.images.header import (
    MAX_PIXELS,
    ImageHeaderError,
    read_header,
)
from recordmill.transforms.images.pixel_rules import (
    UNCHANGED_PIXELS,
    PixelRules,
    Resize,
)
from recordmill.transforms.images.transform import (
    MaskedImage,
    Samples,
    place_objects,
    samples_of,
    transform_array,
    transform_image,
    transform_mask,
)

GRAY, DEEP = Samples(1, "uint8"), Samples(1, "uint16")


def saved(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def numbers(height: int, width: int, dtype: str = "uint8") -> Any:
    random = np.random.default_rng(height * width)
    return random.integers(
        0, np.iinfo(dtype).max, (height, width), dtype, endpoint=True
    )


def palette(pixels: Any, bits: int = 8) -> bytes:
    indexed = Image.new("P", pixels.shape[::-1])
    indexed.putdata(pixels.reshape(-1).tolist())
    indexed.putpalette([(37 * each) % 256 for each in range(3 << bits)])
    return saved(indexed, bits=bits)


def masked(
    data: bytes, samples: Samples, frame: MaskedImage, rules: PixelRules
) -> bytes:
    return transform_mask(data, samples, frame, rules, "structure", MAX_PIXELS)


def decoded(data: bytes) -> Any:
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode in ("L", "I;16")
        return np.asarray(image)


def whole(height: int, width: int, orientation: int = 1) -> MaskedImage:
    exif = Image.Exif()
    exif[0x112] = orientation
    photo = saved(Image.new("RGB", (width, height)), "JPEG", exif=exif)
    return MaskedImage(photo, is_turned=orientation > 1)


@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    side=st.integers(1, 50),
    how=st.sampled_from(["fit", "crop", "pad", "shorter", "longer"]),
    orientation=st.integers(1, 8),
    dtype=st.sampled_from(["uint8", "uint16", "palette"]),
    raw=st.booleans(),
)
def test_a_mask_goes_with_its_image(
    height: int,
    width: int,
    side: int,
    how: str,
    orientation: int,
    dtype: str,
    raw: bool,
) -> None:
    """The oracle works on arrays of numbers: Pillow turns, scales and pads them."""
    kind = "uint8" if dtype == "palette" else dtype
    mask = numbers(height, width, kind)
    data = palette(mask) if dtype == "palette" else saved(Image.fromarray(mask))
    frame = whole(height, width, orientation)
    photo = frame.data
    rules = {
        "fit": PixelRules(resize=Resize(sides=(side, 2 * side))),
        "crop": PixelRules(resize=Resize(shorter=side + 3), crop=(side, side)),
        "pad": PixelRules(resize=Resize(longer=side), pad=(side, side + 5)),
        "shorter": PixelRules(resize=Resize(shorter=side)),
        "longer": PixelRules(resize=Resize(longer=side)),
    }[how]
    rules = PixelRules(
        turns=True,
        resize=rules.resize,
        crop=rules.crop,
        pad=rules.pad,
        encoding="raw" if raw else "own",
        channels=3,
        transforms_all=True,
        mask_pad=77,
    )
    image = transform_image(photo, read_header(photo), rules, MAX_PIXELS)
    assert image is not None
    samples = DEEP if kind == "uint16" else GRAY
    made = masked(data, samples, frame, rules)

    marked = Image.fromarray(mask)
    marked.getexif()[0x112] = orientation
    wanted = ImageOps.exif_transpose(marked)
    if rules.resize is not None:
        size = rules.resize.size_of(*wanted.size)
        wanted = wanted.resize(size, Resampling.NEAREST)
    if rules.crop is not None:
        left, upper = (wanted.width - side) // 2, (wanted.height - side) // 2
        wanted = wanted.crop((left, upper, left + side, upper + side))
    expected = np.asarray(wanted)
    if rules.pad is not None:
        around = np.full(rules.pad, 77, kind)
        top, left = (
            (a - b) // 2 for a, b in zip(rules.pad, expected.shape, strict=True)
        )
        around[top : top + len(expected), left : left + expected.shape[1]] = expected
        expected = around
    assert expected.shape == (image.header.height, image.header.width)
    found = np.frombuffer(made, kind).reshape(expected.shape) if raw else decoded(made)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_indices_of_a_palette_are_the_numbers(bits: int) -> None:
    mask = numbers(7, 9) & np.uint8((1 << bits) - 1)
    data = palette(mask, bits)
    assert samples_of(data, MAX_PIXELS) == GRAY
    assert np.array_equal(
        decoded(masked(data, GRAY, whole(7, 9), UNCHANGED_PIXELS)), mask
    )


@pytest.mark.parametrize(
    ("data", "samples"),
    [
        (saved(Image.fromarray(numbers(7, 9))), GRAY),
        (saved(Image.fromarray(numbers(7, 9, "uint16"))), DEEP),
        (saved(Image.fromarray(numbers(7, 9)), "JPEG"), GRAY),
        (saved(Image.fromarray(numbers(7, 9) > 99)), GRAY),
        (saved(Image.new("RGB", (9, 7), "red")), Samples(3, "uint8")),
    ],
)
def test_what_readers_decode_to_its_numbers_stays_as_it_is(
    data: bytes, samples: Samples
) -> None:
    assert samples_of(data, MAX_PIXELS) == samples
    assert masked(data, samples, whole(7, 9), UNCHANGED_PIXELS) == data


@pytest.mark.parametrize("form", ["TIFF", "BMP"])
def test_other_formats_become_png(form: str) -> None:
    mask = numbers(7, 9)
    made = masked(
        saved(Image.fromarray(mask), form), GRAY, whole(7, 9), UNCHANGED_PIXELS
    )
    assert read_header(made).format == "png"
    assert np.array_equal(decoded(made), mask)


def test_colours_are_not_mixed() -> None:
    colours = np.array([[0, 0, 0], [128, 64, 128], [220, 20, 60]], np.uint8)
    mask = Image.fromarray(colours[numbers(12, 20) % np.uint8(3)])
    rules = PixelRules(resize=Resize(sides=(5, 7)), pad=(9, 9), transforms_all=True)
    made = masked(saved(mask), Samples(3, "uint8"), whole(12, 20), rules)
    with Image.open(io.BytesIO(made)) as image:
        found = {tuple(pixel) for pixel in np.asarray(image).reshape(-1, 3).tolist()}
    assert found == {*map(tuple, colours.tolist()), (255, 255, 255)}


def test_eight_bits_among_sixteen_keep_their_numbers() -> None:
    mask = numbers(7, 9)
    made = masked(saved(Image.fromarray(mask)), DEEP, whole(7, 9), UNCHANGED_PIXELS)
    assert decoded(made).dtype == np.uint16
    assert np.array_equal(decoded(made), mask)


def test_a_mask_that_was_drawn_upright_is_not_turned() -> None:
    mask = numbers(9, 7)
    rules = PixelRules(turns=True)
    made = masked(saved(Image.fromarray(mask)), GRAY, whole(7, 9, 6), rules)
    assert np.array_equal(decoded(made), mask)


@pytest.mark.parametrize(
    ("data", "samples", "reason"),
    [
        (
            saved(Image.fromarray(numbers(9, 7))),
            GRAY,
            "has 9 x 7 pixels, .* image, 7 x 9",
        ),
        (
            saved(Image.new("RGB", (9, 7))),
            GRAY,
            "has 3 channels of uint8, expected 1 ch",
        ),
        (
            saved(Image.fromarray(numbers(7, 9, "uint16"))),
            GRAY,
            "has 1 channel of uint16",
        ),
        (saved(Image.new("LA", (9, 7))), GRAY, "pixels of mode LA"),
        (saved(Image.new("F", (9, 7)), "TIFF"), GRAY, "pixels of mode F"),
        (b"text", GRAY, "not an image"),
    ],
)
def test_other_masks_are_refused(data: bytes, samples: Samples, reason: str) -> None:
    with pytest.raises(ImageHeaderError, match=reason):
        masked(data, samples, whole(7, 9), UNCHANGED_PIXELS)


@pytest.mark.parametrize("name", ["shifted-frame.gif", "small-frame.gif"])
def test_a_frame_that_does_not_fill_its_screen_is_no_mask(name: str) -> None:
    """TensorFlow decodes the frame, Pillow as much as screen and frame take together."""
    data, (_, height, width, _) = IMAGES[name]
    told = "not of the size of its screen; store it as PNG"
    with pytest.raises(ImageHeaderError, match=told):
        masked(
            data, samples_of(data, MAX_PIXELS), whole(height, width), UNCHANGED_PIXELS
        )


@pytest.mark.parametrize("name", ["shifted-frame.gif", "small-frame.gif"])
def test_nothing_lies_on_such_a_frame_that_pillow_made_larger(name: str) -> None:
    data, (_, height, width, _) = IMAGES[name]
    header, frame = read_header(data), MaskedImage(data, is_turned=False)
    mask, told = saved(Image.fromarray(numbers(height, width))), "not of the size"
    assert masked(mask, GRAY, frame, UNCHANGED_PIXELS) == mask
    sides = Resize(sides=(8, 6))
    rules = PixelRules(resize=sides, encoding="png", channels=3, transforms_all=True)
    with pytest.raises(ImageHeaderError, match=told):
        masked(mask, GRAY, frame, rules)
    with pytest.raises(ImageHeaderError, match=told):
        transform_array(numbers(height, width), frame, rules)
    made = transform_image(data, header, rules, MAX_PIXELS)
    with pytest.raises(ImageHeaderError, match=told):
        place_objects(data, header, (height, width), made, MAX_PIXELS)
    assert place_objects(data, header, (height, width), None, MAX_PIXELS)
