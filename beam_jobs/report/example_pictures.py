"""Shows the pictures of examples: in a terminal, or as PNG for programs."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recordmill.beam_jobs.report.terminal_picture import (
    escape_sequence,
    half_blocks,
    pixels_wanted,
    png_bytes,
    protocol_of,
)
from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.schemas.text import printable
from recordmill.transforms.arrow import U8
from recordmill.transforms.dataset.reader import ExamplePreview
from recordmill.transforms.pictures.image_header import ImageHeaderError
from recordmill.transforms.pictures.thumbnail import holds_pictures, thumbnail_of

if TYPE_CHECKING:
    from rich.console import Console

NOT_DRAWN = (
    "--image draws in a terminal with colours, and the output is none. --json has the "
    "pictures as PNG"
)
_COLUMNS, _ROWS = 40, 16  # of cells, for each picture
_SIDE = 256  # pixels, in JSON
_AT_MOST = 4  # values of one feature of one example

Features = Mapping[str, FeatureSpec]


def require_pictures(features: Features, uri: str) -> None:
    """Makes sure that there is something to show.

    Raises:
      UsageError: no feature holds pictures.
    """
    if not any(map(holds_pictures, features.values())):
        raise UsageError(f"{uri}: `image` shows pictures, and no feature holds any")


def can_draw(console: Console) -> bool:
    """Tests whether the output is a terminal that can show pictures."""
    colours = console.color_system is not None and not console.no_color
    return console.is_terminal and colours


def draw_pictures(
    console: Console, example: ExamplePreview, features: Features
) -> None:
    """Draws the pictures of an example below one another, each with its name."""
    protocol = protocol_of(os.environ)
    columns = min(_COLUMNS, console.width)
    for name, value in _values(example, features):
        try:
            size = pixels_wanted(protocol, columns, _ROWS)
            pixels = thumbnail_of(value, features[name], *size)
        except (ImageHeaderError, ValueError) as error:
            console.print(printable(f"{name}: {error}"), soft_wrap=True)
            continue
        console.print(printable(name), style="dim")
        if protocol == "blocks":
            _draw_blocks(console, pixels)
        else:
            console.file.write(escape_sequence(pixels, protocol, columns, _ROWS) + "\n")


def pictures_json(
    example: ExamplePreview, features: Features
) -> dict[str, list[dict[str, Any]]]:
    """Returns the pictures by feature: size, and the small PNG as base64."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, value in _values(example, features):
        shown: dict[str, Any]
        try:
            pixels = thumbnail_of(value, features[name], _SIDE, _SIDE)
        except (ImageHeaderError, ValueError) as error:
            shown = {"error": str(error)}
        else:
            png = base64.b64encode(png_bytes(pixels)).decode()
            height, width = pixels.shape[:2]
            shown = {"height": height, "width": width, "png": png}
        found.setdefault(name, []).append(shown)
    return found


def _values(example: ExamplePreview, features: Features) -> Iterator[tuple[str, bytes]]:
    """Yields (feature, value) of the pictures, the first few of each feature."""
    for name, values in example.values.items():
        if name not in features or not holds_pictures(features[name]):
            continue
        steps = values if isinstance(values, tuple) else (values,)
        every = (value for step in steps for value in step)
        kept = [value for value in every if isinstance(value, bytes)]
        yield from ((name, value) for value in kept[:_AT_MOST])


def _draw_blocks(console: Console, pixels: U8) -> None:
    from rich.color import Color
    from rich.segment import Segment, Segments
    from rich.style import Style

    segments = []
    for line in half_blocks(pixels):
        for upper, lower in line:
            below = None if lower is None else Color.from_rgb(*lower.tolist())
            style = Style(color=Color.from_rgb(*upper.tolist()), bgcolor=below)
            segments.append(Segment("\N{UPPER HALF BLOCK}", style))
        segments.append(Segment.line())
    console.print(Segments(segments), end="")
