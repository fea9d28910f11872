"""Makes pictures anew as rules say: decodes, turns, scales, crops, pads and encodes.

Of several frames the first one is made, or each, as the rules say. Frames are decoded,
made and encoded one after the other, so that one of them is held decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recordmill.schemas.text import human_bytes
from recordmill.transforms.pictures.decode_picture import decode_picture, is_deep
from recordmill.transforms.pictures.eight_bits import blended
from recordmill.transforms.pictures.encode_picture import encode_picture
from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.pictures.open_picture import (
    check_size,
    check_tags,
    open_picture,
)
from recordmill.transforms.pictures.orientation import UPRIGHT, orientation_of
from recordmill.transforms.pictures.pixel_rules import MAX_PIXEL_BYTES, PixelRules
from recordmill.transforms.pictures.place_picture import placed
from recordmill.transforms.pictures.reencode import FIRST_FRAME, NARROWED

if TYPE_CHECKING:
    from PIL import Image

TURNED = "turned as its EXIF data say"
BLENDED = "alpha blended over white"
INKS = "four inks made three colours"

_WHITE = (255, 255, 255)


@dataclass(frozen=True, slots=True)
class Made:
    """A picture that was made anew.

    Attributes:
      data: its bytes, of several frames one after the other; of form raw its samples,
        row by row.
      header: of the bytes of each frame.
      changes: what of the file is not in it, or was changed beside its size.
      frame_bytes: how many bytes each frame has.
    """

    data: bytes
    header: ImageHeader
    changes: tuple[str, ...]
    frame_bytes: tuple[int, ...]


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
        # A second picture in a JPEG is a preview.
        has_frames = header.format != "jpeg" and getattr(picture, "is_animated", False)
        if has_frames and rules.rejects_frames:
            raise ImageHeaderError(
                f"{header.format} has several frames (expected one, because of "
                "`animated=reject`)"
            )
        is_turned = rules.turns and orientation_of(picture) != UPRIGHT
        if not rules.makes_all and not is_turned:
            return None
        if not has_frames or not rules.max_frames:
            first = _make_frame(picture, data, header, rules)
            changes = (FIRST_FRAME, *first.changes) if has_frames else first.changes
            return replace(first, changes=changes)
        made = _make_frames(picture, data, header, rules, max_pixels)
        if made is None:  # some gray, some coloured; or some of them with alpha
            alike = replace(rules, channels=3)
            made = _make_frames(picture, data, header, alike, max_pixels)
            if made and BLENDED in made.changes and rules.form != "jpeg":
                alike = replace(rules, channels=4)
                made = _make_frames(picture, data, header, alike, max_pixels)
            assert made is not None  # all have these channels
        return made


def _make_frame(
    picture: Image.Image,
    data: bytes,
    header: ImageHeader,
    rules: PixelRules,
    *,
    keeps_picture: bool = False,
) -> Made:
    """Makes the frame at which an open picture stands.

    Args:
      picture: the open one.
      data: the whole file.
      header: its header.
      rules: what is to become of it.
      keeps_picture: whether other frames of the open picture are still to be made.
    """
    orientation = orientation_of(picture)
    changes = [TURNED] if rules.turns and orientation != UPRIGHT else []
    if is_deep(picture, data, header):
        changes.append(NARROWED)
    if picture.mode == "CMYK":
        changes.append(INKS)
    decoded = decode_picture(picture, header, rules, orientation)
    form = rules.form_of(header.format)
    pixels = decoded.picture
    if keeps_picture:
        pixels = _without_opaque_alpha(pixels, rules.channels)
    pixels, is_blended = _in_channels(pixels, rules.channels, form)
    changes += [BLENDED] if is_blended else []
    pixels = placed(pixels, decoded, rules)
    if pixels is picture and keeps_picture:
        pixels = pixels.copy()  # encoding takes what else a picture has from it
    made, made_header = encode_picture(pixels, form, rules.quality, rules.lossless)
    return Made(made, made_header, tuple(changes), (len(made),))


def _make_frames(
    picture: Image.Image,
    data: bytes,
    header: ImageHeader,
    rules: PixelRules,
    max_pixels: int,
) -> Made | None:
    """Makes all frames of an open picture; returns None if their channels differ.

    Raises:
      ImageHeaderError: there are too many, they differ in size, or one cannot be made.
    """
    # The default picture of an APNG is for programs that show no animations.
    first = 1 if getattr(picture, "default_image", False) else 0
    if header.format == "tiff":  # before Pillow takes the tags of all pages
        stop, more = check_tags(data, rules.max_frames + 1), " or more"
    else:
        stop, more = picture.n_frames, ""  # type: ignore[attr-defined]
    if stop - first > rules.max_frames:
        raise ImageHeaderError(
            f"{header.kind} has {stop - first:,} frames{more} (expected "
            f"{rules.max_frames:,} or fewer); raise `max_frames`, or use `animated=first`"
        )
    frames: list[Made] = []
    num_bytes = 0
    for index in range(first, stop):
        picture.seek(index)
        check_size(picture, header, max_pixels)
        frames.append(_make_frame(picture, data, header, rules, keeps_picture=True))
        made, first_made = frames[-1].header, frames[0].header
        if (made.height, made.width) != (first_made.height, first_made.width):
            raise ImageHeaderError(
                f"{header.kind} has frames of {first_made.height:,} x "
                f"{first_made.width:,} and {made.height:,} x {made.width:,} pixels "
                "(expected one size); use `resize` with height x width, or "
                "`animated=first`"
            )
        if made.depth != first_made.depth:
            return None
        num_bytes += len(frames[-1].data)
        if num_bytes > MAX_PIXEL_BYTES:
            raise ImageHeaderError(
                f"{header.kind} has {stop - first:,} frames, of which the first "
                f"{len(frames):,} take {human_bytes(num_bytes)} (expected "
                f"{human_bytes(MAX_PIXEL_BYTES)} or less for all); use a smaller "
                "`resize`, or `animated=first`"
            )
    changes = dict.fromkeys(change for frame in frames for change in frame.changes)
    return Made(
        b"".join(frame.data for frame in frames),
        frames[0].header,
        tuple(changes),
        tuple(len(frame.data) for frame in frames),
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


def _without_opaque_alpha(picture: Image.Image, channels: int | None) -> Image.Image:
    """Returns a frame without alpha, if none is asked for and all of it is opaque.

    GIF has transparent pixels in later frames where the earlier one is still to be
    seen, so that most frames decode to colours and alpha without a need.
    """
    if channels is not None or picture.mode not in ("LA", "RGBA"):
        return picture
    lowest = picture.getchannel("A").getextrema()[0]
    if int(lowest) < 255:  # type: ignore[arg-type]
        return picture
    return picture.convert("L" if picture.mode == "LA" else "RGB")
