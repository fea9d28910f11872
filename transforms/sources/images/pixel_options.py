"""Declares the options that make the pixels of pictures anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.errors import UsageError
from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.pictures.pixel_rules import (
    PixelRules,
    parse_pad,
    parse_reencode,
    parse_resize,
    parse_sides,
)

MAX_FRAMES = 1_000
Orientation = Literal["auto", "keep", "apply"]
Animated = Literal["first", "frames", "reject"]
Channels = Literal["keep", "1", "3", "4"]
PixelForm = Literal["encoded", "raw"]


def _read_by(parse: Callable[[str], Any]) -> AfterValidator:
    """Returns a validator of a text that is empty or can be parsed."""

    def validate(text: str) -> str:
        if text:
            parse(text)
        return text

    return AfterValidator(validate)


def _as_text(value: Any) -> Any:
    """Takes the number 3, as YAML has it, for its text."""
    return str(value) if type(value) is int else value


class PixelOptions(SourceOptions):
    """Options of what becomes of the pixels of pictures."""

    resize: Annotated[str, _read_by(parse_resize)] = Field(
        "",
        description="size that pictures are scaled to: height x width (224x224), or one "
        "side with the other in proportion (shorter=256, longer=512)",
    )
    crop: Annotated[str, _read_by(parse_sides)] = Field(
        "",
        description="height x width that is kept of the middle, after `resize` (224x224)",
    )
    pad: Annotated[str, _read_by(parse_pad)] = Field(
        "",
        description="height x width that pictures are put into the middle of, after "
        "`resize`, with the colour around them (224x224, 224x224:white, 224x224:#808080)",
    )
    channels: Annotated[
        Channels, BeforeValidator(_as_text, json_schema_input_type=str | int)
    ] = Field(
        "keep",
        description="1 gray, 3 colours, 4 colours and alpha; keep: as each picture has "
        "them",
    )
    orientation: Orientation = Field(
        "auto",
        description="whether pictures are turned as their EXIF data say; auto: only if "
        "another option makes them anew, as EXIF data are left out then",
    )
    animated: Animated = Field(
        "first",
        description="pictures of several frames, where pictures are made anew: the "
        "first frame is taken, all of them as a sequence, or they are rejected; reject "
        "alone rejects them too",
    )
    max_frames: int = Field(
        MAX_FRAMES,
        ge=1,
        description="largest number of frames of a picture with `animated=frames`",
    )
    reencode: Annotated[str, _read_by(parse_reencode)] = Field(
        "",
        description="encode all pictures anew: jpeg, jpeg:quality=92, png, webp, "
        "webp:quality=80, webp:lossless; without it what must be made anew stays JPEG, "
        "or becomes PNG",
    )
    pixels: PixelForm = Field(
        "encoded",
        description="raw: uint8 arrays of the pixels in place of picture files",
    )


def pixel_rules(options: PixelOptions, undecodable: str) -> PixelRules | None:
    """Returns what the options say, or None if all pictures stay as they are.

    Args:
      options: of the job.
      undecodable: what becomes of pictures that TFDS cannot decode.

    Raises:
      UsageError: options exclude each other.
    """
    raw = options.pixels == "raw"
    anew = [
        name
        for name, is_given in (
            ("resize", options.resize),
            ("crop", options.crop),
            ("pad", options.pad),
            ("channels", options.channels != "keep"),
            ("reencode", options.reencode),
            ("pixels", raw),
            ("animated", options.animated == "frames"),
        )
        if is_given
    ]
    turns = options.orientation == "apply" or (
        options.orientation == "auto" and bool(anew)
    )
    rejects = options.animated == "reject"
    if options.max_frames != MAX_FRAMES and options.animated != "frames":
        raise UsageError(
            "`max_frames` is for all frames of a picture. Use `animated=frames`, or "
            "leave it out"
        )
    if not anew and not turns and not rejects:
        return None
    _check(options, raw)
    if undecodable != "keep" and anew:
        raise UsageError(
            f"`undecodable={undecodable}` and `{anew[0]}` exclude each other, as all "
            "pictures are made anew. Leave out `undecodable`"
        )
    form, quality, lossless = parse_reencode(options.reencode or "jpeg")
    pad, colour = parse_pad(options.pad) if options.pad else (None, (0, 0, 0))
    channels = None if options.channels == "keep" else int(options.channels)
    return PixelRules(
        rejects_frames=rejects,
        max_frames=options.max_frames if options.animated == "frames" else 0,
        turns=turns,
        resize=parse_resize(options.resize) if options.resize else None,
        crop=parse_sides(options.crop) if options.crop else None,
        pad=pad,
        colour=colour,
        # The arrays of a dataset have one number of channels.
        channels=3 if raw and channels is None else channels,
        form="raw" if raw else form if options.reencode else "own",
        quality=quality,
        lossless=lossless,
        makes_all=bool(anew),
    )


def _check(options: PixelOptions, raw: bool) -> None:
    if options.crop and options.pad:
        raise UsageError(
            "`crop` and `pad` exclude each other: crop what is too large, or pad what is "
            "too small"
        )
    if raw and options.reencode:
        raise UsageError(
            "`pixels=raw` and `reencode` exclude each other: an array is not encoded. "
            "Leave out one of them"
        )
    if options.channels == "4" and options.reencode.startswith("jpeg"):
        raise UsageError(
            "a JPEG holds no alpha, the fourth channel of `channels=4`. Use "
            "`reencode=png` or `channels=3`"
        )
