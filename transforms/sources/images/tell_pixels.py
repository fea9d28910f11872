"""Tells what becomes of the pixels of pictures, before a run and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from recordmill.schemas.ranges import OddRows
from recordmill.schemas.text import count, first_names
from recordmill.transforms.pictures.pixel_rules import PixelRules
from recordmill.transforms.pictures.reencode import FIRST_FRAME, NARROWED

FACT, CHANGED_FACT = "pixels", "changed pictures"
CHANGE = ", "  # between the kind of a picture and what was changed
MADE_PNG = "re-encoded as PNG"
_LOSSES = frozenset({FIRST_FRAME, NARROWED})
_CHANNELS = {1: "gray", 3: "three channels", 4: "four channels"}


def rules_told(rules: PixelRules) -> tuple[tuple[str, str], ...]:
    """Returns the fact of what becomes of the pixels, and of what makes it."""
    steps = []
    if rules.max_frames:
        steps.append("all frames")
    if rules.turns:
        steps.append("turned as EXIF says")
    if rules.resize is not None:
        resize = rules.resize
        if resize.sides is not None:
            steps.append(f"scaled to {_sides(resize.sides)} (bicubic)")
        elif resize.shorter:
            steps.append(f"shorter side {resize.shorter:,} (bicubic)")
        else:
            steps.append(f"longer side {resize.longer:,} (bicubic)")
    if rules.crop is not None:
        steps.append(f"cropped to {_sides(rules.crop)}")
    if rules.pad is not None:
        steps.append(f"padded to {_sides(rules.pad)}")
    if rules.channels is not None:
        steps.append(_CHANNELS[rules.channels])
    if not rules.makes_all:
        steps.append("others as they are")
    else:
        steps.append(_encoding(rules))
    return ((FACT, f"{', '.join(steps)}; by {_versions()}"),)


def _sides(sides: tuple[int, int]) -> str:
    return f"{sides[0]:,} x {sides[1]:,}"


def _encoding(rules: PixelRules) -> str:
    match rules.form:
        case "raw":
            return "uint8 arrays"
        case "png":
            return "as PNG"
        case "webp" if rules.lossless:
            return "as lossless WebP"
        case "webp":
            return f"as WebP of quality {rules.quality}"
        case "own" if rules.channels == 4:
            return "as PNG"
    jpeg = f"JPEG of quality {rules.quality}"
    return f"as {jpeg}" if rules.form == "jpeg" else f"JPEG as {jpeg}, others as PNG"


def _versions() -> str:
    """Returns the versions of what decodes and encodes; with others bytes may differ."""
    import PIL  # 50 ms with its features, for those who decode
    from PIL import features

    turbo = features.version("libjpeg_turbo")
    jpeg = f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version('jpg')}"
    return f"Pillow {PIL.__version__}, {jpeg}"


def changes_told(changed: Sequence[OddRows]) -> tuple[tuple[str, str], ...]:
    """Returns the fact of how many pictures were changed how, beside their size."""
    counts: Counter[str] = Counter()
    for each in changed:
        for change in each.kind.split(CHANGE)[1:]:
            counts[change] += each.rows
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    told = [f"{rows:,} {change}" for change, rows in ordered]
    return ((CHANGED_FACT, first_names(told)),) if told else ()


def warnings_of(changed: Sequence[OddRows]) -> tuple[str, ...]:
    """Returns the warning of pictures of which a part is lost."""
    lost = [each for each in changed if _LOSSES.intersection(each.kind.split(CHANGE))]
    if not lost:
        return ()
    told = first_names(
        [
            f"{count(each.rows, 'picture')} ({each.kind}) such as {each.example}"
            for each in lost
        ]
    )
    way_out = ""
    if any(FIRST_FRAME in each.kind.split(CHANGE) for each in lost):
        way_out = (
            ". Use `animated=frames` to keep all frames, or `animated=reject` to leave "
            "out pictures of several frames"
        )
    return (f"not all of these pictures is in the records: {told}{way_out}",)
