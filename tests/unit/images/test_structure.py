"""Images that are cut or damaged, told without decoding; Pillow's decoders as oracle."""

from __future__ import annotations

import io
import re

import pytest
from example_counts import fuzzed
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pixel_zoo import IMAGES, png_chunk

from recordmill.transforms.images.header import (
    ImageHeader,
    ImageHeaderError,
    check_pixels,
    check_structure,
    next_marker,
    read_header,
)
from recordmill.transforms.native import loops as LOOPS  # noqa: N812

# Where every byte counts: a file that was cut anywhere is not whole. A GIF's whole
# frames count, and bytes after the end of a JPEG or PNG do not.
CUT = ("rgb.jpg", "rgb.png", "rgb.bmp", "lossy.webp", "rgb.tif", "thumbnail.jpg")


def check(data: bytes) -> None:
    check_structure(data, read_header(data))


@pytest.mark.parametrize("name", IMAGES)
def test_whole_images_pass(name: str) -> None:
    check(IMAGES[name][0])


@pytest.mark.parametrize("name", CUT)
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
    assert LOOPS.jpeg(data) in (None, told_by_python(data))


def test_the_extension_knows_plain_jpegs() -> None:
    told = [name for name in JPEGS if LOOPS.jpeg(IMAGES[name][0])]
    odd = {"fill-bytes.jpg", "bare-markers.jpg", "bytes-between-segments.jpg"}
    assert {*JPEGS} - {*told} == odd
    for name in told:
        assert ("jpeg", *(LOOPS.jpeg(IMAGES[name][0]) or ())) == IMAGES[name][1]
    data = IMAGES["rgb.jpg"][0]
    assert LOOPS.jpeg(data + bytes(5000)) is None  # Python looks farther for the end
    assert told_by_python(data + bytes(5000)) == (5, 7, 3)
    assert LOOPS.jpeg(b"") is None


def test_the_end_of_a_segment_is_not_taken_for_a_scan() -> None:
    header = bytes.fromhex("FFD8 FFC0000B08000200030101 1100")
    data = header + bytes.fromhex("FFE00004FFDA FFD9")
    assert LOOPS.jpeg(data) is None
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
