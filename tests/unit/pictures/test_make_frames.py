"""All frames of animated pictures: as Pillow shows them, one after the other."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from recordmill.transforms.pictures.header import ImageHeaderError, read_header
from recordmill.transforms.pictures.make_picture import Made, make_picture
from recordmill.transforms.pictures.pixel_rules import (
    PixelRules,
    Resize,
    parse_reencode,
)
from recordmill.transforms.pictures.structure import MAX_PIXELS

RAW = PixelRules(form="raw", channels=3, turns=True, makes_all=True, max_frames=9)
ENCODED = replace(RAW, form="own", channels=None)


def frame(number: int, mode: str = "RGB") -> Image.Image:
    """Returns a picture of 12 x 8 pixels with a square that moves."""
    picture = Image.new(mode, (12, 8), 40 if mode == "L" else (200, 180, 40))
    picture.paste(255 if mode == "L" else (0, 0, 90), (number, 1, number + 4, 5))
    return picture


def animation(form: str, frames: list[Image.Image], **options: Any) -> bytes:
    buffer = io.BytesIO()
    frames[0].save(buffer, form, save_all=True, append_images=frames[1:], **options)
    return buffer.getvalue()


def clear(number: int) -> Image.Image:
    """Returns a frame of which a part is transparent."""
    picture = frame(number).convert("RGBA")
    picture.paste((0, 0, 0, 0), (9, 5, 12, 8))
    return picture


def holes() -> list[Image.Image]:
    return [frame(0).convert("RGBA"), clear(1), clear(2)]


ANIMATIONS = {
    "gif": animation("GIF", [frame(n) for n in range(4)]),
    "pages, one of them gray": animation("TIFF", [frame(0, "L"), frame(3), frame(5)]),
    "pages, one gray, one with holes": animation(
        "TIFF", [frame(0, "L"), clear(1), frame(2)]
    ),
    "gif with holes": animation("GIF", holes(), disposal=2),
    "apng": animation("PNG", [frame(n) for n in range(4)]),
    "webp": animation("WEBP", [frame(n) for n in range(4)], lossless=True),
    "webp with holes": animation("WEBP", holes(), lossless=True, exact=True),
    "pages": animation("TIFF", [frame(n) for n in range(4)]),
}


def made(data: bytes, rules: PixelRules) -> Made:
    found = make_picture(data, read_header(data), rules, MAX_PIXELS)
    assert found is not None
    return found


def arrays(found: Made) -> np.ndarray[Any, Any]:
    header = found.header
    shape = (len(found.frame_bytes), header.height, header.width, header.depth)
    return np.frombuffer(found.data, np.uint8).reshape(shape)


def parts(found: Made) -> list[bytes]:
    stops = np.cumsum(found.frame_bytes)
    return [
        found.data[stop - size : stop]
        for stop, size in zip(stops, found.frame_bytes, strict=True)
    ]


@pytest.mark.parametrize("name", ANIMATIONS)
def test_frames_are_those_that_pillow_shows(name: str) -> None:
    data = ANIMATIONS[name]
    with Image.open(io.BytesIO(data)) as picture:
        shown = [each.convert("RGBA") for each in ImageSequence.Iterator(picture)]
    assert len(shown) > 2
    whole = arrays(made(data, replace(RAW, channels=4)))
    assert whole.tolist() == [np.asarray(each).tolist() for each in shown]
    # Encoded, all are alike, with alpha only if a pixel needs it.
    found = made(data, ENCODED)
    needs_alpha = any(each.getchannel("A").getextrema()[0] < 255 for each in shown)
    assert found.header.depth == (4 if needs_alpha else 3)
    for part, each in zip(parts(found), shown, strict=True):
        with Image.open(io.BytesIO(part)) as picture:
            assert picture.format == "PNG"
            assert len(picture.getbands()) == found.header.depth
            assert np.array_equal(picture.convert("RGBA"), each)


def test_all_frames_are_scaled_alike() -> None:
    rules = replace(RAW, resize=Resize(sides=(4, 6)))
    still = io.BytesIO()
    frame(2).save(still, "PNG")
    found = arrays(made(ANIMATIONS["gif"], rules))
    assert found.shape == (4, 4, 6, 3)
    assert np.array_equal(found[2], arrays(made(still.getvalue(), rules))[0])


@pytest.mark.parametrize("text", ["jpeg", "webp", "webp:lossless", "png"])
def test_frames_are_encoded_as_asked(text: str) -> None:
    form, quality, lossless = parse_reencode(text)
    rules = replace(ENCODED, form=form, quality=quality, lossless=lossless)
    for name in ("pages, one of them gray", "webp with holes"):
        found = parts(made(ANIMATIONS[name], rules))
        assert len(found) == 3
        assert {Image.open(io.BytesIO(each)).format for each in found} == {form.upper()}


def test_the_still_picture_of_an_apng_is_not_one_of_its_frames() -> None:
    frames = [frame(n) for n in range(3)]
    data = animation("PNG", frames, default_image=True)
    found = arrays(made(data, RAW))
    assert found.tolist() == [np.asarray(each).tolist() for each in frames[1:]]


def test_too_many_frames_are_refused() -> None:
    with pytest.raises(ImageHeaderError, match="gif has 4 frames"):
        made(ANIMATIONS["gif"], replace(RAW, max_frames=3))
    with pytest.raises(ImageHeaderError, match="tiff has 3 frames or more"):
        made(ANIMATIONS["pages"], replace(RAW, max_frames=2))


def test_tags_of_a_later_page_that_are_all_as_long_as_the_file() -> None:
    """Pillow copies them as soon as it counts the pages."""
    data = bytearray(ANIMATIONS["pages"]) + bytes(1 << 20)
    (page,) = struct.unpack_from("<I", data, 4)
    end = page + 2 + 12 * struct.unpack_from("<H", data, page)[0]
    later = struct.unpack_from("<I", data, end)[0]
    (number,) = struct.unpack_from("<H", data, later)
    size = len(data)
    long_tags = (struct.pack("<HHII", 40_000 + n, 1, size - 8, 8) for n in range(60))
    struct.pack_into("<I", data, end, size)
    data += struct.pack("<H", number + 60) + data[later + 2 : later + 2 + 12 * number]
    data += b"".join(long_tags) + bytes(4)
    with pytest.raises(ImageHeaderError, match="TIFF has tags of 63,"):
        made(bytes(data), RAW)
    first = made(bytes(data), replace(RAW, max_frames=0))  # nobody looks at it
    assert len(first.frame_bytes) == 1


def test_pages_of_different_sizes_are_refused() -> None:
    data = animation("TIFF", [frame(0), frame(1).resize((6, 4))])
    with pytest.raises(ImageHeaderError, match="frames of 8 x 12 and 4 x 6 pixels"):
        made(data, RAW)
    assert arrays(made(data, replace(RAW, resize=Resize(sides=(4, 6))))).shape[0] == 2


def test_frames_that_take_too_much_memory_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from recordmill.transforms.pictures import make_picture as module

    monkeypatch.setattr(module, "MAX_PIXEL_BYTES", 600)
    with pytest.raises(ImageHeaderError, match="of which the first 3 take 864 B"):
        made(ANIMATIONS["gif"], RAW)


def test_one_frame_is_a_sequence_of_one() -> None:
    buffer = io.BytesIO()
    frame(0).save(buffer, "JPEG")
    assert made(buffer.getvalue(), ENCODED).frame_bytes == (
        len(made(buffer.getvalue(), ENCODED).data),
    )
