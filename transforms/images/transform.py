"""Transforms images as rules say: decodes, turns, scales, crops, pads and encodes them.

A JPEG that is to become much smaller is decoded at a half, a quarter or an eighth of its
size, which its decoder does in less time; never below twice the size that is asked for,
so that the filter still has pixels to choose from. The filter is Pillow's bicubic one,
which takes all pixels into account that a pixel of the smaller image covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recordmill.schemas.text import human_bytes
from recordmill.transforms.images.decode import (
    GRAY_16,
    UPRIGHT,
    Box,
    blended,
    open_image,
    orientation_of,
    swaps_sides,
    to_8_bits,
    turned,
    turned_back,
    turned_box,
)
from recordmill.transforms.images.encode import encode_image
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.images.pixel_rules import MAX_PIXEL_BYTES, PixelRules

if TYPE_CHECKING:
    from PIL import Image

# What of the file is not in the result, or was changed beside its size.
FIRST_FRAME = "its first frame"
NARROWED = "16 bits a channel made 8"
TURNED = "turned as its EXIF data say"
BLENDED = "alpha blended over white"
INKS = "four inks made three colours"

_DRAFT = 2  # a JPEG is decoded at this many times the size asked for, or more
_DEEP_PNG_AT = 24  # offset of the bits a channel in a PNG
_TIFF_BITS = 258  # a tag
_WHITE = (255, 255, 255)
# Of more bits than anybody says what black and white are, or of another meaning.
_REFUSED_MODES = frozenset({"I", "F", "LAB", "HSV"})


class Transformed(NamedTuple):
    """The bytes of a transformed image (raw: its samples), their header, and changes."""

    data: bytes
    header: ImageHeader
    changes: tuple[str, ...]


class _Decoded(NamedTuple):
    """A decoded image, its size before it was decoded at a smaller one, and a box.

    The whole image lies in the box: a JPEG whose sides are not multiples of eight is decoded
    to a little more.
    """

    pixels: Image.Image
    box: Box
    width: int
    height: int


def transform_image(
    data: bytes, header: ImageHeader, rules: PixelRules, max_pixels: int
) -> Transformed | None:
    """Transforms an image as the rules say; returns None if it stays as it is.

    Of several frames the first one is taken.

    Args:
      data: the whole file.
      header: its header.
      rules: what is done with it.
      max_pixels: largest height x width; checked before anything is decoded.

    Raises:
      ImageHeaderError: it cannot be decoded, or not be encoded.
    """
    if not (rules.transforms_all or rules.turns or rules.rejects_frames):
        return None
    with open_image(data, header, max_pixels) as image:
        # A second image in a JPEG is a preview.
        has_frames = header.format != "jpeg" and getattr(image, "is_animated", False)
        if has_frames and rules.rejects_frames:
            raise ImageHeaderError(
                f"{header.format} has several frames (expected one, because of "
                "`animated=reject`)"
            )
        orientation = orientation_of(image)
        is_turned = rules.turns and orientation != UPRIGHT
        if not rules.transforms_all and not is_turned:
            return None
        changes = [FIRST_FRAME] if has_frames else []
        changes += [TURNED] if is_turned else []
        changes += [NARROWED] if _is_narrowed(image, data, header, rules) else []
        changes += [INKS] if image.mode == "CMYK" else []
        decoded = _decode(image, header, rules, orientation)
        form = rules.form_of(header.format)
        pixels, is_blended = _in_channels(decoded.pixels, rules, form)
        changes += [BLENDED] if is_blended else []
        pixels = _placed(pixels, decoded, rules)
        found, made = encode_image(pixels, form, rules.quality, rules.lossless)
        return Transformed(found, made, tuple(changes))


def _is_narrowed(
    image: Image.Image, data: bytes, header: ImageHeader, rules: PixelRules
) -> bool:
    """Tests whether an image of 16 bits a channel is decoded to 8."""
    if image.mode in GRAY_16:
        return not rules.keeps_samples
    if header.format == "png":
        return data[_DEEP_PNG_AT] == 16
    if header.format != "tiff" or image.mode in _REFUSED_MODES:
        return False
    bits = image.tag_v2.get(_TIFF_BITS, (1,))  # type: ignore[attr-defined]
    return bool(max(bits) == 16)


def _decode(
    image: Image.Image, header: ImageHeader, rules: PixelRules, orientation: int
) -> _Decoded:
    """Decodes an image in 8 bits a channel, and turns it if the rules say so."""
    width, height = image.size
    box: Box | None = None
    if header.format == "jpeg" and rules.resize is not None:
        swapped = rules.turns and swaps_sides(orientation)
        sides = (height, width) if swapped else (width, height)
        wanted = rules.resize.size_of(*sides)
        if swapped:
            wanted = wanted[1], wanted[0]
        drafted = image.draft(None, (_DRAFT * wanted[0], _DRAFT * wanted[1]))
        box = drafted[1] if drafted else None
    channels = len(image.getbands())
    channels *= 2 if rules.keeps_samples and image.mode in GRAY_16 else 1
    _check_bytes(image.size, channels, f"{header.kind} has")
    if image.mode in _REFUSED_MODES:
        raise ImageHeaderError(
            f"{header.kind} has pixels of the kind {image.mode} (expected 8 or 16 bits a "
            "channel, gray or colours)"
        )
    image.load()
    is_kept = rules.keeps_samples and (image.mode == "P" or image.mode in GRAY_16)
    pixels = image if is_kept else to_8_bits(image)
    box = box or (0, 0, *pixels.size)
    if header.format == "tiff":  # Pillow has turned it
        pixels = pixels if rules.turns else turned_back(pixels, orientation)
        return _Decoded(pixels, (0, 0, *pixels.size), *pixels.size)
    if rules.turns:
        box = turned_box(box, pixels.size, orientation)
        pixels = turned(pixels, orientation)
        if swaps_sides(orientation):
            width, height = height, width
    return _Decoded(pixels, box, width, height)


def _check_bytes(size: tuple[int, int], channels: int, what: str) -> None:
    """Refuses an image of this width and height that is too large to be held."""
    width, height = size
    if width * height * channels > MAX_PIXEL_BYTES:
        raise ImageHeaderError(
            f"{what} {height:,} x {width:,} pixels, "
            f"{human_bytes(width * height * channels)} of them (expected "
            f"{human_bytes(MAX_PIXEL_BYTES)} or less)"
        )


def _in_channels(
    image: Image.Image, rules: PixelRules, form: str
) -> tuple[Image.Image, bool]:
    """Returns an image in the channels of the rules, and whether alpha was blended."""
    channels = rules.channels
    has_alpha = image.mode in ("LA", "RGBA")
    keeps_alpha = channels == 4 or (channels is None and form != "jpeg")
    is_blended = False
    if has_alpha and not keeps_alpha:
        lowest = image.getchannel("A").getextrema()[0]
        is_blended = int(lowest) < 255  # type: ignore[arg-type]
        image = blended(image, _WHITE)
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels or 0, image.mode)
    if form == "webp":  # has no gray
        mode = {"L": "RGB", "LA": "RGBA"}.get(mode, mode)
    return (image if image.mode == mode else image.convert(mode)), is_blended


def _placed(pixels: Image.Image, decoded: _Decoded, rules: PixelRules) -> Image.Image:
    """Returns an image scaled, cropped and padded.

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
    if rules.resize is not None:
        pixels = _scaled(pixels, decoded.box, (width, height), part)
    elif rules.crop is not None:
        pixels = pixels.crop(part)
    return pixels if rules.pad is None else _padded(pixels, rules.pad, rules.pad_value)


def _scaled(
    pixels: Image.Image,
    box: Box,
    size: tuple[int, int],
    part: tuple[int, int, int, int],
) -> Image.Image:
    """Returns a part of what a box of an image is when it is scaled to a size."""
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


def _padded(pixels: Image.Image, sides: tuple[int, int], value: int) -> Image.Image:
    from PIL import Image

    height, width = sides
    if pixels.height > height or pixels.width > width:
        raise ImageHeaderError(
            f"has {pixels.height:,} x {pixels.width:,} pixels, more than it is padded to "
            f"(expected {height:,} x {width:,} or fewer, because of `pad`); use "
            f"`resize=longer={min(height, width)}`, or `crop` in place of `pad`"
        )
    around = Image.new("RGB", (1, 1), (value, value, value)).convert(pixels.mode)
    padded = around.resize((width, height))
    padded.paste(pixels, ((width - pixels.width) // 2, (height - pixels.height) // 2))
    return padded
