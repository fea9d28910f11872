"""Writes a picture as a terminal can show it.

Terminals with a protocol for pictures say so by their environment variables; all others
with colours get half blocks: the upper half of a cell is one pixel, the lower half the
next below it.

Sources: kitty's "terminal graphics protocol", iTerm2's "inline images protocol", and
sixel as in the DEC VT330/VT340 programmer reference, chapter 14.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from recordmill.transforms.arrow import U8

Protocol = Literal["kitty", "iterm", "sixel", "blocks"]

_CELL = 10, 20  # pixels of a cell, about; the terminal scales to its own
_KITTY_CHUNK = 4096
_SIXEL_COLOURS = 216  # six steps of each of red, green and blue
_SIXEL_ROWS = 6


def protocol_of(environment: Mapping[str, str]) -> Protocol:
    """Returns how the terminal takes pictures, as its environment says."""
    term = environment.get("TERM", "")
    program = environment.get("TERM_PROGRAM", "")
    if "TMUX" in environment or term.startswith(("tmux", "screen")):
        return "blocks"  # the multiplexer would swallow the others
    if term in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    if program in ("iTerm.app", "WezTerm", "mintty"):
        return "iterm"
    if environment.get("LC_TERMINAL") == "iTerm2":  # which ssh passes on
        return "iterm"
    if term.startswith(("foot", "mlterm", "contour", "yaft")):
        return "sixel"
    return "blocks"


def pixels_wanted(protocol: Protocol, columns: int, rows: int) -> tuple[int, int]:
    """Returns the largest width and height of a picture in that many cells."""
    if protocol == "blocks":
        return columns, 2 * rows
    return columns * _CELL[0], rows * _CELL[1]


def escape_sequence(pixels: U8, protocol: Protocol, columns: int, rows: int) -> str:
    """Returns the characters that show a picture, by one of the protocols.

    Args:
      pixels: red, green and blue, of shape (height, width, 3).
      protocol: not "blocks".
      columns: the cells that it may take.
      rows: the same.
    """
    if protocol == "sixel":
        return sixel(_enlarged(pixels, *pixels_wanted(protocol, columns, rows)))
    png = png_bytes(pixels)
    height, width = pixels.shape[:2]
    scale = min(columns / width, 2 * rows / height)
    columns = max(1, round(width * scale))
    rows = max(1, round(height * scale / 2))
    data = base64.b64encode(png).decode()
    if protocol == "iterm":
        facts = f"inline=1;size={len(png)};width={columns};height={rows}"
        return f"\x1b]1337;File={facts}:{data}\x07"
    # q=2: the terminal answers nothing, which would be typed into the shell.
    facts, parts = f"a=T,f=100,q=2,c={columns},r={rows},", []
    for start in range(0, len(data), _KITTY_CHUNK):
        more = int(start + _KITTY_CHUNK < len(data))
        chunk = data[start : start + _KITTY_CHUNK]
        parts.append(f"\x1b_G{facts}m={more};{chunk}\x1b\\")
        facts = ""
    return "".join(parts)


def png_bytes(pixels: U8) -> bytes:
    """Returns a picture as a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def half_blocks(pixels: U8) -> Iterator[list[tuple[U8, U8 | None]]]:
    """Yields the lines of cells: (upper, lower) colour; no lower one below the end."""
    for top in range(0, len(pixels), 2):
        upper = pixels[top]
        lower = pixels[top + 1] if top + 1 < len(pixels) else [None] * len(upper)
        yield list(zip(upper, lower, strict=True))


def sixel(pixels: U8) -> str:
    """Returns a picture as sixels, in 216 colours.

    Six rows are a band. For each colour in it there is a line of characters, one for
    each column: 63 and six bits, the lowest for the uppermost row. "$" goes back to the
    start of the band, "-" to the next one. A red pixel over a blue one, one column:

        #180 A $ #5 B -      colour 180, bit 0; back; colour 5, bit 1; next band
             @      A        63 + 1, 63 + 2
    """
    height, width = pixels.shape[:2]
    steps = (pixels.astype(np.int64) * 5 + 127) // 255
    colours = steps @ np.array([36, 6, 1])
    used = np.unique(colours)
    parts = [f'\x1bPq"1;1;{width};{height}']
    for colour in used.tolist():
        red, green, blue = colour // 36, colour // 6 % 6, colour % 6
        parts.append(f"#{colour};2;{red * 20};{green * 20};{blue * 20}")
    for top in range(0, height, _SIXEL_ROWS):
        band = colours[top : top + _SIXEL_ROWS]
        bits = 1 << np.arange(len(band))
        lines = []
        for colour in np.unique(band).tolist():
            cells = ((band == colour) * bits[:, None]).sum(axis=0)
            lines.append(f"#{colour}{(cells + 63).astype(np.uint8).tobytes().decode()}")
        parts.append("$".join(lines) + "-")
    return "".join(parts) + "\x1b\\"


def _enlarged(pixels: U8, width: int, height: int) -> U8:
    """Returns a small picture with each pixel repeated, as far as there is room."""
    times = max(1, min(width // pixels.shape[1], height // pixels.shape[0]))
    return pixels.repeat(times, axis=0).repeat(times, axis=1)
