"""Makes pictures anew as rules say: decodes, turns, scales, crops, pads and encodes.

A JPEG that is to become much smaller is decoded at a half, a quarter or an eighth of its
size, which its decoder does in less time; never below twice the size that is asked for,
so that the filter still has pixels to choose from. The filter is Pillow's bicubic one,
which takes all pixels into account that a smaller picture's pixel covers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordmill.schemas.text import human_bytes
from recordmill.transforms.pictures.eight_bits import GRAY_16, blended, in_eight_bits
from recordmill.transforms.pictures.encode_picture import encode_picture
from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.pictures.open_picture import open_picture
from recordmill.transforms.pictures.orientation import (
    UPRIGHT,
    Box,
    orientation_of,
    swaps_sides,
    turned,
    turned_back,
    turned_box,
)
from recordmill.transforms.pictures.pixel_rules import MAX_PIXEL_BYTES, PixelRules
from recordmill.transforms.pictures.reencode import (
    FIRST_FRAME,
    NARROWED,
    has_deep_colours,
)

if TYPE_CHECKING:
    from PIL import Image

TURNED = "turned as its EXIF data say"
BLENDED = "alpha blended over white"
INKS = "four inks made three colours"

_DRAFT = 2  # a JPEG is decoded at this many times the size asked for, or more
_WHITE = (255, 255, 255)
_DEEP_PNG_AT = 24  # offset of the bits a channel in a PNG
# Of more bits than anybody says what black and white are, or of another meaning.
_NO_PICTURES = frozenset({"I", "F", "LAB", "HSV"})


@dataclass(frozen=True, slots=True)
class Made:
    """A picture that was made anew.

    Attributes:
      data: its bytes; of form raw its samples, row by row.
      header: of these bytes.
      changes: what of the file is not in it, or was changed beside its size.
    """

    data: bytes
    header: ImageHeader
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A decoded picture.

    Attributes:
      picture: its pixels.
      box: where the whole picture lies in them: a JPEG whose sides are not multiples of
        eight is decoded to a little more.
      width, height: of the picture, before it was decoded at a smaller size.
    """

    picture: Image.Image
    box: Box
    width: int
    height: int


def make_picture(
    data: bytes, header: ImageHeader, rules: PixelRules, max_pixels: int
) -> Made | None:
    """Makes a picture as the rules say; returns None if it stays as it is.

    Args:
      data: the whole file.
      header: its header.
      rules: what is to become of it.
      max_pixels: largest height x width; checked before anything is decoded.

    Raises:
      ImageHeaderError: it cannot be decoded, or not be made.
    """
    with open_picture(data, header, max_pixels) as picture:
        has_frames = header.format != "jpeg" and getattr(picture, "is_animated", False)
        if has_frames and rules.rejects_frames:
            raise ImageHeaderError(
                f"{header.format} has several frames (expected one, because of "
                "`animated=reject`)"
            )
        orientation = orientation_of(picture)
        is_turned = rules.turns and orientation != UPRIGHT
        if not rules.makes_all and not is_turned:
            return None
        changes = [FIRST_FRAME] if has_frames else []
        changes += [TURNED] if is_turned else []
        if _is_deep(picture, data, header):
            changes.append(NARROWED)
        if picture.mode == "CMYK":
            changes.append(INKS)
        decoded = _decode(picture, header, rules, orientation)
        form = rules.form_of(header.format)
        pixels, is_blended = _in_channels(decoded.picture, rules.channels, form)
        changes += [BLENDED] if is_blended else []
        placed = _placed(pixels, decoded, rules)
    made, made_header = encode_picture(placed, form, rules.quality, rules.lossless)
    return Made(made, made_header, tuple(changes))


def _is_deep(picture: Image.Image, data: bytes, header: ImageHeader) -> bool:
    """Tells whether a picture has 16 bits a channel."""
    if picture.mode in GRAY_16:
        return True
    if header.format == "png":
        return data[_DEEP_PNG_AT] == 16
    return header.format == "tiff" and has_deep_colours(picture)


def _decode(
    picture: Image.Image, header: ImageHeader, rules: PixelRules, orientation: int
) -> _Decoded:
    """Decodes a picture, in 8 bits a channel, and turns it if the rules say so."""
    width, height = picture.size
    box: Box | None = None
    if header.format == "jpeg" and rules.resize is not None:
        swapped = rules.turns and swaps_sides(orientation)
        sides = (height, width) if swapped else (width, height)
        wanted = rules.resize.size_of(*sides)
        if swapped:
            wanted = wanted[1], wanted[0]
        drafted = picture.draft(None, (_DRAFT * wanted[0], _DRAFT * wanted[1]))
        box = drafted[1] if drafted else None
    _check_bytes(picture.size, len(picture.getbands()), f"{header.kind} has")
    if picture.mode in _NO_PICTURES:
        raise ImageHeaderError(
            f"{header.kind} has pixels of the kind {picture.mode} (expected 8 or 16 "
            "bits a channel, gray or colours)"
        )
    picture.load()
    pixels = in_eight_bits(picture)
    box = box or (0, 0, *pixels.size)
    if header.format == "tiff":  # Pillow has turned it
        pixels = pixels if rules.turns else turned_back(pixels, orientation)
        box = (0, 0, *pixels.size)
        width, height = pixels.size
    elif rules.turns:
        box = turned_box(box, pixels.size, orientation)
        pixels = turned(pixels, orientation)
        if swaps_sides(orientation):
            width, height = height, width
    return _Decoded(pixels, box, width, height)


def _check_bytes(size: tuple[int, int], channels: int, what: str) -> None:
    width, height = size
    if width * height * channels > MAX_PIXEL_BYTES:
        raise ImageHeaderError(
            f"{what} {height:,} x {width:,} pixels, "
            f"{human_bytes(width * height * channels)} of them (expected "
            f"{human_bytes(MAX_PIXEL_BYTES)} or less)"
        )


def _in_channels(
    picture: Image.Image, channels: int | None, form: str
) -> tuple[Image.Image, bool]:
    """Returns a picture in the channels asked for, and whether alpha was blended."""
    has_alpha = picture.mode in ("LA", "RGBA")
    keeps_alpha = channels == 4 or (channels is None and form != "jpeg")
    is_blended = False
    if has_alpha and not keeps_alpha:
        lowest = picture.getchannel("A").getextrema()[0]
        is_blended = int(lowest) < 255  # type: ignore[arg-type]
        picture = blended(picture, _WHITE)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels or 0, picture.mode)
    if form == "webp":  # has no gray
        mode = {"L": "RGB", "LA": "RGBA"}.get(mode, mode)
    return (picture if picture.mode == mode else picture.convert(mode)), is_blended


def _placed(pixels: Image.Image, decoded: _Decoded, rules: PixelRules) -> Image.Image:
    """Returns a picture scaled, cropped and padded.

    What is cropped away is not scaled: the filter is asked for the part that stays.
    """
    width, height = decoded.width, decoded.height
    if rules.resize is not None:
        width, height = rules.resize.size_of(width, height)
    left, upper, kept_width, kept_height = 0, 0, width, height
    if rules.crop is not None:
        kept_height, kept_width = rules.crop
        if kept_height > height or kept_width > width:
            raise ImageHeaderError(
                f"has {height:,} x {width:,} pixels, fewer than are cropped (expected "
                f"{kept_height:,} x {kept_width:,} or more, because of `crop`); use "
                f"`resize=shorter={max(rules.crop)}`, or `pad` in place of `crop`"
            )
        left, upper = (width - kept_width) // 2, (height - kept_height) // 2
    _check_bytes((kept_width, kept_height), len(pixels.getbands()), "would have")
    part = (left, upper, left + kept_width, upper + kept_height)
    if rules.resize is None:
        pixels = pixels.crop(part) if rules.crop is not None else pixels
    else:
        pixels = _scaled(pixels, decoded.box, (width, height), part)
    return pixels if rules.pad is None else _padded(pixels, rules)


def _scaled(
    pixels: Image.Image,
    box: Box,
    size: tuple[int, int],
    part: tuple[int, int, int, int],
) -> Image.Image:
    """Returns a part of what a box of a picture is when it is scaled to a size."""
    from PIL.Image import Resampling

    across, down = (box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]
    source = (
        max(0.0, box[0] + part[0] * across),
        max(0.0, box[1] + part[1] * down),
        min(float(pixels.width), box[0] + part[2] * across),
        min(float(pixels.height), box[1] + part[3] * down),
    )
    kept = (part[2] - part[0], part[3] - part[1])
    return pixels.resize(kept, Resampling.BICUBIC, box=source)


def _padded(pixels: Image.Image, rules: PixelRules) -> Image.Image:
    from PIL import Image

    height, width = rules.pad or (0, 0)
    if pixels.height > height or pixels.width > width:
        raise ImageHeaderError(
            f"has {pixels.height:,} x {pixels.width:,} pixels, more than it is padded to "
            f"(expected {height:,} x {width:,} or fewer, because of `pad`); use "
            f"`resize=longer={min(height, width)}`, or `crop` in place of `pad`"
        )
    around = Image.new("RGB", (1, 1), rules.colour).convert(pixels.mode)
    made = around.resize((width, height))
    made.paste(pixels, ((width - pixels.width) // 2, (height - pixels.height) // 2))
    return made
