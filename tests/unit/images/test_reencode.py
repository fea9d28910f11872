"""Images re-encoded as PNG: Pillow reads the pixels of the file back from it."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from pixel_zoo import IMAGES, encode, gif

from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.encode import write_png
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    ImageHeader,
    ImageHeaderError,
    read_header,
)
from recordmill.transforms.images.pixel_rules import MAX_PIXEL_BYTES, PixelRules
from recordmill.transforms.images.transform import (
    FIRST_FRAME,
    INKS,
    NARROWED,
    Transformed,
    transform_image,
)

REJECTED = {
    "float.tif": "tiff has pixels of the kind F",
    "ycbcr.tif": "tiff cannot be decoded: OSError: image file is truncated",
}
OTHERS = [name for name in IMAGES if not name.endswith((".jpg", ".png"))]


def reencoded(data: bytes, max_pixels: int = MAX_PIXELS) -> Transformed:
    return reencode(data, read_header(data), max_pixels)


def reencode(data: bytes, header: ImageHeader, max_pixels: int) -> Transformed:
    rules = PixelRules(transforms_all=True, form="png", keeps_samples=True)
    found = transform_image(data, header, rules, max_pixels)
    assert found is not None
    return found


def decoded(data: bytes) -> None:
    check_image(data, level="decode")


def pixels(data: bytes, mode: str = "RGBA") -> Any:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in REJECTED])
def test_image_of_the_zoo(name: str) -> None:
    data, _ = IMAGES[name]
    found = reencoded(data)
    mode = "I;16" if name == "gray-16-bit.tif" else "RGBA"
    assert np.array_equal(pixels(found.data, mode), pixels(data, mode))
    check_image(found.data, level="decode")


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_image_of_the_zoo(name: str) -> None:
    with pytest.raises(ImageHeaderError, match=REJECTED[name]):
        reencoded(IMAGES[name][0])


def an_image(mode: str, size: tuple[int, int] = (23, 11)) -> Image.Image:
    random = np.random.default_rng(len(mode))
    width, height = size
    channels = len(Image.new(mode, (1, 1)).getbands())
    if mode == "I;16":
        samples = random.integers(0, 1 << 16, (height, width), np.uint16)
        return Image.fromarray(samples)
    shape = (height, width) if channels == 1 else (height, width, channels)
    samples = random.integers(0, 256, shape, np.uint8)
    return Image.frombytes(mode, size, samples.tobytes())


def saved(image: Image.Image, file_format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("L", "L"),
        ("LA", "LA"),
        ("RGB", "RGB"),
        ("RGBA", "RGBA"),
        ("I;16", "I;16"),
        ("CMYK", "RGB"),
        ("RGBX", "RGB"),
    ],
)
def test_modes(mode: str, expected: str) -> None:
    data = saved(an_image(mode), "TIFF")
    found = reencoded(data)
    with Image.open(io.BytesIO(found.data)) as image:
        assert image.mode == expected
    assert np.array_equal(pixels(found.data, expected), pixels(data, expected))
    assert found.changes == ((INKS,) if mode == "CMYK" else ())


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "TIFF"])
def test_the_first_of_several_frames(file_format: str) -> None:
    one, other = an_image("L"), an_image("L").transpose(Image.Transpose.ROTATE_180)
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = saved(one, file_format, save_all=True, append_images=[other], **options)
    found = reencoded(data)
    assert np.array_equal(pixels(found.data), pixels(saved(one, "PNG")))
    assert found.changes == (FIRST_FRAME,)


def test_a_transparent_colour() -> None:
    data = saved(an_image("L").convert("P"), "GIF", transparency=7)
    found = reencoded(data)
    assert read_header(found.data).depth == 4
    assert np.array_equal(pixels(found.data), pixels(data))
    assert not pixels(data)[..., 3].all()


def test_a_transparent_shade() -> None:
    data = saved(an_image("L"), "GIF", transparency=7)
    found = reencoded(data)
    assert np.array_equal(pixels(found.data), pixels(data))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["TIFF", "WEBP"])
def test_images_are_not_turned(orientation: int, file_format: str) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    one = an_image("RGB")
    options = {"lossless": True} if file_format == "WEBP" else {}
    found = reencoded(saved(one, file_format, exif=exif, **options))
    assert np.array_equal(pixels(found.data, "RGB"), np.asarray(one))


def colours_of_16_bits() -> bytes:
    """A TIFF of 2 x 1 pixels; Pillow writes none like it."""
    tags = [
        (256, 2),
        (257, 1),
        (258, 16),
        (259, 1),
        (262, 2),
        (273, 0),
        (277, 3),
        (279, 12),
    ]
    bits_at = 8 + 2 + 12 * len(tags) + 4
    values = {273: bits_at + 6}
    entries = b"".join(
        struct.pack(
            "<HHIHH",
            tag,
            3,
            3 if tag == 258 else 1,
            bits_at if tag == 258 else values.get(tag, value),
            0,
        )
        for tag, value in tags
    )
    head = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    return head + struct.pack("<9H", 16, 16, 16, *range(0x1020, 0x7000, 0x1001)[:6])


def test_16_bits_a_channel_are_told() -> None:
    found = reencoded(colours_of_16_bits())
    assert found.changes == (NARROWED,)
    assert pixels(found.data, "RGB").tolist() == [
        [[0x10, 0x20, 0x30], [0x40, 0x50, 0x60]]
    ]


def test_max_pixels_are_those_that_are_decoded() -> None:
    """The frame of this GIF is small, but Pillow makes its whole screen."""
    data = gif((0, 0, 3, 2), screen=(60_000, 60_000))
    with pytest.raises(ImageHeaderError, match=r"60,000 x 60,000 pixels \(expected"):
        reencoded(data)
    with pytest.raises(ImageHeaderError, match=r"60,000 x 60,000 pixels \(expected"):
        check_image(data, level="decode")
    small = gif((0, 0, 3, 2), screen=(10, 10))
    assert reencoded(small, max_pixels=100).data
    with pytest.raises(ImageHeaderError, match="max_pixels"):
        reencoded(small, max_pixels=99)


def test_too_many_pixels_to_reencode() -> None:
    side = 16_384  # of one channel as many bytes as are allowed
    assert side * side == MAX_PIXEL_BYTES
    data = gif((0, 0, 3, 2), screen=(side, side + 1))
    with pytest.raises(
        ImageHeaderError, match=r"268.5 MB of them \(expected 268.4 MB or less"
    ):
        reencoded(data)


@pytest.mark.parametrize("level", ["reencode", "decode"])
def test_tags_that_are_all_as_long_as_the_file(level: str) -> None:
    size, number = 1 << 20, 60
    entries = b"".join(
        struct.pack("<HHII", 40_000 + n, 1, size - 8, 8) for n in range(number)
    )
    first = [
        (256, 7),
        (257, 5),
        (258, 8),
        (259, 1),
        (262, 1),
        (273, 8),
        (277, 1),
        (279, 35),
    ]
    head = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in first)
    tags = struct.pack("<H", number + len(first)) + head + entries + bytes(4)
    data = b"II*\0" + struct.pack("<I", size) + bytes(size - 8) + tags
    decode = reencoded if level == "reencode" else decoded
    with pytest.raises(ImageHeaderError, match="TIFF has tags of 62,"):
        decode(data)


def test_the_reason_is_the_same_in_every_run() -> None:
    """Pillow's own text has an address in memory."""
    data = bytearray(IMAGES["rgb.tif"][0])
    header = read_header(bytes(data))
    data[2:4] = b"\0\0"
    reason = "tiff cannot be decoded: Pillow knows no tiff like it"
    with pytest.raises(ImageHeaderError, match=reason):
        reencode(bytes(data), header, 100)


def test_damaged_bytes_are_told() -> None:
    data = encode("RGB", "WEBP", (64, 64), lossless=True)
    with pytest.raises(ImageHeaderError, match="webp cannot be decoded: "):
        reencoded(data[:30] + bytes(len(data) - 30))


SHAPES = arrays.array_shapes(min_dims=3, max_dims=3, max_side=40).map(
    lambda shape: (*shape[:2], 1 + shape[2] % 4)
)


def png_of(samples: Any) -> bytes:
    gray = samples.shape[2:] == (1,)
    return write_png(Image.fromarray(samples[:, :, 0] if gray else samples))


@given(st.data())
def test_any_pixels(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    kind = np.uint16 if shape[2] == 1 and data.draw(st.booleans()) else np.uint8
    samples = data.draw(arrays.arrays(kind, shape))
    written = png_of(samples)
    check_image(written)
    with Image.open(io.BytesIO(written)) as image:
        assert np.array_equal(np.asarray(image).reshape(shape), samples)


@pytest.mark.parametrize("height", [1, 37, 38, 39, 75, 1000])
def test_bands_of_37_rows(height: int) -> None:
    """Each row once, in order, and a band sees the last row of the one before."""
    samples = np.random.default_rng(3).integers(0, 255, (height, 2300, 3), np.uint8)
    assert np.array_equal(pixels(png_of(samples), "RGB"), samples)


def test_the_bytes_are_pinned() -> None:
    """They are those of datasets that were written: a change needs a FORMAT_VERSION."""
    samples = (np.arange(5000).reshape(25, 50, 4) ** 2 % 251).astype(np.uint8)
    assert zlib.crc32(png_of(samples)) == 3197721415
    indices = (np.arange(60).reshape(6, 10) % 7).astype(np.uint8)
    image = Image.fromarray(indices).convert("L")
    image.putpalette(bytes(range(30)))
    image.info["transparency"] = b"\0\7"
    assert zlib.crc32(write_png(image)) == 697479185


def test_a_bmp_with_more_bytes_than_its_pixels() -> None:
    data = IMAGES["rgb.bmp"][0] + b"more"
    header = read_header(data)
    assert header.variant
    assert np.array_equal(pixels(reencode(data, header, 100).data), pixels(data))
