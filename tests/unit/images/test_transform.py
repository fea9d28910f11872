"""Images made anew, as Pillow makes them in a plain loop; the bytes of PNGs are pinned."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image, ImageOps
from PIL.Image import Resampling
from pixel_zoo import IMAGES, encode, gif, png, png_chunk

from recordmill.schemas.errors import OutputError
from recordmill.transforms.images.decode import check_image, pixels_of
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    ImageHeaderError,
    read_header,
)
from recordmill.transforms.images.pixel_rules import (
    MAX_PIXEL_BYTES,
    PixelRules,
    Resize,
    parse_pad,
    parse_reencode,
    parse_resize,
    parse_sides,
)
from recordmill.transforms.images.transform import (
    BLENDED,
    BLOCK_BYTES,
    FIRST_FRAME,
    INKS,
    NARROWED,
    TURNED,
    TransformedImage,
    deflate,
    transform_image,
    write_png,
)

RAW = PixelRules(encoding="raw", channels=3, turns=True, transforms_all=True)
AS_PNG = PixelRules(encoding="png", keeps_samples=True, transforms_all=True)
# Of the last two Pillow knows no format.
REJECTED = {
    "float.tif": "tiff has pixels of mode F",
    "ycbcr.tif": "tiff cannot be decoded: OSError: image file is truncated",
    "bare-markers.jpg": "jpeg",
    "trns-bad-crc.png": "png",
}
OTHERS = [
    name
    for name in IMAGES
    if not name.endswith((".jpg", ".png")) and name not in REJECTED
]


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


def made(
    data: bytes, rules: PixelRules, max_pixels: int = MAX_PIXELS
) -> TransformedImage:
    found = transform_image(data, read_header(data), rules, max_pixels)
    assert found is not None
    return found


def pixels(data: bytes, rules: PixelRules = RAW) -> Any:
    """Returns the samples that are made, as numbers that can be subtracted."""
    found = made(data, rules)
    header = found.header
    shape = header.height, header.width, header.depth
    return np.frombuffer(found.data, np.uint8).reshape(shape).astype(int)


def decoded(data: bytes, mode: str = "RGBA") -> Any:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


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
    kept = PixelRules(encoding="raw", channels=3, transforms_all=True)
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
        encoding="raw", channels=3, turns=True, transforms_all=True, **sides[how]
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
        encoding="raw",
        channels=3,
        turns=True,
        resize=Resize(shorter=64),
        crop=(64, 64),
        transforms_all=True,
    )
    assert psnr(pixels(data, rules), wanted) > 40


@pytest.mark.parametrize("text", ["112x112", "shorter=112", "longer=149"])
def test_a_jpeg_decoded_at_the_nearest_scale(text: str) -> None:
    """As Pillow does that: at a half, where all pixels are decoded by default."""
    data = saved(photo(512, 384), "JPEG", quality=92)
    found = []
    for asked in (text, f"{text}:scaled"):
        with Image.open(io.BytesIO(data)) as image:
            size = {"112x112": (112, 112)}.get(text, (149, 112))
            decoded_at = (512, 384)
            if asked != text:
                decoded_at = (256, 192)
                image.draft(None, decoded_at)
            assert image.size == decoded_at
            wanted = image.resize(size, Resampling.BICUBIC)
        how = {"resize": parse_resize(asked), "transforms_all": True}
        found.append(pixels(data, PixelRules(encoding="raw", channels=3, **how)))
        assert np.array_equal(found[-1], np.asarray(wanted))
    assert 30 < psnr(found[1], Image.fromarray(found[0].astype(np.uint8))) < 60


@pytest.mark.parametrize("name", [name for name in IMAGES if name not in REJECTED])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_every_kind_of_image(name: str, channels: int) -> None:
    data, _ = IMAGES[name]
    rules = PixelRules(encoding="raw", channels=channels, transforms_all=True)
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
@pytest.mark.parametrize("rules", [RAW, AS_PNG], ids=["raw", "png"])
def test_what_cannot_be_decoded_is_refused(name: str, rules: PixelRules) -> None:
    with pytest.raises(ImageHeaderError, match=REJECTED[name]):
        made(IMAGES[name][0], rules)


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
        rejects_frames=True,
        resize=Resize(longer=16),
        encoding="raw",
        transforms_all=True,
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
        encoding=kind, quality=quality, is_lossless=lossless, transforms_all=True
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
        resize=Resize(sides=(1, 60_000)), encoding="webp", transforms_all=True
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
        (parse_resize, ["2x2:", "2x2:fast", "2x2:scaled:scaled", ":scaled", "scaled"]),
        (parse_pad, ["2x2:white", "2x2:256", "2x2:07", "2"]),
        (parse_reencode, ["jpg", "png:9", "jpeg:quality=0", "webp:lossles"]),
    ],
)
def test_texts_that_say_nothing(parse: Any, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match="expected"):
            parse(text)


@pytest.mark.parametrize("name", OTHERS)
def test_what_becomes_png(name: str) -> None:
    data, _ = IMAGES[name]
    found = made(data, AS_PNG)
    mode = "I;16" if name == "gray-16-bit.tif" else "RGBA"
    assert np.array_equal(decoded(found.data, mode), decoded(data, mode))
    check_image(found.data, level="decode")


def an_image(mode: str) -> Image.Image:
    random = np.random.default_rng(len(mode))
    width, height = 23, 11
    channels = len(Image.new(mode, (1, 1)).getbands())
    if mode == "I;16":
        samples = random.integers(0, 1 << 16, (height, width), np.uint16)
        return Image.fromarray(samples)
    shape = (height, width) if channels == 1 else (height, width, channels)
    samples = random.integers(0, 256, shape, np.uint8)
    return Image.frombytes(mode, (width, height), samples.tobytes())


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
    found = made(data, AS_PNG)
    with Image.open(io.BytesIO(found.data)) as image:
        assert image.mode == expected
    assert np.array_equal(decoded(found.data, expected), decoded(data, expected))
    assert found.changes == ((INKS,) if mode == "CMYK" else ())


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "TIFF"])
def test_the_first_of_several_frames(file_format: str) -> None:
    one, other = an_image("L"), an_image("L").transpose(Image.Transpose.ROTATE_180)
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = saved(one, file_format, save_all=True, append_images=[other], **options)
    found = made(data, AS_PNG)
    assert np.array_equal(decoded(found.data), decoded(saved(one, "PNG")))
    assert found.changes == (FIRST_FRAME,)


@pytest.mark.parametrize("mode", ["P", "L"])
def test_a_transparent_colour_or_shade(mode: str) -> None:
    data = saved(an_image("L").convert(mode), "GIF", transparency=7)
    found = made(data, AS_PNG)
    assert np.array_equal(decoded(found.data), decoded(data))
    if mode == "P":
        assert read_header(found.data).depth == 4
        assert not decoded(data)[..., 3].all()


def colours_of_16_bits() -> bytes:
    """A TIFF of 2 x 1 pixels, made of one of 4 x 1 of 8 bits; Pillow writes none."""
    samples = np.arange(0x1020, 0x7000, 0x1001, np.uint16)[:6].tobytes()
    data = saved(Image.frombytes("RGB", (4, 1), samples), "TIFF")
    for before, after in (((8, 8, 8), (16, 16, 16)), ((256, 4, 1, 4), (256, 4, 1, 2))):
        form = "<HHII" if len(before) == 4 else "<3H"
        assert data.count(struct.pack(form, *before)) == 1
        data = data.replace(struct.pack(form, *before), struct.pack(form, *after))
    return data


def test_16_bits_a_channel_are_told() -> None:
    found = made(colours_of_16_bits(), AS_PNG)
    assert found.changes == (NARROWED,)
    assert decoded(found.data, "RGB").tolist() == [
        [[0x10, 0x20, 0x30], [0x40, 0x50, 0x60]]
    ]


def test_max_pixels_are_those_that_are_decoded() -> None:
    """The frame of this GIF is small, but Pillow makes its whole screen."""
    data = gif((0, 0, 3, 2), screen=(60_000, 60_000))
    with pytest.raises(ImageHeaderError, match=r"60,000 x 60,000 pixels \(expected"):
        made(data, AS_PNG)
    with pytest.raises(ImageHeaderError, match=r"60,000 x 60,000 pixels \(expected"):
        check_image(data, level="decode")
    small = gif((0, 0, 3, 2), screen=(10, 10))
    assert made(small, AS_PNG, 100).data
    with pytest.raises(ImageHeaderError, match="max_pixels"):
        made(small, AS_PNG, 99)


def test_too_many_pixels_to_reencode() -> None:
    side = 16_384  # of one channel as many bytes as are allowed
    assert side * side == MAX_PIXEL_BYTES
    data = gif((0, 0, 3, 2), screen=(side, side + 1))
    with pytest.raises(
        ImageHeaderError, match=r"268.5 MB of them \(expected 268.4 MB or less"
    ):
        made(data, AS_PNG)


@pytest.mark.parametrize("level", ["reencode", "decode"])
def test_tags_that_are_all_as_long_as_the_file(level: str) -> None:
    size, number = 1 << 20, 60
    entries = b"".join(
        struct.pack("<HHII", 40_000 + n, 1, size - 8, 8) for n in range(number)
    )
    first = {256: 7, 257: 5, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 279: 35}
    head = b"".join(struct.pack("<HHII", tag, 4, 1, first[tag]) for tag in first)
    tags = struct.pack("<H", number + len(first)) + head + entries + bytes(4)
    data = b"II*\0" + struct.pack("<I", size) + bytes(size - 8) + tags
    with pytest.raises(ImageHeaderError, match="TIFF has tags of 62,"):
        made(data, AS_PNG) if level == "reencode" else check_image(data, level="decode")


def test_the_reason_is_the_same_in_every_run() -> None:
    """Pillow's own text has an address in memory."""
    data = bytearray(IMAGES["rgb.tif"][0])
    header = read_header(bytes(data))
    data[2:4] = b"\0\0"
    reason = "tiff cannot be decoded: Pillow does not support this tiff"
    with pytest.raises(ImageHeaderError, match=reason):
        transform_image(bytes(data), header, AS_PNG, 100)


def test_damaged_bytes_are_told() -> None:
    data = encode("RGB", "WEBP", (64, 64), lossless=True)
    with pytest.raises(ImageHeaderError, match="webp cannot be decoded: "):
        made(data[:30] + bytes(len(data) - 30), AS_PNG)


@pytest.mark.parametrize("rules", [RAW, AS_PNG, PixelRules(turns=True)])
def test_pixels_of_a_png_that_fail_the_check_of_zlib(rules: PixelRules) -> None:
    """Once the error was taken for damaged EXIF data, and the pixels were kept."""
    pixels = zlib.compress(bytes(5 * (1 + 7 * 3)))
    chunks = [png_chunk(b"IDAT", each) for each in (pixels, pixels[:-1] + b"\xff")]
    data = png(2, 8).replace(*chunks)
    assert chunks[1] in data
    with pytest.raises(
        ImageHeaderError, match="png cannot be decoded: OSError: broken"
    ):
        made(data, rules)


def test_a_bmp_with_more_bytes_than_its_pixels() -> None:
    data = IMAGES["rgb.bmp"][0] + b"more"
    assert read_header(data).variant
    assert np.array_equal(decoded(made(data, AS_PNG).data), decoded(data))


def stream(*pieces: bytes) -> bytes:
    return b"".join(deflate(np.frombuffer(piece, np.uint8) for piece in pieces))


# Each byte as often as the two before together: without a limit its codes had 24 bits.
COUNTS = [1, 2]
while sum(COUNTS) < BLOCK_BYTES // 2:
    COUNTS.append(sum(COUNTS[-2:]))
UNEVEN = b"".join(bytes([byte]) * number for byte, number in enumerate(COUNTS))


@given(st.lists(st.binary(max_size=300), max_size=4))
@example([])
@example([b"", b"a" * 1000, bytes(range(256)) * 3])
@example([UNEVEN])
def test_zlib_reads_it(pieces: list[bytes]) -> None:
    assert zlib.decompress(stream(*pieces)) == b"".join(pieces)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_blocks(more: int) -> None:
    data = np.random.default_rng(1).integers(0, 9, BLOCK_BYTES + more, np.uint8)
    assert zlib.decompress(stream(data.tobytes())) == data.tobytes()


def test_the_bytes_are_pinned() -> None:
    """They are those of datasets that were written: a change needs a FORMAT_VERSION."""
    data = bytes(number * number % 251 for number in range(5000))
    assert zlib.crc32(stream(data, data[:70])) == 2187796147
    assert zlib.crc32(stream(UNEVEN)) == 1917214162


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
    with Image.open(io.BytesIO(png_of(samples))) as image:
        assert np.array_equal(np.asarray(image), samples)


def test_the_bytes_of_pngs_are_pinned() -> None:
    """They are those of datasets that were written: a change needs a FORMAT_VERSION."""
    samples = (np.arange(5000).reshape(25, 50, 4) ** 2 % 251).astype(np.uint8)
    assert zlib.crc32(png_of(samples)) == 3197721415
    indices = (np.arange(60).reshape(6, 10) % 7).astype(np.uint8)
    image = Image.fromarray(indices).convert("L")
    image.putpalette(bytes(range(30)))
    image.info["transparency"] = b"\0\7"
    assert zlib.crc32(write_png(image)) == 697479185


@pytest.mark.parametrize(
    ("mode", "channels", "dtype"),
    [
        ("1", 1, "uint8"),
        ("L", 1, "uint8"),
        ("I;16", 1, "uint16"),
        ("LA", 2, "uint8"),
        ("P", 3, "uint8"),
        ("RGB", 3, "uint8"),
        ("RGBA", 4, "uint8"),
    ],
)
def test_channels(mode: str, channels: int, dtype: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (7, 5), (9, 9, 9)).convert("L").convert(mode).save(file, "PNG")
    pixels = pixels_of(file.getvalue())
    assert (pixels.shape, pixels.dtype) == ((5, 7, channels), dtype)


def test_two_images_in_one_jpeg_are_the_first() -> None:
    file = io.BytesIO()
    first, second = (Image.new("RGB", (7, 5), (shade, 0, 0)) for shade in (200, 10))
    first.save(file, "MPO", save_all=True, append_images=[second])
    assert pixels_of(file.getvalue())[0, 0, 0] > 150


def test_pixels_are_those_that_were_written() -> None:
    array = np.random.default_rng(1).integers(0, 256, (5, 7, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    assert np.array_equal(pixels_of(file.getvalue()), array)


def test_a_damaged_image_is_told() -> None:
    data, _ = IMAGES["rgb.jpg"]
    with pytest.raises(OutputError, match=r"image of \d+ bytes: .*verify --deep"):
        pixels_of(data[: len(data) // 2])
