"""Images made anew: as Pillow makes them in a plain loop."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from example_counts import examples
from hypothesis import example, given
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
    PixelRules,
    Resize,
    parse_pad,
    parse_reencode,
    parse_resize,
    parse_sides,
)
from recordmill.transforms.images.transform import (
    BLENDED,
    FIRST_FRAME,
    INKS,
    NARROWED,
    TURNED,
    Transformed,
    transform_image,
)

RAW = PixelRules(form="raw", channels=3, turns=True, transforms_all=True)
# Of the last two Pillow knows no format.
REJECTED = ("float.tif", "ycbcr.tif", "bare-markers.jpg", "trns-bad-crc.png")


def photo(width: int, height: int) -> Image.Image:
    """Returns smooth shapes with some noise, as photographs have."""
    random = np.random.default_rng(width * height)
    coarse = random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Resampling.BICUBIC)
    noisy = np.asarray(smooth, np.float32) + random.normal(0, 4, (height, width, 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def saved(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def with_orientation(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x112] = orientation
    return exif


def made(data: bytes, rules: PixelRules, max_pixels: int = MAX_PIXELS) -> Transformed:
    found = transform_image(data, read_header(data), rules, max_pixels)
    assert found is not None
    return found


def pixels(data: bytes, rules: PixelRules = RAW) -> Any:
    """Returns the samples that are made, as numbers that can be subtracted."""
    found = made(data, rules)
    header = found.header
    shape = header.height, header.width, header.depth
    return np.frombuffer(found.data, np.uint8).reshape(shape).astype(int)


def psnr(one: Any, other: Any) -> float:
    error = np.mean((np.asarray(one, float) - np.asarray(other, float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_turned_as_pillow_turns(form: str, orientation: int) -> None:
    data = saved(photo(37, 26), form, exif=with_orientation(orientation))
    with Image.open(io.BytesIO(data)) as image:
        image.load()  # a TIFF is turned by it
        wanted = ImageOps.exif_transpose(image)
    assert np.array_equal(pixels(data), np.asarray(wanted.convert("RGB")))
    assert (TURNED in made(data, RAW).changes) == (orientation > 1)
    kept = PixelRules(form="raw", channels=3, transforms_all=True)
    as_stored = saved(photo(37, 26), form)
    assert np.array_equal(pixels(data, kept), pixels(as_stored, kept))


@given(
    width=st.integers(1, 70),
    height=st.integers(1, 70),
    side=st.integers(1, 50),
    how=st.sampled_from(["fit", "pad", "shorter", "longer", "exact"]),
    orientation=st.sampled_from([1, 6]),
)
@example(width=26, height=3, side=32, how="fit", orientation=1)
@examples(60)
def test_scaled_as_pillow_scales(
    width: int, height: int, side: int, how: str, orientation: int
) -> None:
    """As Image.resize does, then in the middle, of what is turned first."""
    image = photo(width, height)
    data = saved(image, exif=with_orientation(orientation))
    shown = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    square = (side, side)
    shorter, longer = Resize(shorter=side), Resize(longer=side)
    sides: dict[str, dict[str, Any]] = {
        "fit": {"resize": shorter, "crop": square},
        "pad": {"resize": longer, "pad": square, "pad_value": 99},
        "shorter": {"resize": shorter},
        "longer": {"resize": longer},
        "exact": {"resize": Resize(sides=(side, 2 * side))},
    }
    rules = PixelRules(
        form="raw", channels=3, turns=True, transforms_all=True, **sides[how]
    )
    found = pixels(data, rules)
    size = shown.size
    if how == "exact":
        size = (2 * side, side)
    else:
        whole = (max if how in ("pad", "longer") else min)(size)
        size = tuple(max(1, int(length * side / whole + 0.5)) for length in size)
    wanted = shown.resize(size, Resampling.BICUBIC)
    if how == "fit":
        left, upper = (size[0] - side) // 2, (size[1] - side) // 2
        wanted = wanted.crop((left, upper, left + side, upper + side))
    if how == "pad":
        around = Image.new("RGB", square, (99, 99, 99))
        around.paste(wanted, ((side - size[0]) // 2, (side - size[1]) // 2))
        wanted = around
    assert found.shape == (wanted.height, wanted.width, 3)
    # Cropping first rounds once less; bicubic weights make half a step of that up to 1.25.
    assert np.abs(found - np.asarray(wanted)).max() <= 2


@pytest.mark.parametrize("size", [(640, 480), (501, 333), (1283, 967), (333, 999)])
@pytest.mark.parametrize("orientation", [1, 3, 6, 7])
def test_a_jpeg_decoded_smaller_is_nearly_the_same(
    size: tuple[int, int], orientation: int
) -> None:
    """Above 40 dB from all its pixels decoded, and then scaled and cropped."""
    data = saved(photo(*size), "JPEG", quality=92, exif=with_orientation(orientation))
    with Image.open(io.BytesIO(data)) as image:
        shown = ImageOps.exif_transpose(image)
    width, height = (round(64 * side / min(shown.size)) for side in shown.size)
    left, upper = (width - 64) // 2, (height - 64) // 2
    scaled = shown.resize((width, height), Resampling.BICUBIC)
    wanted = scaled.crop((left, upper, left + 64, upper + 64))
    rules = PixelRules(
        form="raw",
        channels=3,
        turns=True,
        resize=Resize(shorter=64),
        crop=(64, 64),
        transforms_all=True,
    )
    assert psnr(pixels(data, rules), wanted) > 40


@pytest.mark.parametrize("name", [name for name in IMAGES if name not in REJECTED])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_every_kind_of_image(name: str, channels: int) -> None:
    data, _ = IMAGES[name]
    rules = PixelRules(form="raw", channels=channels, transforms_all=True)
    found = pixels(data, rules)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        if image.mode == "I;16":
            wanted = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        else:
            wanted = image.convert("RGBA")
    if channels < 4:
        white = Image.new("RGBA", wanted.size, "white")
        wanted = Image.alpha_composite(white, wanted.convert("RGBA")).convert("RGB")
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
    shape = (wanted.height, wanted.width, channels)
    by_pillow = np.asarray(wanted.convert(mode)).reshape(shape)
    assert np.abs(found - by_pillow).max() <= 1


@pytest.mark.parametrize("name", REJECTED)
def test_what_cannot_be_decoded_is_refused(name: str) -> None:
    with pytest.raises(ImageHeaderError):
        made(IMAGES[name][0], RAW)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("animated.gif", FIRST_FRAME),
        ("rgb-two-pages.tif", FIRST_FRAME),
        ("gray-16-bit.png", NARROWED),
        ("rgb-16-bit.png", NARROWED),
        ("gray-16-bit.tif", NARROWED),
        ("cmyk.jpg", INKS),
        ("rgba.png", BLENDED),
    ],
)
def test_what_is_changed_is_told(name: str, change: str) -> None:
    assert made(IMAGES[name][0], RAW).changes == (change,)


def test_several_frames_can_be_refused() -> None:
    rules = PixelRules(rejects_frames=True)
    with pytest.raises(ImageHeaderError, match="has several frames"):
        made(IMAGES["animated.gif"][0], rules)
    data, _ = IMAGES["still.gif"]
    assert transform_image(data, read_header(data), rules, MAX_PIXELS) is None


def test_two_jpegs_in_one_file_are_one_image() -> None:
    """As of cameras that put a preview behind the image."""
    image = photo(64, 48)
    data = saved(image, "MPO", save_all=True, append_images=[photo(32, 24)])
    rules = PixelRules(
        rejects_frames=True, resize=Resize(longer=16), form="raw", transforms_all=True
    )
    assert pixels(data, rules).shape == (12, 16, 3)


@pytest.mark.parametrize(
    ("text", "form", "mode"),
    [
        ("jpeg:quality=80", "JPEG", "RGB"),
        ("png", "PNG", "RGBA"),
        ("webp", "WEBP", "RGBA"),
        ("webp:quality=50", "WEBP", "RGBA"),
        ("webp:lossless", "WEBP", "RGBA"),
    ],
)
def test_encodings(text: str, form: str, mode: str) -> None:
    image = photo(40, 30).convert("RGBA")
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    kind, quality, lossless = parse_reencode(text)
    rules = PixelRules(
        form=kind, quality=quality, lossless=lossless, transforms_all=True
    )
    found = made(saved(image), rules)
    assert read_header(found.data) == found.header
    with Image.open(io.BytesIO(found.data)) as again:
        assert (again.format, again.mode) == (form, mode)
        assert not {"exif", "icc_profile", "comment"} & set(again.info)
        if lossless:
            assert np.array_equal(np.asarray(again)[:, :, 3], image.getchannel("A"))


def test_nothing_but_pixels_is_kept() -> None:
    image = photo(40, 30)
    exif = with_orientation(6)
    data = saved(image, "JPEG", exif=exif, comment=b"c", icc_profile=b"i" * 200)
    found = made(data, PixelRules(turns=True))
    with Image.open(io.BytesIO(found.data)) as again:
        assert again.size == (30, 40)
        assert not dict(again.getexif())
        assert not {"comment", "icc_profile"} & set(again.info)


def test_damaged_exif_is_no_orientation() -> None:
    data = saved(photo(40, 30), "JPEG", exif=with_orientation(6))
    start = data.index(b"Exif\0\0") + 6
    end = start + int.from_bytes(data[start - 8 : start - 6], "big") - 8
    for at in range(start, end):
        for byte in (0, 0xFF):
            damage = bytes([byte]) * min(8, end - at)
            bad = data[:at] + damage + data[at + len(damage) :]
            assert made(bad, RAW).header.depth == 3


def test_bombs_are_refused_before_they_are_decoded() -> None:
    data = saved(photo(64, 48))
    with pytest.raises(ImageHeaderError, match="pixels"):
        made(data, RAW, max_pixels=64 * 47)
    long = saved(Image.new("L", (60_000, 1)))
    rules = PixelRules(resize=Resize(shorter=2000), transforms_all=True)
    with pytest.raises(
        ImageHeaderError, match=r"would have 2,000 x 120,000,000 pixels"
    ):
        made(long, rules)
    wide = PixelRules(
        resize=Resize(sides=(1, 60_000)), form="webp", transforms_all=True
    )
    with pytest.raises(ImageHeaderError, match="cannot be encoded as WebP"):
        made(long, wide)


@pytest.mark.parametrize(
    ("rules", "told", "ways_out"),
    [
        (
            PixelRules(crop=(31, 40), transforms_all=True),
            "use `resize=shorter=40`, or `pad`",
            ({"resize": parse_resize("shorter=40")}, {"crop": None, "pad": (31, 40)}),
        ),
        (
            PixelRules(pad=(29, 50), transforms_all=True),
            "use `resize=longer=29`, or `crop`",
            ({"resize": parse_resize("longer=29")}, {"pad": None, "crop": (29, 40)}),
        ),
    ],
)
def test_too_small_and_too_large(
    rules: PixelRules, told: str, ways_out: tuple[dict[str, Any], ...]
) -> None:
    data = saved(photo(40, 30 if rules.crop else 31))
    with pytest.raises(ImageHeaderError, match=told):
        made(data, rules)
    for way_out in ways_out:
        assert made(data, replace(rules, **way_out)).header.format == "png"


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_sides, ["224", "0x2", "2x", "224x224x3", "99999x1", "65000x65000"]),
        (parse_resize, ["shorter", "shorter=", "longer=0", "short=2", "longer=99999"]),
        (parse_pad, ["2x2:white", "2x2:256", "2x2:07", "2"]),
        (parse_reencode, ["jpg", "png:9", "jpeg:quality=0", "webp:lossles"]),
    ],
)
def test_texts_that_say_nothing(parse: Any, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match="expected"):
            parse(text)
