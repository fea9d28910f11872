"""Headers and structure of images; TensorFlow's and Pillow's decoders as oracle."""

from __future__ import annotations

import io
import re
import struct
from dataclasses import astuple
from pathlib import Path

import pytest
from example_counts import fuzzed
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from pixel_zoo import (
    IMAGES,
    Header,
    bmp,
    encode,
    gif,
    jpeg_segment,
    png,
    png_chunk,
    webp,
)

from recordmill.transforms.images.header import (
    ImageHeader,
    ImageHeaderError,
    check_pixels,
    check_structure,
    next_marker,
    read_header,
)
from recordmill.transforms.native import loops as LOOPS  # noqa: N812

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
SAMPLES = Path(__file__).parents[2] / "samples" / "images"

# A change at a random place of these often hits the header.
SMALL_IMAGES = [data for data, _ in IMAGES.values() if len(data) < 4096]

JPEG, _ = IMAGES["rgb.jpg"]
JPEG_FRAME_AT = JPEG.index(b"\xff\xc0")
PNG, _ = IMAGES["rgb.png"]
TIFF, _ = IMAGES["rgb.tif"]


def frame_header(height: int, width: int, components: int) -> bytes:
    size = struct.pack(">BHHB", 8, height, width, components)
    return jpeg_segment(0xC0, size + bytes(3 * components))


@pytest.mark.parametrize("name", IMAGES)
def test_image_of_the_zoo(name: str) -> None:
    data, expected = IMAGES[name]
    assert astuple(read_header(data))[:4] == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("animals/chelsea.png", ("png", 300, 451, 3)),
        ("animals/horse.png", ("png", 328, 400, 4)),
        ("medicine/cell.png", ("png", 660, 550, 1)),
        ("medicine/microaneurysms.png", ("png", 102, 102, 1)),
        ("medicine/retina.jpg", ("jpeg", 1411, 1411, 3)),
        ("objects/clock_motion.png", ("png", 300, 400, 1)),
        ("objects/rocket.jpg", ("jpeg", 427, 640, 3)),
        ("objects/text.png", ("png", 172, 448, 1)),
        ("textures/brick.png", ("png", 512, 512, 1)),
        ("textures/gravel.png", ("png", 512, 512, 1)),
    ],
)
def test_sample_image(path: str, expected: Header) -> None:
    """Expected: the shape that tf.io.decode_image of TensorFlow 2.21.0 gives."""
    assert astuple(read_header((SAMPLES / path).read_bytes()))[:4] == expected


@pytest.mark.parametrize("name", [name for name in IMAGES if name.endswith(".tif")])
def test_tiff_depth_is_pillows_bands(name: str) -> None:
    data, (_, height, width, depth) = IMAGES[name]
    with Image.open(io.BytesIO(data)) as image:
        decoded = image.convert("RGB") if image.mode == "P" else image
        assert (decoded.height, decoded.width) == (height, width)
        assert len(decoded.getbands()) == depth


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encode("RGB", "JPEG", (300, 65000)), ("jpeg", 65000, 300, 3)),
        (encode("1", "PNG", (1, 70000)), ("png", 70000, 1, 1)),
        (encode("RGB", "WEBP", (16383, 2)), ("webp", 2, 16383, 3)),
        (encode("RGB", "WEBP", (2, 16383), lossless=True), ("webp", 16383, 2, 3)),
        # 2^31 - 1 rows of as many pixels: nothing is decoded, no memory is taken
        (
            b"\x89PNG\r\n\x1a\n"
            + png_chunk(
                b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 6, 0, 0, 0)
            ),
            ("png", 2**31 - 1, 2**31 - 1, 4),
        ),
    ],
    ids=["jpeg", "png", "webp", "webp-lossless", "png-huge"],
)
def test_large_image(data: bytes, expected: Header) -> None:
    assert astuple(read_header(data))[:4] == expected


NO_IMAGES = {
    b"": "has no bytes",
    b"hello world": "starts with b'hello wor'",
    b"\xff\xd8": r"starts with b'\xff\xd8'",
    b"RIFF\0\0\0\0WAVE": r"starts with b'RIFF\x00\x00\x00\x00W'",
}
CUT = {
    "JPEG": [JPEG[:123], JPEG[: JPEG_FRAME_AT + 9], b"\xff\xd8\xff\xff\xff"],
    "PNG": [PNG[:32], IMAGES["palette.png"][0][:45]],
    "GIF": [gif()[:12]],
    "BMP": [bmp(24)[:29]],
    "WebP": [webp(0), webp(0)[:25], webp(0, VP8L=b"/\6\0")],
    "TIFF": [b"II*\0\xff\xff\xff\xff", b"MM\0+\0\x08\0\0" + b"\xff" * 8, TIFF[:40]],
}
NO_FRAME_FIRST = {
    "D8": JPEG[:2] + JPEG,
    "D9": b"\xff\xd8\xff\xd9",
    "DA": b"\xff\xd8\xff\xda\0\2",
    "42": b"\xff\xd8\xff\x42\0\2",
}
# Height, width and depth.
EMPTY = {
    ("jpeg", 5, 0, 3): b"\xff\xd8" + frame_header(5, 0, 3),
    ("png", 0, 0, 3): PNG[:8] + png_chunk(b"IHDR", bytes(8) + PNG[24:29]),
    ("bmp", 0, 7, 3): bmp(24, height=0),
    ("tiff", 0, 0, 1): b"II*\0\x08\0\0\0\0\0",
}
NO_GIF = {20: gif(), 52: gif((0, 0, 7, 5))[:-2]}

ERRORS = [
    *(
        (data, f"not an image: {found} (expected JPEG, PNG, GIF, BMP, WebP or TIFF)")
        for data, found in NO_IMAGES.items()
    ),
    *(
        (data, f"{name} ends inside its header after {len(data)} bytes")
        for name, cut in CUT.items()
        for data in cut
    ),
    *(
        (data, f"JPEG has marker FF{at} at byte 2 (expected a frame header before it)")
        for at, data in NO_FRAME_FIRST.items()
    ),
    *(
        (
            data,
            "{} of height {}, width {} and depth {} (expected 1 or more of each)".format(
                *header
            ),
        )
        for header, data in EMPTY.items()
    ),
    *(
        (data, f"GIF has no complete frame in its {size} bytes (expected 1 or more)")
        for size, data in NO_GIF.items()
    ),
    (
        b"\xff\xd8\xff\xe0\0\1",
        "JPEG has a segment of 1 bytes at byte 2 (expected 2 or more)",
    ),
    (
        b"\xff\xd8\xff\xc0\0\2",
        "JPEG has a frame header of 2 bytes (expected 8, and 3 for each component)",
    ),
    (b"\xff\xd8" + frame_header(5, 7, 2), "JPEG has 2 components (expected 1, 3 or 4)"),
    (
        b"\xff\xd8" + frame_header(0, 7, 3),
        "JPEG has height 0 in its frame header: the height comes after the pixels, in a DNL segment, which decoders do not read (expected 1 or more)",
    ),
    (
        PNG[:8] + png_chunk(b"CgBI", b"\0\0\0\0") + PNG[8:],
        "PNG starts with a chunk b'CgBI' of 4 bytes (expected IHDR of 13)",
    ),
    (
        PNG[:19] + b"\x08" + PNG[20:],
        "PNG has CRC f7f33a02 over IHDR (expected 06f8618f, as stored)",
    ),
    (
        PNG[:8] + png_chunk(b"IHDR", PNG[16:24] + b"\4\2\0\0\0"),
        "PNG has colour type 2 with 4 bits (expected one of {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)})",
    ),
    (
        png(3, 8),
        "PNG has no palette before its pixels (expected PLTE, by its colour type)",
    ),
    (
        b"BMW is a car, and this is a text",
        "BMP has an info header of 543452769 bytes (expected one of [12, 16, 40, 52, 56, 64, 108, 124])",
    ),
    (
        bmp(24)[:28] + b"\7\0",
        "BMP has 7 bits per pixel (expected one of [1, 4, 8, 16, 24, 32])",
    ),
    (
        webp(0, VP8L=b"abcdefgh"),
        "WebP has a VP8L chunk that starts with b'a' (expected b'/')",
    ),
    (
        webp(0, VP8_=b"abcdefghijkl"),
        "WebP has a VP8 chunk that starts with b'abcdef' (expected a key frame: an even byte, 2 more, 9d 01 2a)",
    ),
]


@pytest.mark.parametrize(
    ("data", "message"), ERRORS, ids=[message for _, message in ERRORS]
)
def test_error_says_what_was_found_and_expected(data: bytes, message: str) -> None:
    with pytest.raises(ImageHeaderError) as error:
        read_header(data)
    assert str(error.value) == message
    assert isinstance(error.value, ValueError)


def check_header(data: bytes) -> None:
    """Anything but a good header or ImageHeaderError fails the test."""
    try:
        header = read_header(data)
    except ImageHeaderError:
        return
    assert min(header.height, header.width, header.depth) >= 1


SIGNATURES = [
    b"",
    b"\xff\xd8\xff",
    PNG[:33],
    png(3, 8)[:33],
    b"GIF89a",
    b"BM" + bytes(12) + b"\x28\0\0\0",
    b"RIFF\0\0\0\0WEBP",
    webp(0),
    b"II*\0",
    b"MM\0*\0\0\0\x08\0\3",
    b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0",
]


@given(st.sampled_from(SIGNATURES), st.binary(max_size=200))
def test_any_bytes(signature: bytes, rest: bytes) -> None:
    check_header(signature + rest)


@given(st.sampled_from(SMALL_IMAGES), st.integers(0, 4096), st.binary(max_size=8))
@example(b"II+\0\x08\0\0\0" + b"\xff" * 16, 0, b"")
def test_overwritten_image(data: bytes, offset: int, patch: bytes) -> None:
    check_header(data[:offset] + patch + data[offset + len(patch) :])


@pytest.mark.parametrize("name", IMAGES)
def test_cut_image_has_its_own_header_or_none(name: str) -> None:
    data, expected = IMAGES[name]
    for length in range(min(len(data), 1500)):
        try:
            header = read_header(data[:length])
        except ImageHeaderError:
            continue
        # later frames of a GIF make it larger, and tRNS is seen only after the palette
        assert header.format == expected[0]
        assert header.height <= expected[1]
        assert header.width <= expected[2]
        assert header.depth == expected[3]


GIF_HEAD = b"GIF89a" + bytes(7)
PALETTE_HEAD = b"\x89PNG\r\n\x1a\n" + png_chunk(
    b"IHDR", struct.pack(">IIBBBBB", 5, 5, 8, 3, 0, 0, 0)
)
# What comes again and again behind the first bytes, and what is said of it.
HOSTILE = [
    (b"\xff\xd8", b"\xff", "JPEG ends inside its header"),
    (b"\xff\xd8\xff", b"\0\xff", "JPEG ends inside its header"),
    (b"\xff\xd8\xff", b"\xe0\x00\x02\xff", "JPEG has more than 10,000 segments"),
    (b"\xff\xd8", b"\xff\xd0", "JPEG has more than 10,000 segments"),
    (GIF_HEAD + b"!\xff", b"\1\1", "GIF has 1,...,... blocks in"),
    (GIF_HEAD, b"!\xff\0", "GIF has more than 100,000 frames and"),
    (GIF_HEAD, b",\0\0\0\0\1\0\1\0\0\2\0", "GIF has more than 100,000 frames and"),
    (PALETTE_HEAD + bytes(4) + b"tEXt", bytes(8) + b"tEXt", "PNG has more than 10,000"),
    (PALETTE_HEAD, png_chunk(b"tRNS", b"\0"), "PNG has more than 10,000 chunks"),
    (b"RIFF\0\0\0\0WEBP", b"ABCD" + bytes(4), "WebP has more than 10,000 chunks"),
    (
        b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 400_000),
        bytes(20),
        "TIFF has more than 10,000 tags",
    ),
    # Each of 60,000 tags claims the whole file.
    (
        b"II*\0\x08\0\0\0\x60\xea",
        struct.pack("<HHII", 700, 7, 700_000, 0),
        "TIFF has more than 10,000 tags",
    ),
]


@pytest.mark.parametrize(("head", "repeated", "message"), HOSTILE)
def test_hostile_bytes_cost_no_time(head: bytes, repeated: bytes, message: str) -> None:
    """Bounded steps, which a count shows: without the bounds 50 MiB took up to 57 s."""
    data = head + repeated * (8_000_000 // len(repeated))
    with pytest.raises(ImageHeaderError, match=message):
        read_header(data)


RUN_LENGTHS = IMAGES["gray.bmp"][0][:30] + b"\1" + IMAGES["gray.bmp"][0][31:]
GRAY = b"".join(bytes((shade, shade, shade, 0)) for shade in range(256))

TWELVE_BITS = JPEG[: JPEG_FRAME_AT + 4] + b"\x0c" + JPEG[JPEG_FRAME_AT + 5 :]


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (IMAGES["1-bit.bmp"][0], "bmp with 1 bits per pixel"),
        (IMAGES["16-bit.bmp"][0], "bmp with 16 bits per pixel"),
        (IMAGES["os2-info.bmp"][0], "bmp of OS/2"),
        (IMAGES["colour-palette.bmp"][0], "bmp with a palette"),
        (IMAGES["rgb.bmp"][0] + b"x", "bmp with more bytes than its pixels"),
        (RUN_LENGTHS, "bmp with compression 1"),
        (bmp(8, palette=GRAY), "bmp"),
        (IMAGES["gray.bmp"][0], "bmp"),
        (IMAGES["v5-info.bmp"][0], "bmp"),
        (IMAGES["32-bit-no-alpha.bmp"][0], "bmp"),
        (IMAGES["rgb.png"][0], "png"),
        (TWELVE_BITS, "jpeg with 12 bits per sample"),
    ],
)
def test_kind_of_what_tensorflow_does_not_decode(image: bytes, kind: str) -> None:
    assert read_header(image).kind == kind


# Where every byte counts: a file that was cut anywhere is not whole. A GIF's whole
# frames count, and bytes after the end of a JPEG or PNG do not.
CUT_ANYWHERE = (
    "rgb.jpg",
    "rgb.png",
    "rgb.bmp",
    "lossy.webp",
    "rgb.tif",
    "thumbnail.jpg",
)


def check(data: bytes) -> None:
    check_structure(data, read_header(data))


@pytest.mark.parametrize("name", IMAGES)
def test_whole_images_pass(name: str) -> None:
    check(IMAGES[name][0])


@pytest.mark.parametrize("name", CUT_ANYWHERE)
def test_cut_images_do_not(name: str) -> None:
    data, _ = IMAGES[name]
    for length in {
        1,
        20,
        len(data) // 3,
        len(data) // 2,
        len(data) - 13,
        len(data) - 1,
    }:
        with pytest.raises(ImageHeaderError):
            check(data[:length])


def opens(data: bytes) -> bool:
    """Whether Pillow decodes it; some of the images are little more than a header."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
    except OSError:
        return False
    return True


@pytest.mark.fuzz
@fuzzed()
@given(
    name=st.sampled_from([name for name in sorted(IMAGES) if opens(IMAGES[name][0])]),
    share=st.floats(0, 1),
)
def test_what_passes_after_a_cut_decodes(name: str, share: float) -> None:
    data, header = IMAGES[name]
    data = data[: int(len(data) * share)]
    try:
        check(data)
    except ImageHeaderError:
        return
    assert header[0] not in ("jpeg", "png", "bmp") or opens(data)


JPEGS = [name for name in IMAGES if name.endswith(".jpg")]
# Bytes that mean something in a JPEG, and one that does not.
TELLING = [0x00, 0x01, 0x02, 0x08, 0x37, 0xC0, 0xC4, 0xD0, 0xD8, 0xD9, 0xDA, 0xE0, 0xFF]


def told_by_python(data: bytes) -> tuple[int, int, int] | None:
    try:
        header = read_header(data)
        check_structure(data, header)
    except ImageHeaderError:
        return None
    return header.height, header.width, header.depth


@pytest.mark.fuzz
@fuzzed()
@given(
    name=st.sampled_from(JPEGS),
    changes=st.lists(st.tuples(st.integers(0, 700), st.sampled_from(TELLING))),
    # Few of them are cut, as nothing else matters then.
    kept=st.integers(0, 3000),
)
def test_a_whole_jpeg_is_told_by_the_extension_as_by_python(
    name: str, changes: list[tuple[int, int]], kept: int
) -> None:
    damaged = bytearray(IMAGES[name][0])
    for offset, value in changes:
        damaged[offset % len(damaged)] = value
    data = bytes(damaged[:kept])
    assert LOOPS.read_jpeg_size(data) in (None, told_by_python(data))


def test_the_extension_knows_plain_jpegs() -> None:
    assert LOOPS.read_jpeg_size(TWELVE_BITS) is None
    told = [name for name in JPEGS if LOOPS.read_jpeg_size(IMAGES[name][0])]
    odd = {"fill-bytes.jpg", "bare-markers.jpg", "bytes-between-segments.jpg"}
    assert {*JPEGS} - {*told} == odd
    for name in told:
        assert ("jpeg", *(LOOPS.read_jpeg_size(IMAGES[name][0]) or ())) == IMAGES[name][
            1
        ]
    data = IMAGES["rgb.jpg"][0]
    assert (
        LOOPS.read_jpeg_size(data + bytes(5000)) is None
    )  # Python looks farther for the end
    assert told_by_python(data + bytes(5000)) == (5, 7, 3)
    assert LOOPS.read_jpeg_size(b"") is None


def test_the_end_of_a_segment_is_not_taken_for_a_scan() -> None:
    header = bytes.fromhex("FFD8 FFC0000B08000200030101 1100")
    data = header + bytes.fromhex("FFE00004FFDA FFD9")
    assert LOOPS.read_jpeg_size(data) is None
    assert told_by_python(data) is None
    with pytest.raises(ImageHeaderError, match="no pixels"):
        check(data)


@given(
    st.lists(st.sampled_from([0x00, 0x01, 0xD9, 0xFF]), max_size=8), st.integers(0, 9)
)
def test_the_next_marker_is_that_of_a_search(data: list[int], offset: int) -> None:
    found = re.compile(rb"\xff[^\x00\xff]").search(bytes(data), offset)
    assert next_marker(bytes(data), offset) == (found.end() if found else 0)


def test_end_of_a_thumbnail_is_not_end_of_the_image() -> None:
    data, _ = IMAGES["thumbnail.jpg"]
    with pytest.raises(ImageHeaderError, match=r"JPEG is cut short: no end-of-image"):
        check(data[:-2])


def test_bytes_after_the_end_do_not_matter() -> None:
    for name in ("rgb.jpg", "rgb.png", "rgb.bmp"):
        check(IMAGES[name][0] + b"trailing")


@pytest.mark.parametrize("kind", [b"IDAT", b"IEND"])
def test_a_damaged_chunk_that_decoders_need(kind: bytes) -> None:
    data = bytearray(IMAGES["rgb.png"][0])
    at = data.index(kind)
    data[at + 4] ^= 1
    with pytest.raises(
        ImageHeaderError, match=rf"the {kind.decode()} chunk at byte {at - 4}"
    ):
        check(bytes(data))


def test_a_damaged_chunk_that_they_skip() -> None:
    comment = bytearray(png_chunk(b"tEXt", b"made by hand"))
    comment[-1] ^= 1
    data, _ = IMAGES["rgb.png"]
    check(data[:33] + bytes(comment) + data[33:])


def test_more_pixels_than_decoders_take() -> None:
    check_pixels(ImageHeader("png", 1 << 14, 1 << 15, 3))
    with pytest.raises(
        ImageHeaderError, match=r"png of 32,768 x 32,768 pixels \(expected 536,870,912"
    ):
        check_pixels(ImageHeader("png", 1 << 15, 1 << 15, 3))
