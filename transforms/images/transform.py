"""Transforms images as rules say: decodes, turns, scales, crops, pads and encodes them.

A JPEG that is to become much smaller is decoded at a half, a quarter or an eighth of its
size, which its decoder does in less time; never below twice the size that is asked for,
so that the filter still has pixels to choose from. The filter is Pillow's bicubic one,
which takes all pixels into account that a pixel of the smaller image covers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recordmill.schemas.text import human_bytes
from recordmill.transforms.images.decode import GRAY_16, open_image, to_8_bits
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

_Box = tuple[float, float, float, float]  # left, upper, right and lower edge
_Size = tuple[int, int]  # width and height

_DRAFT = 2  # a JPEG is decoded at this many times the size asked for, or more
_DEEP_PNG_AT = 24  # offset of the bits a channel in a PNG
_TIFF_BITS = 258  # a tag
_ORIENTATION_TAG = 0x112
# How cameras store what viewers turn upright; decoders of TensorFlow do not turn it.
#     1  as it is        2  mirrored           3  upside down     4  both
#     5  6  7  8         the same, with rows and columns exchanged
_UPRIGHT, _FIRST_EXCHANGED = 1, 5
# Of more bits than anybody says what black and white are, or of another meaning.
_REFUSED_MODES = frozenset({"I", "F", "LAB", "HSV"})


class Transformed(NamedTuple):
    """The bytes of a transformed image (raw: its samples), their header, and changes."""

    data: bytes
    header: ImageHeader
    changes: tuple[str, ...]


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
        orientation = _orientation_of(image)
        is_turned = rules.turns and orientation != _UPRIGHT
        if not rules.transforms_all and not is_turned:
            return None
        changes = [FIRST_FRAME] if has_frames else []
        changes += [TURNED] if is_turned else []
        changes += [NARROWED] if _is_narrowed(image, data, header, rules) else []
        changes += [INKS] if image.mode == "CMYK" else []
        pixels, box, size = _decode(image, header, rules, orientation)
        form = rules.form_of(header.format)
        pixels, is_blended = _in_channels(pixels, rules, form)
        changes += [BLENDED] if is_blended else []
        pixels = _placed(pixels, box, size, rules)
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
) -> tuple[Image.Image, _Box, _Size]:
    """Decodes an image in 8 bits a channel, and turns it if the rules say so.

    Returns its pixels, the box of them in which the whole image lies (a JPEG whose sides
    are not multiples of eight is decoded to a little more), and its size in the file.
    """
    turned_size = image.size
    if is_exchanged := rules.turns and orientation >= _FIRST_EXCHANGED:
        turned_size = image.height, image.width
    box: _Box | None = None
    if header.format == "jpeg" and rules.resize is not None:
        wanted = rules.resize.size_of(*turned_size)
        wanted = wanted[::-1] if is_exchanged else wanted
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
    if header.format == "tiff":  # Pillow has turned it
        if not rules.turns:
            pixels = _turned(pixels, {6: 8, 8: 6}.get(orientation, orientation))
        return pixels, (0, 0, *pixels.size), pixels.size
    box = box or (0, 0, *pixels.size)
    if not rules.turns:
        return pixels, box, turned_size
    turned_box = _turned_box(box, pixels.size, orientation)
    return _turned(pixels, orientation), turned_box, turned_size


def _orientation_of(image: Image.Image) -> int:
    """Returns how an image is to be turned; 1 where its EXIF data are damaged."""
    try:
        found = image.getexif().get(_ORIENTATION_TAG, _UPRIGHT)
    except Exception:
        return _UPRIGHT
    return found if isinstance(found, int) and 1 <= found <= 8 else _UPRIGHT


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    from PIL.Image import Transpose

    step = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if step is None else image.transpose(step)


def _turned_box(box: _Box, size: _Size, orientation: int) -> _Box:
    """Returns where a box of an image lies once the image is turned.

    >>> _turned_box((0, 0, 3, 2), (4, 2), 2)
    (1, 0, 4, 2)
    """
    width, height = size
    left, upper, right, lower = box
    if orientation in (2, 3, 7, 8):
        left, right = width - right, width - left
    if orientation in (3, 4, 6, 7):
        upper, lower = height - lower, height - upper
    if orientation >= _FIRST_EXCHANGED:
        return upper, left, lower, right
    return left, upper, right, lower


def _check_bytes(size: _Size, channels: int, what: str) -> None:
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
    from PIL import Image

    channels = rules.channels
    has_alpha = image.mode in ("LA", "RGBA")
    keeps_alpha = channels == 4 or (channels is None and form != "jpeg")
    is_blended = False
    if has_alpha and not keeps_alpha:
        lowest = image.getchannel("A").getextrema()[0]
        is_blended = int(lowest) < 255  # type: ignore[arg-type]
        white = Image.new("RGB", image.size, "white")
        white.paste(image.convert("RGB"), mask=image.getchannel("A"))
        image = white.convert("L") if image.mode == "LA" else white
    mode = {1: "L", 3: "RGB", 4: "RGBA"}.get(channels or 0, image.mode)
    if form == "webp":  # has no gray
        mode = {"L": "RGB", "LA": "RGBA"}.get(mode, mode)
    return (image if image.mode == mode else image.convert(mode)), is_blended


def _placed(
    pixels: Image.Image, box: _Box, size: _Size, rules: PixelRules
) -> Image.Image:
    """Returns the box of an image scaled, cropped and padded, as if it had this size.

    What is cropped away is not scaled: the filter is asked for the part that stays.
    """
    from PIL.Image import Resampling

    width, height = size if rules.resize is None else rules.resize.size_of(*size)
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
    kept = (kept_width, kept_height)
    _check_bytes(kept, len(pixels.getbands()), "would have")
    right, lower = left + kept_width, upper + kept_height
    if rules.resize is not None:
        across, down = (box[2] - box[0]) / width, (box[3] - box[1]) / height
        part = (
            max(0.0, box[0] + left * across),
            max(0.0, box[1] + upper * down),
            min(float(pixels.width), box[0] + right * across),
            min(float(pixels.height), box[1] + lower * down),
        )
        pixels = pixels.resize(kept, Resampling.BICUBIC, box=part)
    elif rules.crop is not None:
        pixels = pixels.crop((left, upper, right, lower))
    return pixels if rules.pad is None else _padded(pixels, rules.pad, rules.pad_value)


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
