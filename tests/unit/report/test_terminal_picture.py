"""What terminals are sent for a picture, read back as they would read it."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from recordmill.beam_jobs.report.terminal_picture import (
    escape_sequence,
    half_blocks,
    pixels_wanted,
    png_bytes,
    protocol_of,
    sixel,
)
from recordmill.transforms.arrow import U8

SIDES = st.integers(1, 20)
PICTURES = st.tuples(SIDES, SIDES).flatmap(
    lambda sides: arrays(np.uint8, (*sides, 3), elements=st.sampled_from([0, 51, 255]))
)


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({}, "blocks"),
        ({"TERM": "xterm-256color"}, "blocks"),
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "tmux-256color", "TERM_PROGRAM": "tmux"}, "blocks"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux-0/default,1,0"}, "blocks"),
    ],
)
def test_terminals_say_what_they_take(
    environment: dict[str, str], protocol: str
) -> None:
    assert protocol_of(environment) == protocol


def read_png(data: bytes) -> U8:
    return np.asarray(Image.open(io.BytesIO(data)))


def read_sixel(text: str) -> U8:
    """The picture that sixels draw; a reader of its own, character by character."""
    header = re.match(r'\x1bPq"1;1;(\d+);(\d+)', text)
    assert header
    assert text.endswith("\x1b\\")
    width, height = int(header[1]), int(header[2])
    picture = np.zeros((height, width, 3), np.uint8)
    colours: dict[str, list[int]] = {}
    column = top = 0
    pen = ""
    for token in re.findall(r"#\d+(?:;\d+)*|[$-]|[?-~]", text[header.end() : -2]):
        if token.startswith("#"):
            pen, *defined = token[1:].split(";")
            if defined:
                assert defined[0] == "2"
                colours[pen] = [round(int(part) * 255 / 100) for part in defined[1:]]
        elif token == "$":
            column = 0
        elif token == "-":
            column, top = 0, top + 6
        else:
            for bit in range(6):
                if (ord(token) - 63) >> bit & 1:
                    picture[top + bit, column] = colours[pen]
            column += 1
    return picture


@given(PICTURES)
def test_sixel(pixels: U8) -> None:
    """Colours that are among the 216 come through as they are."""
    assert (read_sixel(sixel(pixels)) == pixels).all()


def test_sixel_takes_the_nearest_colour() -> None:
    pixels = np.arange(256, dtype=np.uint8).repeat(3).reshape(1, 256, 3)
    shown = read_sixel(sixel(pixels))
    assert np.abs(shown.astype(int) - pixels).max() <= 26


@given(PICTURES)
def test_half_blocks(pixels: U8) -> None:
    lines = list(half_blocks(pixels))
    rows: list[list[U8 | None]] = []
    for line in lines:
        rows += [[upper for upper, _ in line], [lower for _, lower in line]]
    if len(pixels) % 2:
        assert rows.pop() == [None] * pixels.shape[1]
    assert (np.array(rows) == pixels).all()


@given(PICTURES)
def test_png(pixels: U8) -> None:
    assert (read_png(png_bytes(pixels)) == pixels).all()


def noise(height: int, width: int) -> U8:
    return np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)


def test_kitty() -> None:
    """Chunks of at most 4,096 characters; the last one says so."""
    pixels = noise(64, 64)
    text = escape_sequence(pixels, "kitty", 40, 16)
    chunks = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert "".join(f"\x1b_G{facts};{data}\x1b\\" for facts, data in chunks) == text
    assert all(len(data) <= 4096 for _, data in chunks)
    assert [facts[-3:] for facts, _ in chunks] == ["m=1"] * (len(chunks) - 1) + ["m=0"]
    assert len(chunks) > 1
    # As high as it may be, and half as many cells high as wide: they are that shape.
    assert chunks[0][0] == "a=T,f=100,q=2,c=32,r=16,m=1"
    data = base64.b64decode("".join(data for _, data in chunks))
    assert (read_png(data) == pixels).all()


def test_iterm() -> None:
    pixels = noise(10, 80)
    text = escape_sequence(pixels, "iterm", 40, 16)
    found = re.fullmatch(
        r"\x1b\]1337;File=inline=1;size=(\d+);width=40;height=2:(.*)\x07", text
    )
    assert found
    data = base64.b64decode(found[2])
    assert len(data) == int(found[1])
    assert (read_png(data) == pixels).all()


def test_small_pictures_are_enlarged_as_sixels() -> None:
    """Else 32 pixels would be three cells."""
    width, height = pixels_wanted("sixel", 40, 16)
    shown = read_sixel(escape_sequence(noise(32, 32), "sixel", 40, 16))
    assert shown.shape == (320, 320, 3)
    assert width >= 320
    assert height >= 320
